//! Receives that fail.

use dispatch_api::{Delivery, ErrorClass, Settlement, SourceError, Subscription};
use tokio::time::timeout;

use super::steps::{ack_what_is_left, again};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, Failure, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        receive_fetch_error_is_reported_and_recovers,
        "a receive that fails says so, and the next one goes on"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::LoseRequest)]),
    source_case!(
        receive_error_classes_are_the_tables,
        "an error of the broker has the class that the adapter's table gives it"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::Row)]),
    source_case!(
        receive_silence_is_bounded,
        "a receive that is never answered ends, and loses nothing"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::Silence)]),
    source_case!(
        receive_lost_reply_comes_back,
        "what was handed out in a lost reply comes when its hold is over"
    )
    .needs(&[SourceCapability::HoldReturns])
    .plays(&[(Operation::Receive, SourceFaultKind::LoseReply)]),
    source_case!(
        receive_integrity_mismatch_is_not_delivered,
        "a body that does not fit its digest is not delivered"
    )
    .needs(&[SourceCapability::Digests])
    .plays(&[(Operation::Receive, SourceFaultKind::WrongDigest)]),
    source_case!(
        receive_integrity_mismatch_is_not_settled,
        "a message that came with a wrong digest is kept, and comes again"
    )
    .needs(&[SourceCapability::Digests])
    .plays(&[(Operation::Receive, SourceFaultKind::WrongDigest)]),
    source_case!(
        receive_repeated_failures_stay_errors_and_then_recover,
        "each of six failed receives is an error, and the seventh brings the message"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::Internal)]),
    source_case!(
        receive_dropped_while_waiting_loses_nothing,
        "a receive that is dropped while it waits costs no message"
    ),
];

async fn receive_fetch_error_is_reported_and_recovers(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::LoseRequest)?;
    let failed = context.try_receive(&*subscription, 1).await?;
    context.was_played()?;
    match failed {
        Ok(_) => check(false, "a broken receive", "an error", "Ok")?,
        Err(error) => check_eq("the class", &ErrorClass::Transient, &error.class())?,
    }
    let delivery = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}

/// The error of a receive that must not succeed.
async fn failed(
    context: &SourceContext<'_>,
    subscription: &dyn Subscription,
    step: &str,
) -> Checked<SourceError> {
    let received = context.try_receive(subscription, 1).await?;
    context.was_played()?;
    match received {
        Ok(received) => {
            let observed = format!("Ok of {} deliveries", received.len());
            Err(Failure::new(step, "an error", observed))
        }
        Err(error) => Ok(error),
    }
}

/// The kind of a class, whatever wait it asks for.
const fn kind(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Permanent => "permanent",
        ErrorClass::Config => "config",
        ErrorClass::RetryAfter(_) => "retry_after",
        ErrorClass::Transient => "transient",
    }
}

async fn receive_error_classes_are_the_tables(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.plan("a row of the table");
    for row in &context.profile().error_table {
        context.play(
            &place,
            Operation::Receive,
            SourceFault::Row(row.name.clone()),
        )?;
        let step = format!("the row {}", row.name);
        let error = failed(context, &*subscription, &step).await?;
        context.faults()?.clear();
        check_eq(&step, &kind(row.class), &kind(error.class()))?;
        context.happened("a row of the table");
    }
    let delivery = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn receive_silence_is_bounded(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::Silence)?;
    let received = context.try_receive(&*subscription, 1).await?;
    context.was_played()?;
    match received {
        Ok(received) => check_eq("deliveries of silence", &0, &received.len())?,
        Err(error) => check_eq("the class", &ErrorClass::Transient, &error.class())?,
    }
    context.faults()?.clear();
    let delivery = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn receive_lost_reply_comes_back(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::LoseReply)?;
    let error = failed(context, &*subscription, "a receive whose reply is lost").await?;
    check_eq("the class", &ErrorClass::Transient, &error.class())?;
    context.left(&place, 1).await?;
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    check_same("what came after the hold", &ids, &came)
}

/// Receives once while digests are wrong; what comes is returned.
async fn spoilt(
    context: &SourceContext<'_>,
    subscription: &dyn Subscription,
) -> Checked<Vec<Box<dyn Delivery>>> {
    let received = context.try_receive(subscription, 1).await?;
    context.was_played()?;
    context.faults()?.clear();
    match received {
        Ok(received) => Ok(received),
        Err(error) => {
            check_eq("the class", &ErrorClass::Transient, &error.class())?;
            Ok(Vec::new())
        }
    }
}

async fn receive_integrity_mismatch_is_not_delivered(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::WrongDigest)?;
    let received = spoilt(context, &*subscription).await?;
    check_eq("deliveries with a wrong digest", &0, &received.len())
}

async fn receive_integrity_mismatch_is_not_settled(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let hook = context.hook();
    context.put(&place, std::slice::from_ref(&hook)).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::WrongDigest)?;
    drop(spoilt(context, &*subscription).await?);
    context.left(&place, 1).await?;
    let subscription = again(context, &place, subscription).await?;
    let delivery = context.next(&*subscription).await?;
    check(
        hook.body == *delivery.received().body(),
        "the body that comes again",
        "the bytes that were put",
        "others",
    )?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn receive_repeated_failures_stay_errors_and_then_recover(
    context: &SourceContext<'_>,
) -> Checked {
    const FAILURES: u64 = 6;
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let faults = context.faults()?;
    let (operation, fault) = (Operation::Receive, SourceFault::Internal);
    faults.add(&place, operation, fault, Some(FAILURES));
    for number in 1..=FAILURES {
        let step = format!("failed receive {number}");
        let error = failed(context, &*subscription, &step).await?;
        let is_passing = matches!(
            error.class(),
            ErrorClass::Transient | ErrorClass::RetryAfter(_)
        );
        check(
            is_passing,
            &step,
            "a fault that time may heal",
            kind(error.class()),
        )?;
    }
    let delivery = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn receive_dropped_while_waiting_loses_nothing(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let subscription = context.open(&place).await?;
    // A first receive may have to join a group.
    let _ = context.receive(&*subscription, 1).await?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        context.step("drop a receive that waits");
        let receiving = context.try_receive(&*subscription, 1);
        let dropped = timeout(context.profile().wait / 4, receiving).await;
        check(
            dropped.is_err(),
            "a receive of an empty place",
            "that it waits",
            "an answer",
        )?;
        ids.extend(context.put_hooks(&place, 1).await?);
        let came = ack_what_is_left(context, &place, &*subscription).await?;
        check_same("what came after the drop", &ids[ids.len() - 1..], &came)?;
    }
    Ok(())
}
