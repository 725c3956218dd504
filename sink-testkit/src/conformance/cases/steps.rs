//! Steps that cases of several groups share.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dispatch_api::{Answer, Envelope, ErrorClass, Outcome, Receipt, Sink, SinkError};
use tokio::time::Instant;

use crate::conformance::{
    Checked, Clock, Context, Destination, ErrorRow, Failure, Fault, Hold, StoredMessage, check,
    check_eq,
};

/// How much later than its time something may come. It is shorter than the defaults that
/// cases tell their own settings from.
pub(super) fn slack(context: &Context<'_>) -> Duration {
    let linger = context.profile().batching.as_ref();
    let linger = linger.map_or(Duration::ZERO, |batching| batching.linger * 2);
    linger
        + match context.profile().clock {
            Clock::Paused => Duration::from_millis(50),
            Clock::Real => Duration::from_secs(2),
        }
}

/// The rows of the error table, of which a fixture that plays them has some.
pub(super) fn rows<'c>(context: &'c Context<'_>) -> Checked<&'c [ErrorRow]> {
    let rows = &context.profile().error_table;
    if rows.is_empty() {
        return Err(Failure::of_kit("error table", "the profile has no rows"));
    }
    Ok(rows)
}

/// The destination's record of requests is not empty. For the end of a case whose messages have
/// arrived: what was said of each request was said of some.
pub(super) fn check_recorded(context: &Context<'_>, destination: &Destination) -> Checked {
    if context.faults()?.requests(destination).is_empty() {
        let text = "it has no request of messages that have arrived";
        return Err(Failure::of_kit("the record of requests", text));
    }
    Ok(())
}

/// No request was seen, and the next is.
pub(super) async fn nothing_was_sent(context: &Context<'_>, destination: &Destination) -> Checked {
    let seen = context.faults()?.requests(destination);
    check_eq("requests", &0, &seen.len())?;
    let sink = context.build(destination)?;
    deliver_control(context, &*sink, "the delivery after it").await?;
    // A sink that does not wait for its destination may have answered before.
    context.wait_for(destination, 1).await?;
    check_recorded(context, destination)
}

/// The class, and of `RetryAfter` only the kind.
pub(super) fn check_class(step: &str, expected: ErrorClass, error: &SinkError) -> Checked {
    check_eq(step, &expected.as_str(), &error.class().as_str())
}

/// The error is `Transient`, with the outcome unknown.
pub(super) fn check_unknown(step: &str, error: &SinkError) -> Checked {
    check_class(step, ErrorClass::Transient, error)?;
    check_eq(step, &Outcome::Unknown, &error.outcome())
}

/// The error of an answer that has to be one.
pub(super) fn failed(step: &str, answer: Answer) -> Checked<SinkError> {
    match answer {
        Ok(_) => Err(Failure::new(step, "an error", "Ok")),
        Err(error) => Ok(error),
    }
}

/// The receipt of an answer that has to be Ok.
pub(super) fn succeeded(step: &str, answer: Answer) -> Checked<Receipt> {
    answer.map_err(|error| Failure::new(step, "Ok", error.to_string()))
}

/// All answers are Ok.
pub(super) fn all_succeeded(step: &str, answers: Vec<Answer>) -> Checked {
    for answer in answers {
        succeeded(step, answer)?;
    }
    Ok(())
}

/// Delivers all at once; a failure of this step when one of them never ends.
pub(super) async fn deliver_together(
    context: &Context<'_>,
    sink: &dyn Sink,
    envelopes: &[Envelope],
) -> Checked<Vec<Answer>> {
    let patience = context.profile().patience();
    let all = context.deliver_all(sink, envelopes);
    context.within(patience, "the answers", all).await
}

/// Delivers what has to succeed, and in time.
pub(super) async fn deliver_control(
    context: &Context<'_>,
    sink: &dyn Sink,
    step: &str,
) -> Checked<Receipt> {
    let envelope = context.envelope();
    let patience = context.profile().patience();
    let delivery = context.deliver(sink, &envelope);
    succeeded(step, context.within(patience, step, delivery).await?)
}

