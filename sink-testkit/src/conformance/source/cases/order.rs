//! Messages of one key, and those of others beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Received, Settlement, Stop};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::handlers::{Crowd, Seen, handler};
use super::steps::long_hold;
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{id_of, ids_of};
use crate::conformance::source::{RawMessage, SourceCapability, SourceCase, SourceContext};
use crate::conformance::{Checked, Destination, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        order_is_declared_as_it_is,
        "a subscription says that it is ordered where its profile does, and only there"
    ),
    source_case!(
        consume_order_per_key_among_many,
        "messages of one key are handled in the order in which they were put, whatever the \
         others do"
    )
    .needs(&[SourceCapability::Order]),
    source_case!(
        consume_one_of_a_key_at_a_time,
        "no two messages of one key are handled at once"
    )
    .needs(&[SourceCapability::Order]),
    source_case!(
        consume_keys_beside_each_other,
        "a key that takes long does not hold up another"
    )
    .needs(&[SourceCapability::Order]),
    source_case!(
        consume_failed_member_brings_back_the_rest,
        "when a message of a key comes back, the later ones of the key wait for it"
    )
    .needs(&[SourceCapability::Order, SourceCapability::SingleRetry]),
    source_case!(
        consume_order_after_a_handover,
        "who takes over begins with the first message that was not acknowledged"
    )
    .needs(&[SourceCapability::Order]),
];

/// Puts so many messages of each key, one key after the other in turn, and returns the ids
/// by key.
async fn put_keys(
    context: &SourceContext<'_>,
    place: &Destination,
    keys: usize,
    each: usize,
) -> Checked<BTreeMap<String, Vec<String>>> {
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut messages: Vec<RawMessage> = Vec::new();
    for _ in 0..each {
        for key in 0..keys {
            let key = format!("quay-{key}/harbor");
            let hook = context.hook().with_key(&key);
            ids.entry(key).or_default().push(id_of(&hook.body));
            messages.push(hook);
        }
    }
    context.put(place, &messages).await?;
    Ok(ids)
}

/// Consumes until so many were handled or patience is over.
async fn consume_until(
    context: &SourceContext<'_>,
    place: &Destination,
    concurrency: usize,
    handled: &Seen,
    count: usize,
    handle: crate::conformance::source::BoxedHandler,
) -> Checked {
    let plan = context.plan_for(place);
    let subscription = context.open_with(place, &long_hold(context), &plan).await?;
    let stop = Stop::new();
    let settings = context.settings(concurrency);
    let consumer = context.consume(&subscription, settings, handle, stop.clone());
    let watch = async {
        let mut begun = Instant::now();
        let mut before = 0;
        while handled.count() < count && begun.elapsed() < context.profile().patience() {
            if handled.count() > before {
                before = handled.count();
                begun = Instant::now();
            }
            sleep(Duration::from_millis(10)).await;
        }
        stop.by(Instant::now() + context.profile().timeout);
    };
    context.step("consume");
    let (_, ()) = tokio::join!(consumer, watch);
    Ok(())
}

async fn order_is_declared_as_it_is(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let subscription = context.open(&place).await?;
    let declared = context.profile().has(SourceCapability::Order);
    check_eq("is_ordered", &declared, &subscription.is_ordered())
}

async fn consume_order_per_key_among_many(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_keys(context, &place, 3, 10).await?;
    context.plan("two keys were handled at once");
    let seen = Seen::default();
    let crowd = Crowd::default();
    let pauses: Vec<u64> = (0..30).map(|_| context.random(20) as u64).collect();
    let handle = {
        let (seen, crowd) = (seen.clone(), crowd.clone());
        handler(move |received: Received| {
            let inside = crowd.enter();
            let place = seen.note(&received);
            let pause = Duration::from_millis(pauses[place % pauses.len()]);
            async move {
                sleep(pause).await;
                drop(inside);
                Settlement::Ack
            }
        })
    };
    consume_until(context, &place, 6, &seen, 30, handle).await?;
    if crowd.most() > 1 {
        context.happened("two keys were handled at once");
    }
    let seen = seen.all();
    for (key, wanted) in &ids {
        // A message that comes twice is no matter of order.
        let mut handled: Vec<&String> = Vec::new();
        for id in seen.iter().filter(|id| wanted.contains(id)) {
            if !handled.contains(&id) {
                handled.push(id);
            }
        }
        let in_order = handled.iter().copied().eq(wanted.iter());
        let places: Vec<usize> = handled
            .iter()
            .filter_map(|id| wanted.iter().position(|wanted| wanted == *id))
            .collect();
        check(
            in_order,
            "the order of a key",
            format!("{key} as it was put"),
            format!("the places {places:?}"),
        )?;
    }
    context.left(&place, 0).await
}

