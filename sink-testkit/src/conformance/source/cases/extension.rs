//! Holds that last as long as a delivery is kept.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{Delivery, Lease, Settlement, Stop};
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::steps::{next_between, next_is, put_spread, short_delay, slack};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, Destination, Failure, Hold, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        hold_is_extended_while_it_is_kept,
        "nobody else gets a delivery while it is kept, however long its handler takes"
    )
    .needs(&[SourceCapability::Extension]),
    source_case!(
        hold_extension_precedes_its_end,
        "a hold is extended before it ends, and says so"
    )
    .needs(&[SourceCapability::Extension, SourceCapability::HoldReturns]),
    source_case!(
        hold_extension_stops_on_settle,
        "a settled delivery is extended no more"
    )
    .needs(&[SourceCapability::Extension])
    .plays(&[(Operation::Extend, SourceFaultKind::Calls)]),
    source_case!(
        hold_extension_stops_on_drop,
        "a delivery that is dropped after an extension comes back within a hold"
    )
    .needs(&[SourceCapability::Extension, SourceCapability::HoldReturns]),
    source_case!(
        hold_extension_stops_on_panic,
        "a delivery whose handler panics comes back within a hold"
    )
    .needs(&[SourceCapability::Extension]),
    source_case!(
        hold_extension_refused_is_told,
        "a hold that the broker does not extend is told as lost, and its settlement is no success"
    )
    .needs(&[SourceCapability::Extension])
    .plays(&[(Operation::Extend, SourceFaultKind::Gone)]),
    source_case!(
        hold_extension_failure_is_tried_again,
        "an extension that did not reach the broker is made again while there is time"
    )
    .needs(&[SourceCapability::Extension])
    .plays(&[(Operation::Extend, SourceFaultKind::LoseRequest)]),
    source_case!(
        hold_extension_covers_buffered_deliveries,
        "every delivery of a receive is extended, not just one of them"
    )
    .needs(&[SourceCapability::Extension]),
    source_case!(
        hold_extension_partial_failure_loses_only_those,
        "of ten extensions of which one fails, nine holds stay and the tenth is not called held"
    )
    .needs(&[SourceCapability::Extension])
    .plays(&[(Operation::Extend, SourceFaultKind::Entry)]),
    source_case!(
        hold_extension_ends,
        "a hold is told as lost by the broker's own end of all extensions, and no sooner than it \
         has to be"
    )
    .needs(&[SourceCapability::Extension, SourceCapability::HoldEnds]),
    source_case!(
        settlement_wins_over_an_extension_under_way,
        "a delay that is asked for while an extension is under way is the last word"
    )
    .needs(&[SourceCapability::Extension, SourceCapability::Delay])
    .plays(&[(Operation::Extend, SourceFaultKind::HoldRequest)]),
];

/// One delivery, taken.
async fn taken(
    context: &SourceContext<'_>,
) -> Checked<(
    Destination,
    String,
    Arc<dyn dispatch_api::Subscription>,
    Box<dyn Delivery>,
)> {
    let (place, mut ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    Ok((place, ids.remove(0), subscription, delivery))
}

fn is_held(step: &str, lease: &Lease) -> Checked {
    check(!lease.is_lost(), step, "it is held", "it is told as lost")
}

async fn hold_is_extended_while_it_is_kept(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, delivery) = taken(context).await?;
    let other = context.open(&place).await?;
    context
        .nothing_comes(&*other, context.profile().hold * 3)
        .await?;
    is_held("a delivery that is kept", delivery.received().lease())?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn hold_extension_precedes_its_end(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, delivery) = taken(context).await?;
    let lease = delivery.received().lease().clone();
    let hold = context.profile().hold;
    let begun = Instant::now();
    context.step("look at the end of the hold for three holds");
    while begun.elapsed() < hold * 3 {
        let now = Instant::now();
        let until = lease.until();
        check(
            until.is_some_and(|until| until > now),
            "the end of a hold that is kept",
            "in the future all the time",
            format!("it was over {:?} after the receive", begun.elapsed()),
        )?;
        check(
            until.is_some_and(|until| until <= now + hold + slack(context)),
            "the end of a hold that is kept",
            format!("at most {hold:?} away"),
            "further away",
        )?;
        is_held("a delivery that is kept", &lease)?;
        sleep(hold / 20).await;
    }
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn hold_extension_stops_on_settle(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, delivery) = taken(context).await?;
    let hold = context.profile().hold;
    context.sleep(hold + context.profile().margin()).await;
    let calls = || Ok(context.faults()?.calls(&place, Operation::Extend));
    let while_kept = calls()?;
    check(
        while_kept > 0,
        "extensions in a hold",
        "one or more",
        "none",
    )?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    let settled = calls()?;
    context.sleep(hold * 2).await;
    check_eq("extensions after the settlement", &settled, &calls()?)
}

