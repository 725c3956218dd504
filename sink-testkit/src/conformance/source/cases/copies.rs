//! Retries that are copies.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, Guarantees, Outcome, Receipt, SettleError, Settlement,
    Sink, SinkError, SubscriptionPlan,
};
use tokio::time::Instant;

use super::steps::next_is;
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of};
use crate::conformance::source::{SourceCapability, SourceCase, SourceContext};
use crate::conformance::{Checked, Destination, Failure, Gate, Hold, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        copy_is_published_before_the_original_is_done,
        "the original is consumed once its copy is stored, and not before"
    )
    .needs(&[SourceCapability::Copies]),
    source_case!(
        copy_failure_keeps_the_original,
        "a copy that cannot be published leaves the original where it is, and says so"
    )
    .needs(&[SourceCapability::Copies]),
    source_case!(
        copy_carries_body_and_attributes,
        "a copy is the same message to a handler"
    )
    .needs(&[SourceCapability::Copies]),
    source_case!(
        copy_count_grows_by_one,
        "a copy counts the deliveries of its original and its own"
    )
    .needs(&[SourceCapability::Copies, SourceCapability::Count]),
    source_case!(
        copy_goes_to_the_sink_of_the_plan,
        "a copy is published through the plan's sink and nowhere else, once"
    )
    .needs(&[SourceCapability::Copies]),
    source_case!(
        retry_without_a_sink_is_refused_and_loses_nothing,
        "a retry that has no sink for its copy is refused, and the message is left"
    )
    .needs(&[SourceCapability::Copies]),
    source_case!(
        copy_is_not_acked_by_the_originals_commit,
        "what is consumed after a retry consumes the copy neither for this consumer nor for the \
         next"
    )
    .needs(&[SourceCapability::Copies]),
];

/// The fixture's sink, with a gate before it or no way through.
struct Publisher {
    inner: Arc<dyn Sink>,
    gate: Option<Arc<Gate>>,
    is_broken: bool,
    calls: AtomicUsize,
}

impl Publisher {
    fn of(context: &SourceContext<'_>, place: &Destination) -> Checked<Self> {
        let inner = context.fixture().sink(place);
        let inner = inner.ok_or_else(|| {
            Failure::of_kit(
                "the sink of copies",
                "copies are declared and there is none",
            )
        })?;
        Ok(Self {
            inner,
            gate: None,
            is_broken: false,
            calls: AtomicUsize::new(0),
        })
    }

    fn plan(self) -> (Arc<Self>, SubscriptionPlan) {
        let publisher = Arc::new(self);
        let mut plan = SubscriptionPlan::new();
        plan.out_retry = Some(Arc::clone(&publisher) as Arc<dyn Sink>);
        (publisher, plan)
    }
}