/// Delivers after a fault of a connection: it succeeds at once, or fails with what is retried
/// for no longer than the profile says.
pub(super) async fn deliver_recovered(
    context: &Context<'_>,
    sink: &dyn Sink,
    step: &str,
    make: impl Fn() -> Envelope,
) -> Checked<Receipt> {
    let recovered_by = Instant::now() + context.profile().recovery;
    loop {
        let began = Instant::now();
        let envelope = make();
        let patience = context.profile().patience();
        let delivery = context.deliver(sink, &envelope);
        match context.within(patience, step, delivery).await? {
            Err(error) if error.class().is_retryable() && began < recovered_by => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return succeeded(step, answer),
        }
    }
}

/// How long a dispatcher waits before it tries again, at the least.
const PAUSE: Duration = Duration::from_millis(20);

/// As many envelopes as fit into one request with room to spare, at least two.
pub(super) fn few(context: &Context<'_>) -> Vec<Envelope> {
    let batching = context.profile().batching.as_ref();
    let count = batching.map_or(5, |batching| batching.max_entries.clamp(2, 5));
    (0..count).map(|_| context.envelope()).collect()
}

/// Envelopes of sources of their own, so that no order holds one back for another.
pub(super) fn unrelated(context: &Context<'_>, tenant: &str, count: usize) -> Vec<Envelope> {
    (0..count)
        .map(|index| context.envelope_from(Some(tenant), &format!("berth-{index}"), "crate"))
        .collect()
}

/// Holds every request to a destination from now on.
pub(super) fn hold_all(context: &Context<'_>, destination: &Destination) -> Checked<Hold> {
    let hold = Hold::new();
    context.play_always(destination, Fault::HoldRequest(hold.gate()))?;
    Ok(hold)
}

/// Polls once.
pub(super) async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// Starts deliveries that have to stay open.
pub(super) async fn start<T>(
    step: &str,
    calls: &mut [Pin<Box<impl Future<Output = T>>>],
) -> Checked {
    for call in calls {
        let is_open = poll_once(call).await.is_none();
        check(is_open, step, "no answer yet", "an answer")?;
    }
    Ok(())
}

/// Polls whenever it is woken, at most `polls` times, and drops it then.
pub(super) async fn poll_at_most<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    if polls == 0 {
        return None;
    }
    poll_fn(|cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits for an end that has to come within `limit`, and a little slack.
pub(super) async fn ends_by<T>(
    context: &Context<'_>,
    step: &str,
    limit: Duration,
    what: impl Future<Output = T>,
) -> Checked<T> {
    let began = Instant::now();
    let limit = limit + slack(context);
    let value = context
        .within(context.profile().patience() * 2, step, what)
        .await?;
    check(
        began.elapsed() <= limit,
        step,
        format!("an end within {limit:?}"),
        format!("an end after {:?}", began.elapsed()),
    )?;
    Ok(value)
}

/// A sink that finds its credentials in the fixture's source.
pub(super) fn sourced(context: &Context<'_>, destination: &Destination) -> Checked<Arc<dyn Sink>> {
    let options = context.fixture().sourced(destination);
    let options = options
        .ok_or_else(|| Failure::of_kit("a source of credentials", "the fixture has no options"))?;
    context.build_with(options)
}

/// Puts other credentials into the fixture's source, and says whose they are.
pub(super) async fn replace_credentials(context: &Context<'_>) -> Checked<String> {
    context.step("replace the credentials");
    let replaced = context.fixture().replace_credentials().await;
    replaced.map_err(|error| Failure::of_kit("replace the credentials", error.to_string()))
}

/// Which of the messages that are stored is this envelope's.
pub(super) fn find<'m>(
    step: &str,
    stored: &'m [StoredMessage],
    envelope: &Envelope,
) -> Checked<&'m StoredMessage> {
    let id = envelope.id().to_string();
    let found = stored.iter().find(|message| message.envelope_id() == id);
    found.ok_or_else(|| Failure::new(step, "the message is there", "it is not"))
}