async fn hold_extension_stops_on_drop(context: &SourceContext<'_>) -> Checked {
    let (place, id, subscription, delivery) = taken(context).await?;
    let hold = context.profile().hold;
    context.sleep(hold * 3 / 2).await;
    is_held("a delivery that is kept", delivery.received().lease())?;
    let begun = Instant::now();
    drop(delivery);
    let bounds = (Duration::ZERO, hold + slack(context));
    let delivery = next_between(context, &*subscription, &id, begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn hold_extension_stops_on_panic(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let hold = context.profile().hold;
    let stop = Stop::new();
    let (runs, times) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::default()));
    let handler = {
        let (runs, times, stop) = (Arc::clone(&runs), Arc::clone(&times), stop.clone());
        let times: Arc<Mutex<Vec<Instant>>> = times;
        Arc::new(move |_| {
            let (runs, times, stop) = (Arc::clone(&runs), Arc::clone(&times), stop.clone());
            async move {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                if run == 0 {
                    sleep(hold * 3 / 2).await;
                }
                let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                times.push(Instant::now());
                drop(times);
                if run == 0 {
                    // Without the panic hook: this one is meant.
                    resume_unwind(Box::new("a handler that panics"));
                }
                stop.by(Instant::now() + hold);
                Settlement::Ack
            }
            .boxed()
        })
    };
    let settings = context.settings(2);
    let consuming = context.consume(&subscription, settings, handler, stop);
    let limit = hold * 3 + context.profile().patience();
    let report = context.within(limit, "consume", consuming).await?;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    check_eq("runs of the handler", &2, &times.len())?;
    let (after, latest) = (times[1] - times[0], hold + slack(context));
    check(
        after <= latest,
        "the return after a panic",
        format!("within {latest:?}"),
        format!("after {after:?}"),
    )?;
    check_eq("acks", &1, &report.acked)?;
    context.left(&place, 0).await
}

async fn hold_extension_refused_is_told(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, delivery) = taken(context).await?;
    context.play_always(&place, Operation::Extend, SourceFault::Gone)?;
    let lease = delivery.received().lease().clone();
    let limit = context.profile().hold + context.profile().margin();
    context.step("wait for the loss to be told");
    let told = timeout(limit, lease.lost()).await;
    context.was_played()?;
    context.faults()?.clear();
    check(
        told.is_ok(),
        "a hold that is not extended",
        format!("it is told as lost within {limit:?}"),
        "it is not",
    )?;
    context.settle_err(delivery, Settlement::Ack).await?;
    context.left(&place, 1).await
}

async fn hold_extension_failure_is_tried_again(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, delivery) = taken(context).await?;
    context.play(&place, Operation::Extend, SourceFault::LoseRequest)?;
    let other = context.open(&place).await?;
    context
        .nothing_comes(&*other, context.profile().hold * 5 / 2)
        .await?;
    context.was_played()?;
    is_held(
        "after an extension that failed once",
        delivery.received().lease(),
    )?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