#[async_trait]
impl Sink for Publisher {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        if self.is_broken {
            return Err(SinkError::transient(
                Outcome::NotStored,
                "Broken",
                "this sink stores nothing",
            ));
        }
        self.inner.deliver(envelope, ctx).await
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn flush(&self) {
        self.inner.flush();
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.inner.drain(deadline).await
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

async fn copy_is_published_before_the_original_is_done(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let hold = Hold::new();
    let mut publisher = Publisher::of(context, &place)?;
    publisher.gate = Some(hold.gate());
    let (_, plan) = publisher.plan();
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let delivery = context.next(&*subscription).await?;
    let mut settling = pin!(context.settle(delivery, Settlement::Retry));
    let limit = context.profile().timeout + context.profile().margin();
    let arrived = context.within(limit, "publish the copy", hold.arrivals(1));
    tokio::select! {
        arrived = arrived => arrived?,
        settled = &mut settling => {
            let observed = match settled? {
                Ok(()) => "Ok".to_owned(),
                Err(error) => format!("SettleError of kind {}", error.as_str()),
            };
            return Err(Failure::new("retry", "a wait for the copy", observed));
        }
    }
    // Time for what must not happen; the settlement goes on meanwhile.
    let early = tokio::time::timeout(context.profile().margin(), &mut settling).await;
    check(
        early.is_err(),
        "retry",
        "a wait for the copy",
        "an answer before it",
    )?;
    let left = context.unsettled(&place).await?;
    check_eq("what is left before the copy is stored", &1, &left)?;
    hold.release();
    let settled = settling.await?;
    settled.map_err(|error| Failure::new("retry", "Ok", error.to_string()))?;
    context.left(&place, 1).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn copy_failure_keeps_the_original(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let mut publisher = Publisher::of(context, &place)?;
    publisher.is_broken = true;
    let (publisher, plan) = publisher.plan();
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let delivery = context.next(&*subscription).await?;
    context.settle_err(delivery, Settlement::Retry).await?;
    let calls = publisher.calls.load(Ordering::SeqCst);
    check(
        calls > 0,
        "copies that were published",
        "one or more",
        "none",
    )?;
    context.close(&*subscription).await?;
    drop(subscription);
    context.left(&place, 1).await?;
    let subscription = context.open(&place).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn copy_carries_body_and_attributes(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let sent = context.hook_of("größer \\u{1F4E6} \\t");
    context.put(&place, std::slice::from_ref(&sent)).await?;
    let subscription = context.open(&place).await?;
    let original = context.next(&*subscription).await?;
    let first = original.received().clone();
    context.settle_ok(original, Settlement::Retry).await?;
    let copy = context.next(&*subscription).await?;
    let second = copy.received().clone();
    let (Ok(first), Ok(second)) = (first.message(), second.message()) else {
        return Err(Failure::new("the copy", "a message", "something else"));
    };
    check_eq("the id", &first.id, &second.id)?;
    check_eq("the source", &first.source_id, &second.source_id)?;
    check_eq("the tenant", &first.tenant_id, &second.tenant_id)?;
    check_eq("the time", &first.received_at, &second.received_at)?;
    check_eq("the type", &first.content_type, &second.content_type)?;
    check_eq(
        "the key of repeats",
        &first.idempotency_key(),
        &second.idempotency_key(),
    )?;
    let is_same = first.content == second.content;
    check(is_same, "the body", "the same bytes", "others")?;
    let is_same = first.headers == second.headers;
    check(is_same, "the headers", "the same", "others")?;
    for (name, value) in &sent.attributes {
        let seen = copy.received().attribute(name);
        check_eq("an attribute", &Some(&**value), &seen)?;
    }
    context.settle_ok(copy, Settlement::Ack).await
}

async fn copy_count_grows_by_one(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    for count in 1..=4 {
        let delivery = next_is(context, &*subscription, &ids[0]).await?;
        let seen = delivery.received().redelivery_count();
        check_eq("the count of deliveries", &Some(count), &seen)?;
        let settlement = match count {
            4 => Settlement::Ack,
            _ => Settlement::Retry,
        };
        context.settle_ok(delivery, settlement).await?;
    }
    context.left(&place, 0).await
}

async fn copy_goes_to_the_sink_of_the_plan(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let elsewhere = context.named_place("later").await?;
    let (publisher, plan) = Publisher::of(context, &elsewhere)?.plan();
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let delivery = context.next(&*subscription).await?;
    context.settle_ok(delivery, Settlement::Retry).await?;
    let calls = publisher.calls.load(Ordering::SeqCst);
    check_eq("copies that were published", &1, &calls)?;
    let copies = context.dead(&elsewhere, 1).await?;
    check_eq("the copy", &ids, &copies)?;
    context.left(&place, 0).await
}

async fn retry_without_a_sink_is_refused_and_loses_nothing(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let plan = SubscriptionPlan::new();
    let opened = context.try_open(&place, &context.options(), &plan).await?;
    // A source may as well refuse the plan.
    if let Ok(subscription) = opened {
        let delivery = context.next(&*subscription).await?;
        let error = context.settle_err(delivery, Settlement::Retry).await?;
        check(
            matches!(error, SettleError::Refused(_)),
            "retry",
            "SettleError::Refused",
            format!("SettleError of kind {}", error.as_str()),
        )?;
        context.close(&*subscription).await?;
    }
    context.left(&place, 1).await?;
    let subscription = context.open(&place).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn copy_is_not_acked_by_the_originals_commit(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(3).await?;
    let subscription = context.open(&place).await?;
    let mut retried = Vec::new();
    for delivery in context.take(&*subscription, 3).await? {
        let id = id_of(delivery.received().body());
        let settlement = match id == ids[0] {
            true => {
                retried.push(id);
                Settlement::Retry
            }
            false => Settlement::Ack,
        };
        context.settle_ok(delivery, settlement).await?;
    }
    check_same("what was retried", &ids[..1], &retried)?;
    context.left(&place, 1).await?;
    context.close(&*subscription).await?;
    drop(subscription);
    let subscription = context.open(&place).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}
