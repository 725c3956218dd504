//! Isolation and fairness: deliveries, destinations and tenants beside each other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Answer, Envelope, ErrorClass, Outcome, Sink};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::steps::{
    all_succeeded, check_class, deliver_control, deliver_together, failed, find, hold_all,
    succeeded, unrelated,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Clock, Context, Destination, Duplicates, Failure, Fault, FaultKind,
    Hold, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        results_never_cross_callers,
        "each of many concurrent callers gets the receipt of its own message"
    )
    .needs_capabilities(&[Capability::Receipt]),
    case!(
        in_flight_bound_respected,
        "no more requests are open at once than configured, and what waits is sent later"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings])
    .needs_faults(&[FaultKind::HoldRequest, FaultKind::Requests]),
    case!(
        slow_destination_does_not_block_another,
        "a destination that does not answer holds up no other of the same host"
    )
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        a_held_delivery_does_not_block_an_unrelated_one,
        "a delivery without a reply holds up no delivery of another source and tenant"
    )
    .needs_capabilities(&[Capability::ParallelRequests])
    .needs_faults(&[FaultKind::HoldRequest])
    .otherwise(|context| Box::pin(a_held_delivery_is_only_waited_for(context))),
    case!(
        tenant_fairness_under_flood,
        "a tenant that floods the sink does not put another at the end of the queue"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings])
    .needs_faults(&[FaultKind::HoldRequest, FaultKind::Requests]),
    case!(
        tenant_ceiling_refuses_the_tenant,
        "a tenant over its ceiling is asked to wait, and nothing of it is sent"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings])
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        tenant_ceiling_leaves_room_for_others,
        "a tenant at its ceiling takes no room from another"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings])
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        outage_memory_bounded,
        "while the destination is away, callers over the ceiling are told to wait at once"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Ceilings])
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        outage_ends_in_errors_and_then_in_none,
        "while the destination is away every caller gets an error, and afterwards none"
    )
    .needs_faults(&[FaultKind::LoseRequest]),
    case!(
        caller_runtime_may_die,
        "a sink that was first used on a runtime that is gone recovers on another"
    ),
];

/// A sink with this option that waits for a reply longer than any watch.
fn patient(
    context: &Context<'_>,
    destination: &Destination,
    option: &str,
    value: usize,
) -> Checked<Arc<dyn Sink>> {
    let mut options = context.fixture().options(destination);
    options[option] = value.into();
    options["timeout_ms"] = 60_000.into();
    context.build_with(options)
}

async fn results_never_cross_callers(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..24)
        .map(|index| context.envelope_from(Some("quay-7"), &format!("berth-{}", index % 5), "x"))
        .collect();
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    let stored = context.quiet(&destination).await?;
    for (envelope, answer) in envelopes.iter().zip(answers) {
        let receipt = succeeded("one of many callers", answer)?;
        let message = find("one of many callers", &stored, envelope)?;
        check_eq("its receipt", &message.provider_id, &receipt.provider_id)?;
    }
    Ok(())
}

