//! Steps of cases about what comes back, and when.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Delivery, Subscription};
use tokio::time::Instant;

use crate::conformance::source::context::id_of;
use crate::conformance::source::{RawMessage, SourceCapability, SourceContext};
use crate::conformance::{Checked, Destination, check, check_eq};

/// What may pass between the end of a delay or of a hold and the delivery.
pub(super) fn slack(context: &SourceContext<'_>) -> Duration {
    context.profile().delay_step + context.profile().margin() * 4
}

/// A delay that nobody takes for a hold, and that the broker need not round.
pub(super) fn short_delay(context: &SourceContext<'_>) -> Duration {
    let profile = context.profile();
    let (delay, step) = (profile.hold / 4, profile.delay_step);
    if step.is_zero() {
        return delay;
    }
    let steps = delay.as_nanos().div_ceil(step.as_nanos());
    step * u32::try_from(steps).unwrap_or(u32::MAX)
}

/// Puts hooks of a key each, so that none waits for another, and returns their ids.
pub(super) async fn put_apart(
    context: &SourceContext<'_>,
    place: &Destination,
    count: usize,
) -> Checked<Vec<RawMessage>> {
    let hooks: Vec<RawMessage> = context
        .hooks(count)
        .into_iter()
        .enumerate()
        .map(|(number, hook)| hook.with_key(&format!("quay-7/pier-{number}")))
        .collect();
    context.put(place, &hooks).await?;
    Ok(hooks)
}

/// The ids of what was put.
pub(super) fn put_ids(hooks: &[RawMessage]) -> Vec<String> {
    hooks.iter().map(|hook| id_of(&hook.body)).collect()
}

/// The message comes next.
pub(super) async fn next_is(
    context: &SourceContext<'_>,
    subscription: &dyn Subscription,
    id: &str,
) -> Checked<Box<dyn Delivery>> {
    let delivery = context.next(subscription).await?;
    check_eq("the message", &id, &&*id_of(delivery.received().body()))?;
    Ok(delivery)
}

/// The message comes next, at least so long and at most so long after `begun`.
pub(super) async fn next_between(
    context: &SourceContext<'_>,
    subscription: &dyn Subscription,
    id: &str,
    begun: Instant,
    (earliest, latest): (Duration, Duration),
) -> Checked<Box<dyn Delivery>> {
    let delivery = next_is(context, subscription, id).await?;
    let after = begun.elapsed();
    check(
        after >= earliest,
        "the time of its return",
        format!("not before {earliest:?}"),
        format!("after {after:?}"),
    )?;
    check(
        after <= latest,
        "the time of its return",
        format!("not later than {latest:?}"),
        format!("after {after:?}"),
    )?;
    Ok(delivery)
}

/// What is not settled comes back: to the subscription where a hold ends, else to the next
/// one.
pub(super) async fn comes_back(
    context: &SourceContext<'_>,
    place: &Destination,
    subscription: Arc<dyn Subscription>,
    id: &str,
) -> Checked<(Arc<dyn Subscription>, Box<dyn Delivery>)> {
    let subscription = if context.profile().has(SourceCapability::HoldReturns) {
        subscription
    } else {
        context.close(&*subscription).await?;
        drop(subscription);
        context.open(place).await?
    };
    let delivery = next_is(context, &*subscription, id).await?;
    Ok((subscription, delivery))
}