async fn consume_one_of_a_key_at_a_time(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_keys(context, &place, 2, 5).await?;
    let seen = Seen::default();
    let crowds: Arc<[Crowd; 2]> = Arc::default();
    let handle = {
        let (seen, crowds) = (seen.clone(), Arc::clone(&crowds));
        handler(move |received: Received| {
            let group = received.group().unwrap_or_default().to_owned();
            let inside = crowds[usize::from(group.contains("quay-1"))].enter();
            seen.note(&received);
            async move {
                sleep(Duration::from_millis(10)).await;
                drop(inside);
                Settlement::Ack
            }
        })
    };
    consume_until(context, &place, 8, &seen, 10, handle).await?;
    check_eq("what was handled", &10, &seen.count())?;
    for crowd in &*crowds {
        check_eq("handlers of one key at once", &1, &crowd.most())?;
    }
    Ok(())
}

async fn consume_keys_beside_each_other(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_keys(context, &place, 3, 2).await?;
    let seen = Seen::default();
    let gate = Arc::new(Notify::new());
    let handle = {
        let (seen, gate) = (seen.clone(), Arc::clone(&gate));
        handler(move |received: Received| {
            let (seen, gate) = (seen.clone(), Arc::clone(&gate));
            async move {
                let group = received.group().unwrap_or_default();
                if group.contains("quay-0") && received.redelivery_count().unwrap_or(1) == 1 {
                    gate.notified().await;
                    gate.notify_one();
                }
                seen.note(&received);
                Settlement::Ack
            }
        })
    };
    let subscription = context.open(&place).await?;
    let stop = Stop::new();
    let consumer = context.consume(&subscription, context.settings(4), handle, stop.clone());
    let watch = async {
        let begun = Instant::now();
        while seen.count() < 4 && begun.elapsed() < context.profile().patience() / 4 {
            sleep(Duration::from_millis(10)).await;
        }
        let beside = seen.count();
        gate.notify_one();
        stop.by(Instant::now() + context.profile().timeout);
        beside
    };
    context.step("consume");
    let (_, beside) = tokio::join!(consumer, watch);
    check(
        beside >= 4,
        "while one key waits",
        "the 4 messages of the other keys are handled",
        format!("{beside} of them"),
    )
}

async fn consume_failed_member_brings_back_the_rest(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_keys(context, &place, 1, 3).await?;
    let ids = ids.into_values().next().unwrap_or_default();
    let seen = Seen::default();
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            let is_first = seen.note(&received) == 0;
            async move {
                match is_first {
                    true => Settlement::Retry,
                    false => Settlement::Ack,
                }
            }
        })
    };
    consume_until(context, &place, 4, &seen, 4, handle).await?;
    let wanted: Vec<String> = [0, 0, 1, 2].iter().map(|at| ids[*at].clone()).collect();
    let places: Vec<Option<usize>> = seen
        .all()
        .iter()
        .map(|id| ids.iter().position(|known| known == id))
        .collect();
    check(
        seen.all() == wanted,
        "what was handled",
        "the places [0, 0, 1, 2]",
        format!("the places {places:?}"),
    )?;
    context.left(&place, 0).await
}

async fn consume_order_after_a_handover(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_keys(context, &place, 1, 4).await?;
    let ids = ids.into_values().next().unwrap_or_default();
    let first = context.open(&place).await?;
    let mut taken = context.take(&*first, 1).await?;
    let delivery = taken.remove(0);
    check_eq("the first", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    let held = context.receive(&*first, 2).await?;
    context.close(&*first).await?;
    drop(held);
    let second = context.open(&place).await?;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let delivery = context.next(&*second).await?;
        seen.extend(ids_of(std::slice::from_ref(&delivery)));
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    let places: Vec<Option<usize>> = seen
        .iter()
        .map(|id| ids.iter().position(|known| known == id))
        .collect();
    check(
        seen[..] == ids[1..],
        "after the handover",
        "the places [1, 2, 3]",
        format!("the places {places:?}"),
    )
}
