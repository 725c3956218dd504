//! What comes back when it is asked to.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{
    ConsumerReport, ConsumerSettings, Content, Message, Received, Settlement, Stop, Subscription,
};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::steps::{ack_what_is_left, again, long_hold, only_these_are_left, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of};
use crate::conformance::source::{
    BoxedHandler, Operation, RawMessage, SourceCapability, SourceCase, SourceContext, SourceFault,
    SourceFaultKind,
};
use crate::conformance::{Checked, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        retry_brings_the_same_message_back,
        "what is retried comes again, once for each retry"
    ),
    source_case!(
        retry_is_prompt,
        "what is retried comes at once, and not when its hold would be over"
    ),
    source_case!(
        retry_content_is_the_original,
        "what comes again has the content of the first delivery"
    ),
    source_case!(
        retry_count_grows_by_one,
        "each delivery of a message counts one more"
    )
    .needs(&[SourceCapability::Count]),
    source_case!(
        retry_count_survives_a_reconnect,
        "the count of deliveries is the broker's, and goes on at a new subscription"
    )
    .needs(&[SourceCapability::Count]),
    source_case!(
        retry_of_some_leaves_the_others,
        "of messages received together, those that are retried come again"
    ),
    source_case!(
        retry_storm_loses_nothing,
        "many retries under many handlers lose no message"
    ),
    source_case!(
        retry_from_a_panic,
        "a handler's panic brings the message again"
    ),
    source_case!(
        retry_from_a_time_out,
        "a handler that takes too long brings the message again"
    ),
    source_case!(
        retry_failure_is_reported_and_message_returns,
        "a retry that fails is no success, and the message comes when its hold is over"
    )
    .plays(&[(Operation::Return, SourceFaultKind::Internal)]),
    source_case!(
        retry_lost_reply_is_not_success,
        "a retry whose reply is lost is unknown, and the message comes again"
    )
    .plays(&[(Operation::Return, SourceFaultKind::LoseReply)]),
    source_case!(
        retry_keeps_the_order_of_its_key,
        "what is retried comes before what is behind it in its key"
    )
    .needs(&[SourceCapability::Order, SourceCapability::SingleRetry]),
    source_case!(
        retry_is_not_a_drop,
        "what is retried below the cap of attempts goes nowhere else"
    )
    .needs(&[SourceCapability::Redrive]),
];

async fn retry_brings_the_same_message_back(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    for _ in 0..3 {
        let delivery = context.next(&*subscription).await?;
        check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
        context.settle_ok(delivery, Settlement::Retry).await?;
    }
    only_these_are_left(context, &place, &*subscription, &ids).await?;
    context
        .nothing_comes(
            &*subscription,
            context.profile().hold + context.profile().margin(),
        )
        .await
}

async fn retry_is_prompt(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let options = long_hold(context);
    let subscription = context
        .open_with(&place, &options, &context.plan_for(&place))
        .await?;
    let delivery = context.next(&*subscription).await?;
    let begun = Instant::now();
    context.settle_ok(delivery, Settlement::Retry).await?;
    let delivery = context.next(&*subscription).await?;
    let waited = begun.elapsed();
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    check(
        waited <= options.hold / 2,
        "a retry",
        format!("it comes well within the hold of {:?}", options.hold),
        format!("it came after {waited:?}"),
    )?;
    context.settle_ok(delivery, Settlement::Ack).await
}

/// The body within a message, where it is one.
fn content(body: &[u8]) -> Option<Content> {
    Message::decode(body).ok().map(|message| message.content)
}

async fn retry_content_is_the_original(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let mut hook = context.hook_of("größer \\u{1F4E6} \\t");
    if context.profile().has(SourceCapability::Attributes) {
        hook = hook.with_attribute("mooring", "berth 4, starboard");
    }
    context.put(&place, std::slice::from_ref(&hook)).await?;
    let subscription = context.open(&place).await?;
    let first = context.next(&*subscription).await?;
    let key = first.received().group().map(str::to_owned);
    context.settle_ok(first, Settlement::Retry).await?;
    let second = context.next(&*subscription).await?;
    let received = second.received();
    check_eq("the message", &id_of(&hook.body), &id_of(received.body()))?;
    // A copy is written by a sink, which may write the message around the body in its own way.
    let (step, is_same) = match context.profile().has(SourceCapability::Copies) {
        true => (
            "the hook within a copy",
            content(received.body()) == content(&hook.body),
        ),
        false => ("the body", *received.body() == hook.body),
    };
    check(is_same, step, "the bytes of the first delivery", "others")?;
    if !context.profile().has(SourceCapability::Copies) {
        for (name, value) in &hook.attributes {
            let step = format!("the attribute {name}");
            let is_same = received.attribute(name) == Some(value);
            check(is_same, &step, "the value of the first delivery", "another")?;
        }
    }
    check_eq("the key", &key.as_deref(), &received.group())?;
    context.settle_ok(second, Settlement::Ack).await
}

