//! Acceptance: what `Ok` means, and that nothing is lost, added or taken for another.

use std::pin::pin;
use std::sync::Arc;

use dispatch_api::{Envelope, ErrorClass, Outcome};
use tokio::runtime::Builder;

use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Clock, Context, Duplicates, Failure, Fault, FaultKind, Hold, check,
    check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        deliver_then_observed_exactly_once,
        "what was acknowledged arrives, once, and nothing else does"
    ),
    case!(
        ok_only_after_the_destination_confirmed,
        "a durable sink does not answer while the destination has not"
    )
    .needs_capabilities(&[Capability::Durable])
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        a_burst_of_callers_loses_nothing,
        "64 tasks that deliver through one sink at once get true answers"
    ),
    case!(
        a_refused_message_never_lands,
        "a message that the sink refuses is not there, neither at once nor later"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        nothing_lands_on_another_destination,
        "a destination whose name begins like another's gets nothing of it"
    ),
    case!(
        equal_bodies_stay_distinct,
        "two envelopes with equal bodies are two messages, also within the window"
    ),
    case!(
        a_repeat_is_recognised_as_declared,
        "the same envelope delivered twice is one message where repeats are recognised"
    )
    .needs_capabilities(&[Capability::Dedup])
    .otherwise(|context| Box::pin(a_repeat_is_stored_again(context))),
    case!(
        a_lost_response_is_transient_and_unknown,
        "a reply that is lost after the message was stored leaves the outcome unknown"
    )
    .needs_faults(&[FaultKind::LoseReply]),
    case!(
        a_lost_response_then_a_retry_converges,
        "the retry after a lost reply succeeds, and stores no second copy where repeats are recognised"
    )
    .needs_faults(&[FaultKind::LoseReply]),
    case!(
        what_was_acknowledged_outlives_its_caller,
        "what was acknowledged is stored although the caller ends in that moment"
    )
    .needs_capabilities(&[Capability::Durable]),
    case!(
        durability_is_said_as_declared,
        "the sink calls itself durable exactly where its guarantees and its profile do"
    ),
];

