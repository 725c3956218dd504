//! Mutants of retries that are copies.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, Guarantees, Receipt, Settlement, Sink, SinkError,
    Source,
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::tools::{planning, settling};
use super::{SourceMutant, SourceSeam};
use crate::conformance::source::SourceOptions;
use crate::reference::source::CopySink;

type Delivered = BoxFuture<'static, Result<Receipt, SinkError>>;
type Deliver = fn(Arc<dyn Sink>, Envelope, DeliveryContext) -> Delivered;

/// The plan's sink, used otherwise.
struct Patched {
    inner: Arc<dyn Sink>,
    deliver: Deliver,
}

#[async_trait]
impl Sink for Patched {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        (self.deliver)(Arc::clone(&self.inner), envelope.clone(), ctx.clone()).await
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

impl fmt::Debug for Patched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A source that uses the plan's sink otherwise.
fn publishing(inner: Arc<dyn Source>, deliver: Deliver) -> Arc<dyn Source> {
    planning(inner, move |mut plan| {
        plan.out_retry = plan
            .out_retry
            .map(|inner| Arc::new(Patched { inner, deliver }) as Arc<dyn Sink>);
        plan
    })
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "PublishesInTheBackground",
        "consumes the original while its copy is on its way",
        "copy_is_published_before_the_original_is_done",
        "retry: expected a wait for the copy",
        SourceSeam::Source(|inner, _| {
            publishing(inner, |sink, envelope, ctx| {
                tokio::spawn(async move { sink.deliver(&envelope, &ctx).await });
                Box::pin(async { Ok(Receipt::new()) })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "IgnoresFailedCopies",
        "consumes the original although its copy failed",
        "copy_failure_keeps_the_original",
        "retry: expected an error; observed Ok",
        SourceSeam::Source(|inner, _| {
            publishing(inner, |sink, envelope, ctx| {
                Box::pin(async move {
                    let delivered = sink.deliver(&envelope, &ctx).await;
                    Ok(delivered.unwrap_or_default())
                })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "CopiesTheBodyAlone",
        "leaves the attributes out of a copy",
        "copy_carries_body_and_attributes",
        "an attribute: expected Some(\"harbor\"); observed None",
        SourceSeam::Source(|inner, _| {
            publishing(inner, |sink, envelope, ctx| {
                let envelope = envelope.with_headers(Vec::new());
                Box::pin(async move { sink.deliver(&envelope, &ctx).await })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "EveryCopyIsTheSecond",
        "counts each copy as the second delivery",
        "copy_count_grows_by_one",
        "the count of deliveries: expected Some(3); observed Some(2)",
        SourceSeam::Source(|inner, _| {
            publishing(inner, |sink, envelope, _| {
                let second = NonZeroU32::new(2).expect("2 is not zero");
                let ctx = DeliveryContext::attempt(second);
                Box::pin(async move { sink.deliver(&envelope, &ctx).await })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "CopiesToItself",
        "publishes copies to its own place, whatever the plan says",
        "copy_goes_to_the_sink_of_the_plan",
        "copies that were published: expected 1; observed 0",
        SourceSeam::Source(|inner, parts| {
            planning(inner, move |mut plan| {
                let sink = CopySink::new(Arc::clone(&parts.broker), &*parts.place);
                plan.out_retry = Some(Arc::new(sink));
                plan
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "CopiesTwice",
        "publishes every copy twice",
        "copy_goes_to_the_sink_of_the_plan",
        "copies that were published: expected 1; observed 2",
        SourceSeam::Source(|inner, _| {
            publishing(inner, |sink, envelope, ctx| {
                Box::pin(async move {
                    sink.deliver(&envelope, &ctx).await?;
                    sink.deliver(&envelope, &ctx).await
                })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "AcksWithoutASink",
        "consumes what it has no sink for",
        "retry_without_a_sink_is_refused_and_loses_nothing",
        "retry: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, parts| {
            let has_sink = parts.plan.out_retry.is_some();
            settling(inner, move |delivery, settlement| {
                Box::pin(async move {
                    match settlement {
                        Settlement::Retry if !has_sink => delivery.settle(Settlement::Ack).await,
                        other => delivery.settle(other).await,
                    }
                })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "CommitsToTheEnd",
        "consumes with an ack all that the log has",
        "copy_is_not_acked_by_the_originals_commit",
        "count what is left: expected 1 messages; observed 0 messages",
        SourceSeam::Subscription(|inner, parts| {
            let log = Arc::clone(&inner);
            let options: SourceOptions = parts.options;
            settling(inner, move |delivery, settlement| {
                let (log, wait) = (Arc::clone(&log), options.wait);
                Box::pin(async move {
                    delivery.settle(settlement).await?;
                    if settlement != Settlement::Ack {
                        return Ok(());
                    }
                    let receive = log.receive(std::num::NonZeroUsize::MAX);
                    let rest = tokio::time::timeout(wait * 2, receive).await;
                    for delivery in rest.into_iter().flatten().flatten() {
                        delivery.settle(Settlement::Ack).await?;
                    }
                    Ok(())
                })
            })
        }),
    )
    .in_mode("log"),
];
