//! Lifetime: closing, restarting, and two sinks side by side.

use std::pin::pin;
use std::time::Duration;

use dispatch_api::{Envelope, ErrorClass, Outcome};
use tokio::time::Instant;

use super::steps::{
    all_succeeded, deliver_control, deliver_together, few, find, replace_credentials, sourced,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, Failure, Fault, FaultKind, Hold, check,
    check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        a_drain_finishes_accepted_work,
        "every delivery that runs when the sink is drained gets its true answer"
    ),
    case!(
        a_drain_counts_what_it_finished,
        "the report of a drain adds up to the deliveries that were running"
    )
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        a_drain_ends_at_its_deadline,
        "a drain returns at its deadline although the destination never answers, and says how many are open"
    )
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        a_delivery_after_the_drain_is_refused_unsent,
        "after a drain a delivery fails at once as Transient, SinkClosed, and nothing is sent"
    ),
    case!(
        a_drain_may_be_repeated,
        "draining again, also at the same time, is harmless and finds nothing more"
    ),
    case!(
        a_drained_sink_leaves_another_alone,
        "draining one sink does not close another with the same destination"
    ),
    case!(
        a_restart_of_the_destination_needs_no_rebuild,
        "after the destination restarted the same sink delivers again"
    )
    .needs_capabilities(&[Capability::Restart]),
    case!(
        idle_connection_reconnects,
        "after the destination closed an idle connection a delivery succeeds, at the latest when it is tried again"
    )
    .needs_capabilities(&[Capability::IdleClose]),
    case!(
        credentials_rotate_without_rebuild,
        "when the source of credentials has others, deliveries go on with those alone"
    )
    .needs_capabilities(&[Capability::CredentialSource]),
    case!(
        two_sinks_share_no_destination,
        "two sinks of one host deliver each to its own destination"
    ),
];

async fn a_drain_finishes_accepted_work(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..12).map(|_| context.envelope()).collect();
    let deliveries = context.deliver_all(&*sink, &envelopes);
    let drained = async {
        // The deliveries are polled first, and so are accepted.
        tokio::task::yield_now().await;
        context.drain(&*sink).await
    };
    let patience = context.profile().patience();
    let both = async { tokio::join!(deliveries, drained) };
    let (answers, report) = context.within(patience, "drain under way", both).await?;
    let report = report?;
    check_eq("deliveries without an answer", &0, &report.unanswered)?;
    let acknowledged = answers.iter().filter(|answer| answer.is_ok()).count();
    check_eq("accepted deliveries answered Ok", &12, &acknowledged)?;
    let observed = context.wait_for(&destination, acknowledged).await?;
    check_eq("messages of a drained sink", &12, &observed.len())?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_drain_counts_what_it_finished(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play_always(&destination, Fault::HoldReply(hold.gate()))?;
    let envelopes: Vec<Envelope> = (0..3).map(|_| context.envelope()).collect();
    let mut deliveries = pin!(context.deliver_all(&*sink, &envelopes));
    context.arrivals(&hold, 1, &mut deliveries).await?;
    let drained = async {
        let drained = pin!(context.drain(&*sink));
        let mut drained = drained;
        context
            .stays_open("the drain while replies are held", &mut drained)
            .await?;
        hold.release();
        drained.await
    };
    let both = async { tokio::join!(deliveries, drained) };
    let patience = context.profile().patience() * 3;
    let (_, report) = context.within(patience, "drain under way", both).await?;
    let report = report?;
    check_eq("answered, by the report", &3, &report.answered)?;
    check_eq("unanswered, by the report", &0, &report.unanswered)
}

async fn a_drain_ends_at_its_deadline(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play_always(&destination, Fault::HoldRequest(hold.gate()))?;
    let envelope = context.envelope();
    let mut delivery = pin!(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut delivery).await?;
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let drained = async {
        tokio::select! {
            biased;
            report = sink.drain(began + limit) => report,
            _ = &mut delivery => dispatch_api::DrainReport::new(u64::MAX, 0),
        }
    };
    let report = context
        .within(limit + Duration::from_secs(2), "the drain", drained)
        .await?;
    check_eq("unanswered, by the report", &1, &report.unanswered)?;
    hold.release();
    let patience = context.profile().patience();
    let answer = context
        .within(patience, "the open delivery", delivery)
        .await?;
    check(answer.is_ok(), "the open delivery", "Ok", "an error")
}