async fn retry_count_grows_by_one(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    for number in 1..=3 {
        let delivery = context.next(&*subscription).await?;
        let count = delivery.received().redelivery_count();
        check_eq("the count of deliveries", &Some(number), &count)?;
        context.settle_ok(delivery, Settlement::Retry).await?;
    }
    let delivery = context.next(&*subscription).await?;
    let count = delivery.received().redelivery_count();
    check_eq("the count of deliveries", &Some(4), &count)?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn retry_count_survives_a_reconnect(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    for number in 1..=3 {
        let subscription = context.open(&place).await?;
        let delivery = context.next(&*subscription).await?;
        let count = delivery.received().redelivery_count();
        check_eq("the count at a new subscription", &Some(number), &count)?;
        let settlement = match number {
            3 => Settlement::Ack,
            _ => Settlement::Retry,
        };
        context.settle_ok(delivery, settlement).await?;
        context.close(&*subscription).await?;
    }
    context.left(&place, 0).await
}

async fn retry_of_some_leaves_the_others(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 6).await?;
    let retried = [ids[1].clone(), ids[4].clone()];
    let subscription = context.open(&place).await?;
    for delivery in context.take(&*subscription, ids.len()).await? {
        let settlement = match retried.contains(&id_of(delivery.received().body())) {
            true => Settlement::Retry,
            false => Settlement::Ack,
        };
        context.settle_ok(delivery, settlement).await?;
    }
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    for id in &retried {
        check(
            came.contains(id),
            "what was retried",
            "that it comes again",
            "that it is gone",
        )?;
    }
    let profile = context.profile();
    // Where the log can only be turned back, others come as well.
    if profile.has(SourceCapability::SingleRetry) || profile.has(SourceCapability::Copies) {
        check_same("what comes again", &retried, &came)?;
    }
    Ok(())
}

/// How often each message was handled, by id.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<BTreeMap<String, u32>>>);

impl Handled {
    /// Counts one more, and says the how-manieth it is.
    fn count(&self, received: &Received) -> u32 {
        let mut handled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = handled.entry(id_of(received.body())).or_default();
        *count += 1;
        *count
    }

    fn counts(&self) -> BTreeMap<String, u32> {
        let handled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handled.clone()
    }
}

/// Consumes until the handler answers ack for the last time, and returns what the consumer
/// reports.
async fn consume(
    context: &SourceContext<'_>,
    subscription: &Arc<dyn Subscription>,
    settings: ConsumerSettings,
    acks: usize,
    handler: impl Fn(Received) -> futures_util::future::BoxFuture<'static, Settlement>
    + Send
    + Sync
    + 'static,
) -> Checked<ConsumerReport> {
    let stop = Stop::new();
    let grace = context.profile().wait + context.profile().timeout * 2;
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(acks));
    let handler: BoxedHandler = {
        let stop = stop.clone();
        let handler = Arc::new(handler);
        Arc::new(move |received| {
            let (stop, left) = (stop.clone(), Arc::clone(&left));
            // Called within the future, so that a panic is the future's.
            let handler = Arc::clone(&handler);
            async move {
                let settlement = handler(received).await;
                if settlement == Settlement::Ack
                    && left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1
                {
                    stop.by(Instant::now() + grace);
                }
                settlement
            }
            .boxed()
        })
    };
    let consuming = context.consume(subscription, settings, handler, stop);
    context
        .within(context.profile().patience(), "consume", consuming)
        .await
}

async fn retry_storm_loses_nothing(context: &SourceContext<'_>) -> Checked {
    const MESSAGES: usize = 60;
    let place = context.place().await?;
    let ids = put_spread(context, &place, MESSAGES).await?;
    context.plan("a retry");
    context.plan("a third retry of one message");
    let mut planned = BTreeMap::new();
    for id in &ids {
        let mut retries = 0;
        while retries < 3 && context.random(10) < 3 {
            retries += 1;
        }
        planned.insert(id.clone(), retries);
    }
    // One of each kind, whatever the seed.
    planned.insert(ids[context.random(MESSAGES)].clone(), 3);
    let options = long_hold(context);
    let subscription = context
        .open_with(&place, &options, &context.plan_for(&place))
        .await?;
    let handled = Handled::default();
    let handler = {
        let (handled, planned) = (handled.clone(), planned.clone());
        move |received: Received| {
            let count = handled.count(&received);
            let retries = planned.get(&id_of(received.body())).copied();
            async move {
                match retries.is_some_and(|retries| count <= retries) {
                    true => Settlement::Retry,
                    false => Settlement::Ack,
                }
            }
            .boxed()
        }
    };
    let report = consume(
        context,
        &subscription,
        context.settings(8),
        MESSAGES,
        handler,
    )
    .await?;
    check_eq("settlements without an answer", &0, &report.unsettled)?;
    for (id, count) in handled.counts() {
        let retries = planned.get(&id).copied().unwrap_or_default();
        check(
            count == retries + 1,
            "how often a message was handled",
            format!("{} times", retries + 1),
            format!("{count} times"),
        )?;
        if retries > 0 {
            context.happened("a retry");
        }
        if retries == 3 {
            context.happened("a third retry of one message");
        }
    }
    let all: Vec<String> = handled.counts().into_keys().collect();
    check_same("what was handled", &ids, &all)?;
    context.left(&place, 0).await
}