async fn deliver_then_observed_exactly_once(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for _ in 0..25 {
        let envelope = context.envelope();
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.wait_for(&destination, 25).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn ok_only_after_the_destination_confirmed(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    // The answer has to wait for the reply, and not for a time-out that is shorter.
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    let envelope = context.envelope();
    context.faults()?.clear();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let mut delivery = pin!(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut delivery).await?;
    context
        .stays_open("while the reply is held", &mut delivery)
        .await?;
    hold.release();
    let patience = context.profile().patience();
    let answer = context
        .within(patience, "after the release", delivery)
        .await?;
    check(answer.is_ok(), "after the release", "Ok", "an error")?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_burst_of_callers_loses_nothing(context: &Context<'_>) -> Checked {
    const TASKS: usize = 64;
    const EACH: usize = 2;
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.step("64 tasks deliver");
    let sink = &sink;
    let tasks = (0..TASKS).map(|task| async move {
        let tenant = format!("tenant-{}", task % 8);
        for _ in 0..EACH {
            let envelope = context.envelope_from(Some(&tenant), "harbor", "{}");
            // What fails is missing among those that were acknowledged.
            let _ = context.deliver(&**sink, &envelope).await;
        }
    });
    let all = futures_util::future::join_all(tasks);
    let patience = context.profile().patience();
    context.within(patience, "64 tasks deliver", all).await?;
    // So few are no reason to refuse any for want of room.
    check_eq("acknowledged", &(TASKS * EACH), &context.acknowledged())?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_refused_message_never_lands(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "max_message_bytes", 4_096)?;
    let before = context.envelope();
    context.deliver_ok(&*sink, &before).await?;
    let large = context.envelope_of(vec![b'x'; 4_096]);
    let error = context.deliver_err(&*sink, &large).await?;
    check_eq("the refusal", &ErrorClass::Permanent, &error.class())?;
    check_eq("the refusal", &Outcome::NotStored, &error.outcome())?;
    let after = context.envelope();
    context.deliver_ok(&*sink, &after).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn nothing_lands_on_another_destination(context: &Context<'_>) -> Checked {
    let short = context.named_destination("hooks").await?;
    let long = context.named_destination("hooks-dead").await?;
    let sink = context.build(&short)?;
    let other = context.build(&long)?;
    let to_other = context.envelope();
    let sent = other.deliver(&to_other, &context.first_attempt()).await;
    check(sent.is_ok(), "deliver to hooks-dead", "Ok", "an error")?;
    for _ in 0..3 {
        let envelope = context.envelope();
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.wait_for(&short, 3).await?;
    let elsewhere = context.quiet(&long).await?;
    check_eq("messages at hooks-dead", &1, &elsewhere.len())?;
    check_eq(
        "the message at hooks-dead",
        &to_other.id().to_string(),
        &elsewhere[0].envelope_id(),
    )?;
    context.judge(&short, Duplicates::Forbidden).await
}

async fn equal_bodies_stay_distinct(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for _ in 0..2 {
        let envelope = context.envelope_of("the same");
        context.deliver_ok(&*sink, &envelope).await?;
    }
    let stored = context.quiet(&destination).await?;
    check_eq("messages with equal bodies", &2, &stored.len())
}

async fn deliver_twice(context: &Context<'_>) -> Checked<usize> {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    let second = context.deliver(&*sink, &envelope).await;
    let shown = second.map_err(|error| error.code().to_owned());
    check(
        shown.is_ok(),
        "the second delivery",
        "Ok",
        format!("{:?}", shown.err()),
    )?;
    Ok(context.quiet(&destination).await?.len())
}

async fn a_repeat_is_recognised_as_declared(context: &Context<'_>) -> Checked {
    let copies = deliver_twice(context).await?;
    check_eq("copies of one envelope", &1, &copies)
}

async fn a_repeat_is_stored_again(context: &Context<'_>) -> Checked {
    let copies = deliver_twice(context).await?;
    check_eq("copies of one envelope without deduplication", &2, &copies)
}

async fn a_lost_response_is_transient_and_unknown(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let before = context.faults()?.played();
    context.play(&destination, Fault::LoseReply)?;
    let envelope = context.envelope();
    let error = context.deliver_err(&*sink, &envelope).await?;
    check_eq("class", &ErrorClass::Transient, &error.class())?;
    check_eq("outcome", &Outcome::Unknown, &error.outcome())?;
    check_eq("faults played", &1, &(context.faults()?.played() - before))?;
    // Without the message there, it would have been the request that was lost.
    let stored = context.wait_for(&destination, 1).await?;
    check_eq("recovered", &1, &context.recovered(&stored))?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_lost_response_then_a_retry_converges(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink: Arc<_> = context.build(&destination)?;
    context.play(&destination, Fault::LoseReply)?;
    let envelope = context.envelope();
    context.deliver_err(&*sink, &envelope).await?;
    context.deliver_ok(&*sink, &envelope).await?;
    let duplicates = match context.profile().has(Capability::Dedup) {
        true => Duplicates::Forbidden,
        false => Duplicates::OnePerAttempt,
    };
    context.judge(&destination, duplicates).await
}

/// Its runtime ends with the last answer, and with it whatever else the sink had begun.
async fn what_was_acknowledged_outlives_its_caller(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..5).map(|_| context.envelope()).collect();
    let ctx = context.first_attempt();
    let is_paused = context.profile().clock == Clock::Paused;
    let caller = move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(is_paused)
            .build()?;
        let answers = runtime.block_on(async {
            let deliveries = envelopes
                .iter()
                .map(|envelope| sink.deliver(envelope, &ctx));
            futures_util::future::join_all(deliveries).await
        });
        drop(sink);
        runtime.shutdown_background();
        Ok::<_, std::io::Error>((envelopes, answers))
    };
    context.step("a caller on a thread of its own");
    let ended = tokio::task::spawn_blocking(caller).await;
    let ended =
        ended.map_err(|_| Failure::new("deliver on another thread", "an end", "a panic"))?;
    let (envelopes, answers) =
        ended.map_err(|error| Failure::of_kit("build a runtime", error.to_string()))?;
    for (envelope, answer) in envelopes.iter().zip(&answers) {
        context.record(envelope, answer);
        let code = answer.as_ref().err().map(|error| error.code().to_owned());
        check_eq("deliver on another thread", &None, &code)?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn durability_is_said_as_declared(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let declared = context.profile().guarantees.durable;
    check_eq(
        "guarantees().durable",
        &declared,
        &sink.guarantees().durable,
    )?;
    check_eq("durable()", &declared, &sink.durable())
}