/// Ten deliveries of messages of a key each.
async fn ten(
    context: &SourceContext<'_>,
) -> Checked<(
    Destination,
    Vec<String>,
    Arc<dyn dispatch_api::Subscription>,
    Vec<Box<dyn Delivery>>,
)> {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 10).await?;
    let subscription = context.open(&place).await?;
    let deliveries = context.take(&*subscription, 10).await?;
    check_same("what came", &ids, &ids_of(&deliveries))?;
    Ok((place, ids, subscription, deliveries))
}

async fn hold_extension_covers_buffered_deliveries(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, deliveries) = ten(context).await?;
    let other = context.open(&place).await?;
    context
        .nothing_comes(&*other, context.profile().hold * 2)
        .await?;
    for delivery in &deliveries {
        is_held("one of ten that are kept", delivery.received().lease())?;
    }
    context.settle_all(deliveries, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn hold_extension_partial_failure_loses_only_those(context: &SourceContext<'_>) -> Checked {
    let (place, _, _subscription, deliveries) = ten(context).await?;
    let bad = context.random(deliveries.len());
    let body = deliveries[bad].received().body();
    let body = String::from_utf8_lossy(body).into_owned();
    context.play_always(&place, Operation::Extend, SourceFault::Entry(body))?;
    let other = context.open(&place).await?;
    let profile = context.profile();
    let came = context.receive_for(&*other, profile.hold * 2).await?;
    context.was_played()?;
    context.faults()?.clear();
    let id = id_of(deliveries[bad].received().body());
    let mut others = ids_of(&came);
    others.retain(|came| *came != id);
    check_eq("neighbours that somebody else got", &0, &others.len())?;
    for (number, delivery) in deliveries.into_iter().enumerate() {
        let lease = delivery.received().lease().clone();
        if number == bad {
            check(
                lease.is_lost(),
                "the hold whose extension fails",
                "it is told as lost",
                "it is called held",
            )?;
            context.settle_err(delivery, Settlement::Ack).await?;
        } else {
            is_held("a neighbour of a hold that is lost", &lease)?;
            context.settle_ok(delivery, Settlement::Ack).await?;
        }
    }
    context.left(&place, 1).await
}

async fn hold_extension_ends(context: &SourceContext<'_>) -> Checked {
    let end = context.profile().hold_ends_after;
    let begun = Instant::now();
    let (place, _, _subscription, delivery) = taken(context).await?;
    let lease = delivery.received().lease().clone();
    context.step(format!("keep a delivery for {end:?}"));
    let latest = end + context.profile().margin();
    let told = timeout(latest, lease.lost()).await;
    check(
        told.is_ok(),
        "a hold at the end of all extensions",
        format!("it is told as lost within {latest:?}"),
        "it is not",
    )?;
    let (after, earliest) = (begun.elapsed(), end.mul_f64(0.9));
    check(
        after >= earliest,
        "a hold at the end of all extensions",
        format!("it is held for {earliest:?} at least"),
        format!("it was lost after {after:?}"),
    )?;
    context.settle_err(delivery, Settlement::Ack).await?;
    context.left(&place, 1).await
}

async fn settlement_wins_over_an_extension_under_way(context: &SourceContext<'_>) -> Checked {
    let (place, id, subscription, delivery) = taken(context).await?;
    let hold = Hold::new();
    let fault = SourceFault::HoldRequest(hold.gate());
    context.play(&place, Operation::Extend, fault)?;
    let limit = context.profile().hold;
    context
        .within(limit, "wait for an extension", hold.arrivals(1))
        .await?;
    let delay = short_delay(context);
    let begun = Instant::now();
    let mut settling = pin!(context.settle(delivery, Settlement::RetryAfter(delay)));
    // It may wait for the extension, or take its word back: both are right.
    let early = timeout(context.profile().margin(), &mut settling).await;
    hold.release();
    let settled = match early {
        Ok(settled) => settled?,
        Err(_) => settling.await?,
    };
    settled.map_err(|error| Failure::new("retry_after", "Ok", error.to_string()))?;
    let latest = begun.elapsed() + delay + slack(context);
    let bounds = (delay, latest);
    let delivery = next_between(context, &*subscription, &id, begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}
