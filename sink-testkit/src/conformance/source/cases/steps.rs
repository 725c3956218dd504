//! Steps that cases of several groups share.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Delivery, Settlement, Subscription};
use tokio::time::{Instant, sleep};

use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{RawMessage, SourceCapability, SourceContext, SourceOptions};
use crate::conformance::{Checked, Destination, Failure, check, check_eq};

/// So many hooks, each of a key of its own, so that none waits for another.
pub(super) fn spread(context: &SourceContext<'_>, count: usize) -> Vec<RawMessage> {
    let hooks = context.hooks(count).into_iter().enumerate();
    hooks
        .map(|(number, hook)| hook.with_key(&format!("quay-{number}/harbor")))
        .collect()
}

/// Puts hooks of keys of their own, and returns their ids.
pub(super) async fn put_spread(
    context: &SourceContext<'_>,
    place: &Destination,
    count: usize,
) -> Checked<Vec<String>> {
    let hooks = spread(context, count);
    context.put(place, &hooks).await?;
    Ok(hooks.iter().map(|hook| id_of(&hook.body)).collect())
}

/// Options with a hold so long that nothing of a case is late by a busy machine.
pub(super) fn long_hold(context: &SourceContext<'_>) -> SourceOptions {
    let profile = context.profile();
    let hold = profile.hold * 3;
    let hold = profile.max_hold.map_or(hold, |longest| hold.min(longest));
    context.options().with_hold(hold)
}

/// The subscription at which comes what was not settled: the same one, once the hold is over,
/// or, where only another one is given it, that.
pub(super) async fn again(
    context: &SourceContext<'_>,
    place: &Destination,
    subscription: Arc<dyn Subscription>,
) -> Checked<Arc<dyn Subscription>> {
    if context.profile().has(SourceCapability::HoldReturns) {
        return Ok(subscription);
    }
    context.close(&*subscription).await?;
    drop(subscription);
    context.open(place).await
}

/// Acks what comes until nothing is left, and returns the ids of what came, in order.
pub(super) async fn ack_what_is_left(
    context: &SourceContext<'_>,
    place: &Destination,
    subscription: &dyn Subscription,
) -> Checked<Vec<String>> {
    let mut came = Vec::new();
    let mut begun = Instant::now();
    loop {
        let left = context.unsettled(place).await?;
        if left == 0 {
            return Ok(came);
        }
        if begun.elapsed() > context.profile().patience() {
            return Err(Failure::new(
                "ack what is left",
                "that all of it comes and is gone",
                format!("{left} messages are left, and nothing comes"),
            ));
        }
        let received = context.receive(subscription, 10).await?;
        if received.is_empty() {
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        let ids = ids_of(&received);
        // What comes over and over is no news.
        if ids.iter().any(|id| !came.contains(id)) {
            begun = Instant::now();
        }
        came.extend(ids);
        context.settle_all(received, Settlement::Ack).await?;
    }
}

/// These come back, each once, and nothing is left when they are acked.
pub(super) async fn only_these_are_left(
    context: &SourceContext<'_>,
    place: &Destination,
    subscription: &dyn Subscription,
    ids: &[String],
) -> Checked {
    let came = ack_what_is_left(context, place, subscription).await?;
    check_same("what comes back", ids, &came)
}

/// It is gone: nothing is left, and nothing comes for a hold and a margin.
pub(super) async fn is_gone(
    context: &SourceContext<'_>,
    place: &Destination,
    subscription: &dyn Subscription,
) -> Checked {
    context.left(place, 0).await?;
    let profile = context.profile();
    context
        .nothing_comes(subscription, profile.hold + profile.margin())
        .await
}

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
    let subscription = again(context, place, subscription).await?;
    let delivery = next_is(context, &*subscription, id).await?;
    Ok((subscription, delivery))
}