async fn a_delivery_after_the_drain_is_refused_unsent(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let before = context.envelope();
    context.deliver_ok(&*sink, &before).await?;
    context.drain(&*sink).await?;
    let after = context.envelope();
    let late = context.deliver(&*sink, &after);
    let answer = context
        .within(Duration::from_secs(1), "a delivery after the drain", late)
        .await?;
    let Err(error) = answer else {
        return check(false, "a delivery after the drain", "an error", "Ok");
    };
    check_eq(
        "class after the drain",
        &ErrorClass::Transient,
        &error.class(),
    )?;
    check_eq(
        "outcome after the drain",
        &Outcome::NotStored,
        &error.outcome(),
    )?;
    check_eq("code after the drain", &"SinkClosed", &error.code())?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_drain_may_be_repeated(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    let both = async { tokio::join!(context.drain(&*sink), context.drain(&*sink)) };
    let (first, second) = both.await;
    let third = context.drain(&*sink).await?;
    for report in [first?, second?, third] {
        check_eq("unanswered, by a repeated drain", &0, &report.unanswered)?;
    }
    Ok(())
}

async fn a_drained_sink_leaves_another_alone(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let first = context.build(&destination)?;
    let second = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*first, &envelope).await?;
    context.drain(&*first).await?;
    drop(first);
    let envelope = context.envelope();
    let answer = context.deliver(&*second, &envelope).await;
    check(
        answer.is_ok(),
        "the other sink after the drain",
        "Ok",
        "an error",
    )?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_restart_of_the_destination_needs_no_rebuild(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let before = context.envelope();
    context.deliver_ok(&*sink, &before).await?;
    context.step("restart the destination");
    let restarted = context.fixture().restart().await;
    restarted.map_err(|error| Failure::of_kit("restart the destination", error.to_string()))?;
    let began = Instant::now();
    let after = context.envelope();
    loop {
        context.step("deliver until it is taken again");
        let one = context.deliver(&*sink, &after);
        let patience = context.profile().patience();
        match context
            .within(patience, "deliver after the restart", one)
            .await?
        {
            Ok(_) => break,
            Err(error) => {
                check(
                    error.class().is_retryable(),
                    "an error after the restart",
                    "one that is retried",
                    error.to_string(),
                )?;
                check(
                    began.elapsed() < context.profile().patience(),
                    "deliver after the restart",
                    "Ok in time",
                    error.to_string(),
                )?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    context.judge(&destination, Duplicates::OnePerAttempt).await
}

async fn idle_connection_reconnects(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    deliver_control(context, &*sink, "the first delivery").await?;
    for _ in 0..2 {
        context.step("close what is idle");
        let closed = context.fixture().close_idle().await;
        closed.map_err(|error| Failure::of_kit("close what is idle", error.to_string()))?;
        let patience = context.profile().patience();
        let step = "the first delivery after an idle close";
        let envelope = context.envelope();
        let delivery = context.deliver(&*sink, &envelope);
        if let Err(error) = context.within(patience, step, delivery).await? {
            check(
                error.class().is_retryable(),
                step,
                "Ok, or a class that is retried",
                error.class().as_str(),
            )?;
        }
        let step = "the second delivery after an idle close";
        deliver_control(context, &*sink, step).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn credentials_rotate_without_rebuild(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = sourced(context, &destination)?;
    deliver_control(context, &*sink, "a delivery before").await?;
    let signer = replace_credentials(context).await?;
    let envelopes = few(context);
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    all_succeeded("deliveries with other credentials", answers)?;
    let stored = context.wait_for(&destination, 1 + envelopes.len()).await?;
    for envelope in &envelopes {
        let step = "the sender of a delivery with other credentials";
        let message = find(step, &stored, envelope)?;
        check_eq(step, &Some(&*signer), &message.sent_by.as_deref())?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn two_sinks_share_no_destination(context: &Context<'_>) -> Checked {
    let left = context.named_destination("left").await?;
    let right = context.named_destination("right").await?;
    let to_left = context.build(&left)?;
    let to_right = context.build(&right)?;
    let mut sent = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        for (index, sink) in [&to_left, &to_right].into_iter().enumerate() {
            let envelope = context.envelope();
            context.deliver_ok(&**sink, &envelope).await?;
            sent[index].push(envelope.id().to_string());
        }
    }
    for (destination, expected) in [(&left, &sent[0]), (&right, &sent[1])] {
        let stored = context.wait_for(destination, 3).await?;
        let mut ids: Vec<String> = stored.iter().map(|message| message.envelope_id()).collect();
        ids.sort();
        check_eq("the messages of a destination", expected, &ids)?;
    }
    Ok(())
}
