//! For how long a delivery is one's own.

use std::time::Duration;

use dispatch_api::Settlement;
use tokio::time::{Instant, timeout};

use super::steps::{next_between, next_is, put_spread, slack};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::check_same;
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFaultKind, SourceOptions,
};
use crate::conformance::{Checked, Destination, Failure, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        unsettled_delivery_comes_back,
        "a delivery that is dropped unsettled is not consumed, and comes back when its hold ends"
    )
    .needs(&[SourceCapability::HoldReturns]),
    source_case!(
        unsettled_delivery_of_a_closed_subscription_comes_back,
        "what a closed subscription had and did not settle comes to the next one"
    ),
    source_case!(
        dropping_a_delivery_makes_no_call,
        "a delivery that is dropped asks nothing of the broker"
    )
    .plays(&[
        (Operation::Ack, SourceFaultKind::Calls),
        (Operation::Return, SourceFaultKind::Calls),
        (Operation::Extend, SourceFaultKind::Calls),
    ]),
    source_case!(
        hold_is_told,
        "a delivery says until when it is held, and that is about a hold from now"
    )
    .needs(&[SourceCapability::HoldReturns]),
    source_case!(
        hold_settings_are_bounded,
        "a hold of nothing, or longer than the broker has, is refused, and one between is taken"
    )
    .needs(&[SourceCapability::HoldReturns]),
    source_case!(
        a_lost_hold_is_told_to_the_handler,
        "who lost a delivery to somebody else is told while it is handled"
    )
    .needs(&[
        SourceCapability::Expire,
        SourceCapability::NoticesLoss,
        SourceCapability::Extension,
    ]),
    source_case!(
        paused_process_does_not_ack_anothers,
        "a late ack of what somebody else has now is an error and consumes nothing"
    )
    .needs(&[SourceCapability::Expire, SourceCapability::NoticesLoss]),
];

async fn unsettled_delivery_comes_back(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let begun = Instant::now();
    let delivery = context.next(&*subscription).await?;
    drop(delivery);
    context.left(&place, 1).await?;
    let hold = context.profile().hold;
    let latest = begun.elapsed() + hold + slack(context);
    let bounds = (Duration::ZERO, latest);
    let delivery = next_between(context, &*subscription, &ids[0], begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn unsettled_delivery_of_a_closed_subscription_comes_back(
    context: &SourceContext<'_>,
) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 3).await?;
    let subscription = context.open(&place).await?;
    let deliveries = context.take(&*subscription, 3).await?;
    drop(deliveries);
    context.close(&*subscription).await?;
    drop(subscription);
    context.left(&place, 3).await?;
    let subscription = context.open(&place).await?;
    let deliveries = context.take(&*subscription, 3).await?;
    let seen = crate::conformance::source::ids::ids_of(&deliveries);
    check_same("what came back", &ids, &seen)?;
    for delivery in deliveries {
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    context.left(&place, 0).await
}

async fn dropping_a_delivery_makes_no_call(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let calls = || -> Checked<[usize; 3]> {
        let faults = context.faults()?;
        let of = |operation| faults.calls(&place, operation);
        Ok([Operation::Ack, Operation::Return, Operation::Extend].map(of))
    };
    let before = calls()?;
    drop(delivery);
    context.sleep(context.profile().hold / 2).await;
    check_eq("calls to ack, return and extend", &before, &calls()?)
}

async fn hold_is_told(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let lease = delivery.received().lease().clone();
    let Some(until) = lease.until() else {
        let failure = Failure::new("the end of the hold", "an instant", "none");
        return Err(failure);
    };
    let left = until.checked_duration_since(Instant::now());
    let latest = context.profile().hold + context.profile().margin();
    check(
        left.is_some_and(|left| !left.is_zero() && left <= latest),
        "the end of the hold",
        format!("in the future and within {latest:?}"),
        left.map_or_else(|| "in the past".to_owned(), |left| format!("in {left:?}")),
    )?;
    check_eq("a hold that was lost", &false, &lease.is_lost())?;
    context.settle_ok(delivery, Settlement::Ack).await
}

/// Whether a source of this hold is built and opened.
async fn is_accepted(
    context: &SourceContext<'_>,
    place: &Destination,
    hold: Duration,
) -> Checked<bool> {
    context.step(format!("a source with a hold of {hold:?}"));
    let options: SourceOptions = context.options().with_hold(hold);
    let Ok(source) = context.fixture().source(place, &options) else {
        return Ok(false);
    };
    let plan = context.plan_for(place);
    let limit = context.profile().timeout * 4 + context.profile().margin();
    match context.within(limit, "open", source.open(&plan)).await? {
        Ok(subscription) => {
            context.close(&*subscription).await?;
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

async fn hold_settings_are_bounded(context: &SourceContext<'_>) -> Checked {
    let max = context.profile().max_hold;
    let second = Duration::from_secs(1);
    let mut expected = vec![(Duration::ZERO, false), (second, true)];
    if let Some(max) = max {
        expected.extend([(max, true), (max + second, false)]);
    }
    for (hold, is_right) in expected {
        // A place of its own: a broker may keep the settings of the first.
        let place = context.place().await?;
        let accepted = is_accepted(context, &place, hold).await?;
        check_eq(
            &format!("a hold of {hold:?} is accepted"),
            &is_right,
            &accepted,
        )?;
    }
    Ok(())
}

async fn a_lost_hold_is_told_to_the_handler(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let first = context.open(&place).await?;
    let delivery = context.next(&*first).await?;
    let lease = delivery.received().lease().clone();
    let second = context.open(&place).await?;
    context.expire(&place).await?;
    let taken = next_is(context, &*second, &ids[0]).await?;
    let limit = context.profile().hold * 2;
    context.step("wait for the loss to be told");
    let told = timeout(limit, lease.lost()).await;
    check(
        told.is_ok() && lease.is_lost(),
        "a hold that somebody else has",
        format!("it is told as lost within {limit:?}"),
        "it is not",
    )?;
    context.settle_err(delivery, Settlement::Ack).await?;
    check_eq(
        "the other's hold is lost",
        &false,
        &taken.received().lease().is_lost(),
    )?;
    context.settle_ok(taken, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn paused_process_does_not_ack_anothers(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let first = context.open(&place).await?;
    let late = context.next(&*first).await?;
    let second = context.open(&place).await?;
    context.expire(&place).await?;
    let taken = next_is(context, &*second, &ids[0]).await?;
    context.settle_err(late, Settlement::Ack).await?;
    context.left(&place, 1).await?;
    context.settle_ok(taken, Settlement::Ack).await?;
    context.left(&place, 0).await
}