/// A message whose first handling goes wrong, and one beside it.
async fn handled_twice(
    context: &SourceContext<'_>,
    settings: ConsumerSettings,
    go_wrong: fn() -> futures_util::future::BoxFuture<'static, Settlement>,
) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 2).await?;
    let options = long_hold(context);
    let subscription = context
        .open_with(&place, &options, &context.plan_for(&place))
        .await?;
    let handled = Handled::default();
    let handler = {
        let (handled, wrong) = (handled.clone(), ids[0].clone());
        move |received: Received| {
            let count = handled.count(&received);
            match id_of(received.body()) == wrong && count == 1 {
                true => go_wrong(),
                false => async { Settlement::Ack }.boxed(),
            }
        }
    };
    let report = consume(context, &subscription, settings, ids.len(), handler).await?;
    let counts: Vec<Option<u32>> = ids
        .iter()
        .map(|id| handled.counts().get(id).copied())
        .collect();
    check_eq(
        "how often each was handled",
        &vec![Some(2), Some(1)],
        &counts,
    )?;
    check_eq("retries", &1, &report.retried)?;
    check_eq("acks", &2, &report.acked)?;
    context.left(&place, 0).await
}

async fn retry_from_a_panic(context: &SourceContext<'_>) -> Checked {
    handled_twice(context, context.settings(2), || {
        // Not the panic hook's, which would write into the output of the suite.
        async { resume_unwind(Box::new("the handler panics")) }.boxed()
    })
    .await
}

async fn retry_from_a_time_out(context: &SourceContext<'_>) -> Checked {
    let mut settings = context.settings(2);
    settings.handler_timeout = context.profile().margin();
    handled_twice(context, settings, || std::future::pending().boxed()).await
}

async fn retry_failure_is_reported_and_message_returns(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.play_always(&place, Operation::Return, SourceFault::Internal)?;
    context.settle_err(delivery, Settlement::Retry).await?;
    context.was_played()?;
    context.faults()?.clear();
    context.left(&place, 1).await?;
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

async fn retry_lost_reply_is_not_success(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.play_always(&place, Operation::Return, SourceFault::LoseReply)?;
    let error = context.settle_err(delivery, Settlement::Retry).await?;
    context.was_played()?;
    context.faults()?.clear();
    check_eq("a retry whose reply is lost", &"unknown", &error.as_str())?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

async fn retry_keeps_the_order_of_its_key(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let of = |key: &str| context.hook().with_key(key);
    let hooks: Vec<RawMessage> = vec![of("quay-7"), of("quay-7"), of("quay-8"), of("quay-7")];
    context.put(&place, &hooks).await?;
    let ids: Vec<String> = hooks.iter().map(|hook| id_of(&hook.body)).collect();
    let subscription = context.open(&place).await?;
    check(
        subscription.is_ordered(),
        "a subscription with order by key",
        "that it says so",
        "that it is not ordered",
    )?;
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let handled = Handled::default();
    let handler = {
        let (order, retried) = (Arc::clone(&order), ids[0].clone());
        move |received: Received| {
            let id = id_of(received.body());
            let is_first = id == retried && handled.count(&received) == 1;
            let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
            order.push(id);
            async move {
                match is_first {
                    true => Settlement::Retry,
                    false => Settlement::Ack,
                }
            }
            .boxed()
        }
    };
    consume(
        context,
        &subscription,
        context.settings(4),
        ids.len(),
        handler,
    )
    .await?;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let places = |ids: &[&String]| -> Vec<usize> {
        let order = order.iter().filter(|id| ids.contains(id));
        order
            .map(|id| {
                ids.iter()
                    .position(|known| *known == id)
                    .unwrap_or(usize::MAX)
            })
            .collect()
    };
    check_eq(
        "the order in which one key was handled",
        &vec![0, 0, 1, 2],
        &places(&[&ids[0], &ids[1], &ids[3]]),
    )?;
    check_eq("how another key was handled", &vec![0], &places(&[&ids[2]]))?;
    context.left(&place, 0).await
}

async fn retry_is_not_a_drop(context: &SourceContext<'_>) -> Checked {
    let dead = context.named_place("dead").await?;
    let (place, ids) = context.place_with(1).await?;
    let mut plan = context.plan_for(&place);
    plan.max_attempts = Some(4);
    plan.dead_letter = Some(dead.name().to_owned());
    let subscription = context.open_with(&place, &context.options(), &plan).await?;
    for _ in 0..2 {
        let delivery = context.next(&*subscription).await?;
        check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
        context.settle_ok(delivery, Settlement::Retry).await?;
    }
    only_these_are_left(context, &place, &*subscription, &ids).await?;
    let spent = context.stored(&dead).await?;
    check_eq("dead letters below the cap", &0, &spent.len())
}
