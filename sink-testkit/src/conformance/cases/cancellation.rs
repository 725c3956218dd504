//! Cancellation: deliveries that are dropped, or out of time.

use std::time::Duration;

use dispatch_api::{Answer, Envelope, ErrorClass, Outcome};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::steps::{
    all_succeeded, check_class, check_unknown, deliver_control, ends_by, failed, few, hold_all,
    poll_at_most, poll_once, start, unrelated,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, Failure, FaultKind, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        cancel_before_poll_sends_nothing,
        "a delivery that is never polled does nothing"
    ),
    case!(
        cancel_at_every_await_leaves_sink_usable,
        "wherever a delivery is dropped, it is stored once or not at all, and the next succeeds"
    ),
    case!(
        cancel_while_the_request_is_held,
        "a delivery that is dropped while its request is on the way leaves the sink usable"
    )
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        cancel_while_the_reply_is_held,
        "a delivery that is dropped while its reply is on the way leaves the sink usable"
    )
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        cancel_one_batched_caller_keeps_neighbours,
        "callers that leave a batch before it is sent take nobody along"
    )
    .needs_capabilities(&[Capability::Batching]),
    case!(
        cancel_during_the_request_keeps_neighbours,
        "callers that leave a batch while it is sent take nobody along"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        cancel_releases_capacity,
        "a waiting delivery that is dropped makes room for another"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings]),
    case!(
        already_cancelled_context_sends_nothing,
        "a delivery whose deadline is over is refused at once, and not sent"
    ),
    case!(
        a_deadline_during_the_request_is_not_a_refusal,
        "a delivery that runs out of time while its request is on the way has an unknown outcome"
    )
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        one_callers_deadline_leaves_its_neighbours,
        "a caller of a batch that runs out of time takes nobody along"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::HoldRequest]),
];