async fn in_flight_bound_respected(context: &Context<'_>) -> Checked {
    const BOUND: usize = 2;
    let destination = context.destination().await?;
    let sink = patient(context, &destination, "batch_max_inflight", BOUND)?;
    let hold = hold_all(context, &destination)?;
    let batching = context.profile().batching.as_ref();
    let entries = batching.map_or(1, |batching| batching.max_entries.min(20));
    let envelopes = unrelated(context, "quay-7", entries * (BOUND + 2));
    let mut all = pin!(context.deliver_all(&*sink, &envelopes));
    context.arrivals(&hold, BOUND, &mut all).await?;
    context.stays_open("while all is held", &mut all).await?;
    let requests = context.faults()?.requests(&destination).len();
    check_eq("open requests", &BOUND, &requests)?;
    hold.release();
    let patience = context.profile().patience();
    let answers = context.within(patience, "the answers", all).await?;
    all_succeeded("what waited", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn slow_destination_does_not_block_another(context: &Context<'_>) -> Checked {
    let slow = context.named_destination("hooks-slow").await?;
    let other = context.named_destination("hooks-other").await?;
    let to_slow = context.build(&slow)?;
    let to_other = context.build(&other)?;
    let hold = hold_all(context, &slow)?;
    let envelope = context.envelope();
    let mut held = pin!(context.deliver(&*to_slow, &envelope));
    context.arrivals(&hold, 1, &mut held).await?;
    for _ in 0..3 {
        let step = "a delivery beside a slow destination";
        deliver_control(context, &*to_other, step).await?;
    }
    hold.release();
    let patience = context.profile().patience();
    let answer = context.within(patience, "the slow one", held).await?;
    succeeded("the slow one", answer).map(drop)
}

async fn a_held_delivery_does_not_block_an_unrelated_one(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldRequest(hold.gate()))?;
    let envelope = context.envelope();
    let mut held = pin!(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut held).await?;
    let patience = context.profile().patience();
    for index in 0..3 {
        let other = context.envelope_from(Some("quay-8"), &format!("depot-{index}"), "x");
        let step = "a delivery beside one that is held";
        let delivery = context.deliver(&*sink, &other);
        succeeded(step, context.within(patience, step, delivery).await?)?;
    }
    hold.release();
    let answer = context.within(patience, "the held one", held).await?;
    succeeded("the held one", answer)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Where requests take turns, what waits behind a held one is delivered after it.
async fn a_held_delivery_is_only_waited_for(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldRequest(hold.gate()))?;
    let envelope = context.envelope();
    let mut held = pin!(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut held).await?;
    let others = unrelated(context, "quay-8", 3);
    let mut behind = pin!(context.deliver_all(&*sink, &others));
    context
        .stays_open("deliveries behind one that is held", &mut behind)
        .await?;
    hold.release();
    let patience = context.profile().patience();
    let all = async { tokio::join!(held, behind) };
    let (answer, answers) = context.within(patience, "the answers", all).await?;
    succeeded("the held one", answer)?;
    all_succeeded("deliveries behind one that was held", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn tenant_fairness_under_flood(context: &Context<'_>) -> Checked {
    const SMALL: usize = 3;
    let destination = context.destination().await?;
    // One request at a time: what waits behind it leaves in the order that the sink chose.
    let sink = context.build_set(&destination, "batch_max_inflight", 1)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldRequest(hold.gate()))?;
    let batching = context.profile().batching.as_ref();
    let entries = batching.map_or(1, |batching| batching.max_entries.min(20));
    let opener = context.envelope_from(Some("quay-0"), "opener", "x");
    let flood = unrelated(context, "quay-flood", entries * 3);
    let small = unrelated(context, "quay-small", SMALL);
    let mut first = pin!(context.deliver(&*sink, &opener));
    context.arrivals(&hold, 1, &mut first).await?;
    let waiting: Vec<Envelope> = flood.into_iter().chain(small.iter().cloned()).collect();
    let rest = context.deliver_all(&*sink, &waiting);
    // All of them wait by the time that the opener goes on.
    let all = async { tokio::join!(first, rest, async { hold.release() }) };
    let patience = context.profile().patience();
    let (answer, answers, ()) = context.within(patience, "the answers", all).await?;
    succeeded("the opener", answer)?;
    all_succeeded("the flood and the small tenant", answers)?;
    let sent: Vec<String> = context
        .faults()?
        .requests(&destination)
        .into_iter()
        .flat_map(|request| request.envelopes)
        .skip(1)
        .collect();
    let ids: Vec<String> = small
        .iter()
        .map(|envelope| envelope.id().to_string())
        .collect();
    let last = sent.iter().rposition(|id| ids.contains(id));
    // Alone it would be last at SMALL; three times that, and a request that is filled up.
    let bound = 3 * SMALL + entries;
    check(
        last.is_some_and(|last| last < bound),
        "the small tenant's last message",
        format!("among the first {bound} that leave"),
        format!("{last:?} of {}", sent.len()),
    )?;
    context.judge(&destination, Duplicates::Forbidden).await
}

/// The delivery is refused for want of room.
fn check_no_room(step: &str, answer: Answer) -> Checked {
    let error = failed(step, answer)?;
    check_class(step, ErrorClass::RetryAfter(Duration::ZERO), &error)?;
    check_eq(step, &Outcome::NotStored, &error.outcome())
}

async fn tenant_ceiling_refuses_the_tenant(context: &Context<'_>) -> Checked {
    ceiling(context, "batch_queue_tenant_max").await
}

async fn outage_memory_bounded(context: &Context<'_>) -> Checked {
    ceiling(context, "batch_queue_max").await
}

/// Fills the sink up to a ceiling of this option, and goes over it.
async fn ceiling(context: &Context<'_>, option: &str) -> Checked {
    const ROOM: usize = 4;
    let destination = context.destination().await?;
    let sink = patient(context, &destination, option, ROOM)?;
    let hold = hold_all(context, &destination)?;
    let fitting = unrelated(context, "quay-7", ROOM);
    let over = unrelated(context, "quay-7", 3);
    let mut all = Box::pin(context.deliver_all(&*sink, &fitting));
    context.arrivals(&hold, 1, &mut all.as_mut()).await?;
    for envelope in &over {
        let step = format!("a delivery over {option}");
        let delivery = timeout(
            context.profile().margin(),
            context.deliver(&*sink, envelope),
        );
        let answer = delivery
            .await
            .map_err(|_| Failure::new(&*step, "a refusal at once", "it waits"))?;
        check_no_room(&step, answer)?;
    }
    hold.release();
    context.faults()?.clear();
    let patience = context.profile().patience();
    let answers = context.within(patience, "what found room", all).await?;
    all_succeeded("what found room", answers)?;
    let again = deliver_together(context, &*sink, &over).await?;
    all_succeeded("what was refused, later", again)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn tenant_ceiling_leaves_room_for_others(context: &Context<'_>) -> Checked {
    const ROOM: usize = 4;
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "batch_queue_tenant_max", ROOM)?;
    let hold = hold_all(context, &destination)?;
    let greedy = unrelated(context, "quay-7", ROOM);
    let others = unrelated(context, "quay-8", ROOM);
    let mut greedy = Box::pin(context.deliver_all(&*sink, &greedy));
    context.arrivals(&hold, 1, &mut greedy.as_mut()).await?;
    let others = context.deliver_all(&*sink, &others);
    context.faults()?.clear();
    // All of them wait by the time that the first goes on.
    let all = async { tokio::join!(greedy, others, async { hold.release() }) };
    let patience = context.profile().patience();
    let (greedy, others, ()) = context.within(patience, "the answers", all).await?;
    all_succeeded("a tenant at its ceiling", greedy)?;
    all_succeeded("a tenant beside one at its ceiling", others)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn outage_ends_in_errors_and_then_in_none(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play_always(&destination, Fault::LoseRequest)?;
    let envelopes = unrelated(context, "quay-7", 12);
    for answer in deliver_together(context, &*sink, &envelopes).await? {
        let step = "a delivery during an outage";
        check_class(step, ErrorClass::Transient, &failed(step, answer)?)?;
    }
    context.faults()?.clear();
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    all_succeeded("a delivery after an outage", answers)?;
    context.judge(&destination, Duplicates::OnePerAttempt).await
}

async fn caller_runtime_may_die(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let first = {
        let (sink, envelope) = (Arc::clone(&sink), context.envelope());
        let (ctx, clock) = (context.first_attempt(), context.profile().clock);
        let patience = context.profile().patience();
        // A blocking task keeps a paused clock from running on meanwhile.
        tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .start_paused(clock == Clock::Paused)
                .build()
                .map_err(|error| Failure::of_kit("a runtime", error.to_string()))?;
            let answer = runtime.block_on(async {
                let answer = timeout(patience, sink.deliver(&envelope, &ctx)).await;
                answer.map_err(|_| Failure::new("the first runtime", "an answer", "none"))
            });
            runtime.shutdown_background();
            answer
        })
    };
    context.step("deliver on a runtime that ends");
    let first = first
        .await
        .map_err(|error| Failure::of_kit("a runtime", error.to_string()))?;
    succeeded("the first runtime", first?)?;
    let patience = context.profile().patience();
    let envelope = context.envelope();
    let delivery = context.deliver(&*sink, &envelope);
    let step = "the first delivery on the second runtime";
    if let Err(error) = context.within(patience, step, delivery).await? {
        // A connection of the first runtime may have ended with it.
        check_class(step, ErrorClass::Transient, &error)?;
    }
    let step = "the second delivery on the second runtime";
    for _ in 0..2 {
        deliver_control(context, &*sink, step).await?;
    }
    Ok(())
}
