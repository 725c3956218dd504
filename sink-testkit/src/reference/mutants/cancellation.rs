//! Mutants of cancellation.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Answer, DeliveryContext, DrainReport, Envelope, ErrorClass, Guarantees, Outcome, Receipt, Sink,
    SinkError,
};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::tools::{answering, calling, delivering, remade};
use super::{Mutant, Seam};
use crate::reference::WireError;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "EagerStart",
        "begins a delivery before anybody polls it",
        "cancel_before_poll_sends_nothing",
        "phantom",
        Seam::Sink(|inner, _| Arc::new(Eager(inner))),
    ),
    Mutant::new(
        "LeakedPermit",
        "keeps the place of a delivery that was dropped",
        "cancel_at_every_await_leaves_sink_usable",
        "the delivery after one was dropped at poll 1: expected an end within",
        Seam::Sink(|inner, _| {
            let permits = Arc::new(Semaphore::new(1));
            delivering(inner, move |inner, envelope, ctx| {
                let permits = Arc::clone(&permits);
                Box::pin(async move {
                    if let Ok(permit) = permits.acquire().await {
                        permit.forget();
                    }
                    let answer = inner.deliver(&envelope, &ctx).await;
                    permits.add_permits(1);
                    answer
                })
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "SendsAgainWhenDropped",
        "sends what was dropped once more, to be sure",
        "cancel_at_every_await_leaves_sink_usable",
        "duplicate",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let mut again =
                        Again(Some((Arc::clone(&inner), envelope.clone(), ctx.clone())));
                    let answer = inner.deliver(&envelope, &ctx).await;
                    // One more suspension, at which it is stored already.
                    tokio::task::yield_now().await;
                    again.0 = None;
                    answer
                })
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "HalfWrittenFrame",
        "leaves its connection unusable when a request is dropped",
        "cancel_while_the_request_is_held",
        "hold: expected no answer while the destination holds the request; observed an answer",
        Seam::Wire(|inner, _| {
            let is_writing = Arc::new(AtomicBool::new(false));
            calling(inner, move |inner, request| {
                let is_writing = Arc::clone(&is_writing);
                Box::pin(async move {
                    if is_writing.swap(true, Ordering::SeqCst) {
                        return Err(WireError::Lost);
                    }
                    let reply = inner.call(request).await;
                    is_writing.store(false, Ordering::SeqCst);
                    reply
                })
            })
        }),
    )
    .in_mode("ordered-single"),
    Mutant::new(
        "UnreadReply",
        "keeps waiting for the reply of a request that was dropped",
        "cancel_while_the_reply_is_held",
        "the delivery after a cancellation: expected Ok",
        Seam::Wire(|inner, _| {
            let owed = Arc::new(AtomicUsize::new(0));
            calling(inner, move |inner, request| {
                let owed = Arc::clone(&owed);
                Box::pin(async move {
                    if owed.fetch_add(1, Ordering::SeqCst) > 0 {
                        return Err(WireError::Lost);
                    }
                    let reply = inner.call(request).await;
                    owed.fetch_sub(1, Ordering::SeqCst);
                    reply
                })
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "LeaderOwnsBatch",
        "lets the first caller of a batch send it for the others",
        "cancel_one_batched_caller_keeps_neighbours",
        "the neighbours of callers that left: expected an end within",
        Seam::Sink(|inner, _| {
            let waiting: Arc<Mutex<Vec<Waiting>>> = Arc::default();
            delivering(inner, move |inner, envelope, ctx| {
                let waiting = Arc::clone(&waiting);
                Box::pin(async move {
                    if ctx.is_direct() {
                        return inner.deliver(&envelope, &ctx).await;
                    }
                    let (reply, answer) = oneshot::channel();
                    let is_leader = {
                        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                        waiting.push((envelope, ctx, reply));
                        waiting.len() == 1
                    };
                    if is_leader {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        let batch = {
                            let mut waiting =
                                waiting.lock().unwrap_or_else(PoisonError::into_inner);
                            std::mem::take(&mut *waiting)
                        };
                        let sent = batch.into_iter().map(|(envelope, ctx, reply)| async {
                            let (envelope, ctx) = (envelope, ctx);
                            let _ = reply.send(inner.deliver(&envelope, &ctx).await);
                        });
                        futures_util::future::join_all(sent).await;
                    }
                    match answer.await {
                        Ok(answer) => answer,
                        Err(_) => Err(spread()),
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "CancelSpreads",
        "fails every delivery that runs when one is dropped",
        "cancel_during_the_request_keeps_neighbours",
        "the neighbours of callers that left: expected Ok",
        Seam::Sink(|inner, _| {
            let has_left = Arc::new(AtomicBool::new(false));
            delivering(inner, move |inner, envelope, ctx| {
                let has_left = Arc::clone(&has_left);
                Box::pin(async move {
                    let mut leaving = Leaving(Some(Arc::clone(&has_left)));
                    let answer = inner.deliver(&envelope, &ctx).await;
                    leaving.0 = None;
                    match has_left.load(Ordering::SeqCst) {
                        true => Err(spread()),
                        false => answer,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "StuckBatchSlot",
        "counts a delivery that was dropped while it waited for ever",
        "cancel_releases_capacity",
        "round 1, with room for 2: expected the delivery waits",
        Seam::Sink(|inner, parts| {
            let room = parts
                .config
                .batching
                .map(|settings| settings.queue_max_entries);
            let used = Arc::new(AtomicUsize::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let used = Arc::clone(&used);
                Box::pin(async move {
                    if room.is_some_and(|room| used.load(Ordering::SeqCst) >= room) {
                        let pause = Duration::from_millis(1);
                        return Err(dispatch_api::QueueFull::Entries.into_error(pause));
                    }
                    used.fetch_add(1, Ordering::SeqCst);
                    let answer = inner.deliver(&envelope, &ctx).await;
                    used.fetch_sub(1, Ordering::SeqCst);
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "ChecksTooLate",
        "sends a message whose deadline is over, and then says so",
        "already_cancelled_context_sends_nothing",
        "leaked refusal",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let Some(deadline) = ctx.deadline() else {
                        return inner.deliver(&envelope, &ctx).await;
                    };
                    if deadline > Instant::now() {
                        return inner.deliver(&envelope, &ctx).await;
                    }
                    let late = Instant::now() + Duration::from_secs(5);
                    let _ = inner.deliver(&envelope, &ctx.with_deadline(late)).await;
                    Err(SinkError::transient(
                        Outcome::NotStored,
                        "DeadlinePassed",
                        "too late",
                    ))
                })
            })
        }),
    ),
    Mutant::new(
        "CancelIsPermanent",
        "gives a message up that ran out of time",
        "a_deadline_during_the_request_is_not_a_refusal",
        "the deadline: expected \"transient\"; observed \"permanent\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "Timeout" => remade(&error, ErrorClass::Permanent, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "TimeoutIsNotStored",
        "says of a message that ran out of time on the way that it is not stored",
        "a_deadline_during_the_request_is_not_a_refusal",
        "the deadline: expected Unknown; observed NotStored",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "Timeout" => remade(&error, error.class(), Outcome::NotStored),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "DeadlineSpreads",
        "fails every delivery that runs when one runs out of time",
        "one_callers_deadline_leaves_its_neighbours",
        "the neighbours of a hasty caller: expected Ok",
        Seam::Sink(|inner, _| {
            let is_over = Arc::new(AtomicBool::new(false));
            delivering(inner, move |inner, envelope, ctx| {
                let is_over = Arc::clone(&is_over);
                Box::pin(async move {
                    let before = is_over.load(Ordering::SeqCst);
                    let answer = inner.deliver(&envelope, &ctx).await;
                    if answer
                        .as_ref()
                        .is_err_and(|error| error.code() == "Timeout")
                    {
                        is_over.store(true, Ordering::SeqCst);
                        return answer;
                    }
                    match !before && is_over.load(Ordering::SeqCst) {
                        true => Err(spread()),
                        false => answer,
                    }
                })
            })
        }),
    ),
];

type Waiting = (Envelope, DeliveryContext, oneshot::Sender<Answer>);

fn spread() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "Cancelled",
        "another delivery was dropped",
    )
}

/// Notes that a delivery was dropped.
struct Leaving(Option<Arc<AtomicBool>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(has_left) = &self.0 {
            has_left.store(true, Ordering::SeqCst);
        }
    }
}

/// Delivers when it is dropped.
struct Again(Option<(Arc<dyn Sink>, Envelope, DeliveryContext)>);

impl Drop for Again {
    fn drop(&mut self) {
        if let Some((inner, envelope, ctx)) = self.0.take() {
            // It may be dropped by a panic, which has to stay the only one.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { inner.deliver(&envelope, &ctx).await });
            }
        }
    }
}

/// Begins with the call.
struct Eager(Arc<dyn Sink>);

impl fmt::Debug for Eager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl Sink for Eager {
    fn deliver<'s, 'e, 'c, 'f>(
        &'s self,
        envelope: &'e Envelope,
        ctx: &'c DeliveryContext,
    ) -> Pin<Box<dyn Future<Output = Result<Receipt, SinkError>> + Send + 'f>>
    where
        's: 'f,
        'e: 'f,
        'c: 'f,
        Self: 'f,
    {
        let (inner, envelope, ctx) = (Arc::clone(&self.0), envelope.clone(), ctx.clone());
        let begun = tokio::spawn(async move { inner.deliver(&envelope, &ctx).await });
        Box::pin(async move {
            match begun.await {
                Ok(answer) => answer,
                Err(_) => Err(spread()),
            }
        })
    }

    fn durable(&self) -> bool {
        self.0.durable()
    }

    fn inline_max_bytes(&self) -> Option<std::num::NonZeroUsize> {
        self.0.inline_max_bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    fn admission(&self) -> dispatch_api::Admission {
        self.0.admission()
    }

    fn describe(&self) -> Option<dispatch_api::Description> {
        self.0.describe()
    }

    fn flush(&self) {
        self.0.flush();
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.0.drain(deadline).await
    }
}