async fn cancel_before_poll_sends_nothing(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let ctx = context.first_attempt();
    for envelope in few(context) {
        drop(sink.deliver(&envelope, &ctx));
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn cancel_at_every_await_leaves_sink_usable(context: &Context<'_>) -> Checked {
    const AT_MOST: usize = 64;
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    // One that waits for nothing may be over at its first poll.
    if context.profile().has(Capability::Durable) {
        context.plan("a delivery is dropped half-way");
    }
    for polls in 0..AT_MOST {
        let envelope = context.envelope();
        context.step(format!("drop a delivery after {polls} polls"));
        let delivery = context.deliver(&*sink, &envelope);
        let patience = context.profile().patience();
        let answer = context
            .within(
                patience,
                "a delivery to be dropped",
                poll_at_most(polls, delivery),
            )
            .await?;
        let step = format!("the delivery after one was dropped at poll {polls}");
        deliver_control(context, &*sink, &step).await?;
        match answer {
            Some(_) => {
                // It went on to its end: every suspension point was met.
                return context.judge(&destination, Duplicates::Forbidden).await;
            }
            None if polls > 0 => context.happened("a delivery is dropped half-way"),
            None => {}
        }
    }
    Err(Failure::new(
        "polls",
        format!("a delivery ends within {AT_MOST} polls"),
        "it is still open",
    ))
}

async fn cancel_while_the_request_is_held(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = hold_all(context, &destination)?;
    // Behind a held request nothing arrives where requests take turns.
    let rounds = match context.profile().has(Capability::ParallelRequests) {
        true => 3,
        false => 1,
    };
    for round in 0..rounds {
        let envelope = context.envelope_from(Some("quay-7"), &format!("berth-{round}"), "x");
        let mut delivery = Box::pin(context.deliver(&*sink, &envelope));
        context
            .arrivals(&hold, round + 1, &mut delivery.as_mut())
            .await?;
    }
    context.faults()?.clear();
    hold.release();
    deliver_control(context, &*sink, "the delivery after a cancellation").await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn cancel_while_the_reply_is_held(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = crate::conformance::Hold::new();
    context.play(
        &destination,
        crate::conformance::Fault::HoldReply(hold.gate()),
    )?;
    let envelope = context.envelope();
    let mut delivery = Box::pin(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut delivery.as_mut()).await?;
    drop(delivery);
    hold.release();
    let step = "the delivery after a cancellation";
    for _ in 0..3 {
        deliver_control(context, &*sink, step).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Drops the first and every third of them.
fn leave<T>(calls: Vec<T>) -> Vec<T> {
    let (left, stay): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .enumerate()
        .partition(|(index, _)| index % 3 == 0);
    drop(left);
    stay.into_iter().map(|(_, call)| call).collect()
}

/// Waits for callers that stayed.
async fn neighbours(
    context: &Context<'_>,
    calls: Vec<impl Future<Output = Answer>>,
) -> Checked<Vec<Answer>> {
    let patience = context.profile().patience();
    let step = "the neighbours of callers that left";
    context.within(patience, step, join_all(calls)).await
}

async fn cancel_one_batched_caller_keeps_neighbours(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes = few(context);
    let calls = envelopes.iter();
    let mut calls: Vec<_> = calls
        .map(|envelope| Box::pin(context.deliver(&*sink, envelope)))
        .collect();
    start("the first poll", &mut calls).await?;
    let answers = neighbours(context, leave(calls)).await?;
    all_succeeded("the neighbours of callers that left", answers)?;
    deliver_control(context, &*sink, "the delivery after them").await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn cancel_during_the_request_keeps_neighbours(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = hold_all(context, &destination)?;
    let envelopes = few(context);
    let calls = envelopes.iter();
    let mut calls: Vec<_> = calls
        .map(|envelope| Box::pin(context.deliver(&*sink, envelope)))
        .collect();
    start("the first poll", &mut calls).await?;
    let patience = context.profile().patience();
    context
        .within(patience, "wait for the request", hold.arrivals(1))
        .await?;
    let stay = leave(calls);
    hold.release();
    context.faults()?.clear();
    let answers = neighbours(context, stay).await?;
    all_succeeded("the neighbours of callers that left", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn cancel_releases_capacity(context: &Context<'_>) -> Checked {
    const ROOM: usize = 2;
    let destination = context.destination().await?;
    let mut options = context.fixture().options(&destination);
    options["batch_queue_max"] = ROOM.into();
    // What waits is still waiting when it is dropped.
    options["batch_linger_ms"] = 2_000.into();
    let sink = context.build_with(options)?;
    let envelopes: Vec<Envelope> = (0..ROOM).map(|_| context.envelope()).collect();
    for round in 0..3 {
        let calls = envelopes.iter();
        let mut calls: Vec<_> = calls
            .map(|envelope| Box::pin(context.deliver(&*sink, envelope)))
            .collect();
        for call in &mut calls {
            let answer = poll_once(call).await;
            let answer = answer.map(|answer| match answer {
                Ok(_) => "Ok".to_owned(),
                Err(error) => error.to_string(),
            });
            check(
                answer.is_none(),
                &format!("round {round}, with room for {ROOM}"),
                "the delivery waits",
                answer.unwrap_or_default(),
            )?;
        }
    }
    Ok(())
}

async fn already_cancelled_context_sends_nothing(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let now = Instant::now();
    for passed in [Duration::ZERO, Duration::from_millis(1)] {
        let deadline = now.checked_sub(passed).unwrap_or(now);
        for ctx in [
            context.first_attempt(),
            dispatch_api::DeliveryContext::direct(),
        ] {
            let ctx = ctx.with_deadline(deadline);
            let envelope = context.envelope();
            let delivery = context.deliver_in(&*sink, &envelope, &ctx);
            let step = "a deadline that is over";
            let answer = ends_by(context, step, Duration::ZERO, delivery).await?;
            let error = failed(step, answer)?;
            check_class(step, ErrorClass::Transient, &error)?;
            check_eq(step, &Outcome::NotStored, &error.outcome())?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_deadline_during_the_request_is_not_a_refusal(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    // What a first delivery does once, such as connecting, takes no part of the limit.
    deliver_control(context, &*sink, "a delivery before it").await?;
    let hold = hold_all(context, &destination)?;
    let limit = Duration::from_millis(300);
    let ctx = context
        .first_attempt()
        .with_deadline(Instant::now() + limit);
    let envelope = context.envelope();
    let delivery = context.deliver_in(&*sink, &envelope, &ctx);
    let step = "the deadline";
    let answer = ends_by(context, step, limit, delivery).await?;
    context.plan("the request was on the way");
    let arrived = tokio::time::timeout(Duration::ZERO, hold.arrivals(1)).await;
    if arrived.is_ok() {
        context.happened("the request was on the way");
    }
    check_unknown(step, &failed(step, answer)?)?;
    context.faults()?.clear();
    hold.release();
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn one_callers_deadline_leaves_its_neighbours(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = hold_all(context, &destination)?;
    let limit = Duration::from_millis(300);
    let hasty = context.envelope_from(Some("quay-7"), "berth-hasty", "x");
    let others = unrelated(context, "quay-7", 3);
    let ctx = context
        .first_attempt()
        .with_deadline(Instant::now() + limit);
    let mut neighbours = [Box::pin(context.deliver_all(&*sink, &others))];
    start("the first poll", &mut neighbours).await?;
    let [neighbours] = neighbours;
    let delivery = context.deliver_in(&*sink, &hasty, &ctx);
    let answer = ends_by(context, "the hasty caller", limit, delivery).await?;
    let error = failed("the hasty caller", answer)?;
    check_class("the hasty caller", ErrorClass::Transient, &error)?;
    context.faults()?.clear();
    hold.release();
    let patience = context.profile().patience();
    let answers = context
        .within(patience, "its neighbours", neighbours)
        .await?;
    all_succeeded("the neighbours of a hasty caller", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}
