//! Wrappers that leave everything but one thing as it is.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    Consumer, ConsumerReport, ConsumerSettings, Delivery, Received, SettleError, Settlement,
    Source, SourceError, Stop, Subscription, SubscriptionPlan,
};
use futures_util::future::BoxFuture;

use super::SourceParts;
use crate::conformance::source::BoxedHandler;
use crate::reference::WireError;
use crate::reference::source::{
    EntryAnswer, QueueMessage, QueueReply, QueueRequest, QueueWire, ReferenceSource,
    ReferenceSourceSettings,
};

/// A boxed future.
pub(super) type Later<T> = BoxFuture<'static, T>;
/// What an opening answers.
pub(super) type Opened = Result<Arc<dyn Subscription>, SourceError>;
/// What a receive answers.
pub(super) type Deliveries = Result<Vec<Box<dyn Delivery>>, SourceError>;
/// What a settlement answers.
pub(super) type Settled = Result<(), SettleError>;
/// What a request answers.
pub(super) type Replied = Result<QueueReply, WireError>;

type Open = dyn Fn(Arc<dyn Source>, SubscriptionPlan) -> Later<Opened> + Send + Sync;
type Receive = dyn Fn(Arc<dyn Subscription>, NonZeroUsize) -> Later<Deliveries> + Send + Sync;
type Close = dyn Fn(Arc<dyn Subscription>) -> Later<()> + Send + Sync;
type Each = dyn Fn(Box<dyn Delivery>) -> Box<dyn Delivery> + Send + Sync;
type Settle = dyn Fn(Box<dyn Delivery>, Settlement) -> Later<Settled> + Send + Sync;
type Call = dyn Fn(Arc<dyn QueueWire>, QueueRequest) -> Later<Replied> + Send + Sync;

/// A source that opens otherwise.
struct PatchedSource {
    inner: Arc<dyn Source>,
    open: Box<Open>,
}

#[async_trait]
impl Source for PatchedSource {
    async fn open(&self, plan: &SubscriptionPlan) -> Opened {
        (self.open)(Arc::clone(&self.inner), plan.clone()).await
    }
}

impl fmt::Debug for PatchedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A source that opens otherwise. The source within is handed over with the plan.
pub(super) fn opening(
    inner: Arc<dyn Source>,
    open: impl Fn(Arc<dyn Source>, SubscriptionPlan) -> Later<Opened> + Send + Sync + 'static,
) -> Arc<dyn Source> {
    Arc::new(PatchedSource {
        inner,
        open: Box::new(open),
    })
}

/// A source that opens with another plan.
pub(super) fn planning(
    inner: Arc<dyn Source>,
    change: impl Fn(SubscriptionPlan) -> SubscriptionPlan + Send + Sync + 'static,
) -> Arc<dyn Source> {
    opening(inner, move |inner, plan| {
        let plan = change(plan);
        Box::pin(async move { inner.open(&plan).await })
    })
}

/// An honest source of other settings.
pub(super) fn reconfigured(
    parts: &SourceParts,
    change: impl FnOnce(&mut ReferenceSourceSettings),
) -> Arc<dyn Source> {
    let mut settings = parts.settings.clone();
    change(&mut settings);
    Arc::new(ReferenceSource::new(settings, Arc::clone(&parts.broker)))
}

/// A subscription of which single methods are replaced.
pub(super) struct PatchedSubscription {
    inner: Arc<dyn Subscription>,
    receive: Option<Box<Receive>>,
    close: Option<Box<Close>>,
    each: Option<Box<Each>>,
    is_ordered: Option<bool>,
    shown: Option<String>,
}

impl PatchedSubscription {
    /// Everything as it is.
    pub(super) fn new(inner: Arc<dyn Subscription>) -> Self {
        Self {
            inner,
            receive: None,
            close: None,
            each: None,
            is_ordered: None,
            shown: None,
        }
    }

    /// Replaces the receive.
    pub(super) fn receive(
        mut self,
        receive: impl Fn(Arc<dyn Subscription>, NonZeroUsize) -> Later<Deliveries>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.receive = Some(Box::new(receive));
        self
    }

    /// Replaces the close.
    pub(super) fn close(
        mut self,
        close: impl Fn(Arc<dyn Subscription>) -> Later<()> + Send + Sync + 'static,
    ) -> Self {
        self.close = Some(Box::new(close));
        self
    }

    /// Changes each delivery, after a receive that is replaced too.
    pub(super) fn each(
        mut self,
        change: impl Fn(Box<dyn Delivery>) -> Box<dyn Delivery> + Send + Sync + 'static,
    ) -> Self {
        self.each = Some(Box::new(change));
        self
    }

    /// Replaces the claim of order.
    pub(super) fn ordered(mut self, is_ordered: bool) -> Self {
        self.is_ordered = Some(is_ordered);
        self
    }

    /// Replaces `Debug`.
    pub(super) fn shown(mut self, shown: impl Into<String>) -> Self {
        self.shown = Some(shown.into());
        self
    }

    /// The subscription.
    pub(super) fn subscription(self) -> Arc<dyn Subscription> {
        Arc::new(self)
    }
}

#[async_trait]
impl Subscription for PatchedSubscription {
    async fn receive(&self, max: NonZeroUsize) -> Deliveries {
        let deliveries = match &self.receive {
            Some(receive) => receive(Arc::clone(&self.inner), max).await?,
            None => self.inner.receive(max).await?,
        };
        Ok(match &self.each {
            Some(each) => deliveries.into_iter().map(each).collect(),
            None => deliveries,
        })
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered.unwrap_or_else(|| self.inner.is_ordered())
    }

    fn locks_groups(&self) -> bool {
        self.inner.locks_groups()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn close(&self) {
        match &self.close {
            Some(close) => close(Arc::clone(&self.inner)).await,
            None => self.inner.close().await,
        }
    }
}

impl fmt::Debug for PatchedSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            Some(shown) => f.write_str(shown),
            None => self.inner.fmt(f),
        }
    }
}

/// A subscription that receives otherwise.
pub(super) fn receiving(
    inner: Arc<dyn Subscription>,
    receive: impl Fn(Arc<dyn Subscription>, NonZeroUsize) -> Later<Deliveries> + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    PatchedSubscription::new(inner)
        .receive(receive)
        .subscription()
}

/// A subscription that closes otherwise.
pub(super) fn closing(
    inner: Arc<dyn Subscription>,
    close: impl Fn(Arc<dyn Subscription>) -> Later<()> + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    PatchedSubscription::new(inner).close(close).subscription()
}

/// A subscription whose deliveries settle otherwise.
pub(super) fn settling(
    inner: Arc<dyn Subscription>,
    settle: impl Fn(Box<dyn Delivery>, Settlement) -> Later<Settled> + Clone + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    let each = move |delivery| -> Box<dyn Delivery> {
        Box::new(PatchedDelivery::new(delivery).settle(settle.clone()))
    };
    PatchedSubscription::new(inner).each(each).subscription()
}

/// A subscription whose deliveries are settled with something else.
pub(super) fn resettling(
    inner: Arc<dyn Subscription>,
    change: impl Fn(Settlement) -> Settlement + Clone + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    settling(inner, move |delivery, settlement| {
        delivery.settle(change(settlement))
    })
}

/// A subscription that answers settlements otherwise.
pub(super) fn answering(
    inner: Arc<dyn Subscription>,
    change: impl Fn(Settlement, Settled) -> Settled + Clone + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    settling(inner, move |delivery, settlement| {
        let change = change.clone();
        Box::pin(async move { change(settlement, delivery.settle(settlement).await) })
    })
}

/// A subscription that hands out something else than was received.
pub(super) fn changing_received(
    inner: Arc<dyn Subscription>,
    change: impl Fn(&Received) -> Received + Send + Sync + 'static,
) -> Arc<dyn Subscription> {
    let each = move |delivery: Box<dyn Delivery>| -> Box<dyn Delivery> {
        let received = change(delivery.received());
        Box::new(PatchedDelivery::new(delivery).received(received))
    };
    PatchedSubscription::new(inner).each(each).subscription()
}

/// What was received, with another id and body.
pub(super) fn rebuilt(
    received: &Received,
    id: impl Into<String>,
    body: impl Into<Bytes>,
) -> Received {
    Received::new(id, body, received.lease().clone())
        .with_attributes(received.attributes().to_vec())
        .with_group(received.group().map(str::to_owned))
        .with_redelivery_count(received.redelivery_count())
        .with_sent_at(received.sent_at())
}

/// A delivery of which single methods are replaced.
pub(super) struct PatchedDelivery {
    inner: Box<dyn Delivery>,
    received: Option<Received>,
    settle: Option<Box<Settle>>,
    shown: Option<String>,
}

impl PatchedDelivery {
    /// Everything as it is.
    pub(super) fn new(inner: Box<dyn Delivery>) -> Self {
        Self {
            inner,
            received: None,
            settle: None,
            shown: None,
        }
    }

    /// Replaces what was received.
    pub(super) fn received(mut self, received: Received) -> Self {
        self.received = Some(received);
        self
    }

    /// Replaces the settlement. The delivery within is handed over.
    pub(super) fn settle(
        mut self,
        settle: impl Fn(Box<dyn Delivery>, Settlement) -> Later<Settled> + Send + Sync + 'static,
    ) -> Self {
        self.settle = Some(Box::new(settle));
        self
    }

    /// Replaces `Debug`.
    pub(super) fn shown(mut self, shown: impl Into<String>) -> Self {
        self.shown = Some(shown.into());
        self
    }
}

#[async_trait]
impl Delivery for PatchedDelivery {
    fn received(&self) -> &Received {
        match &self.received {
            Some(received) => received,
            None => self.inner.received(),
        }
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Settled {
        match self.settle {
            Some(settle) => settle(self.inner, settlement).await,
            None => self.inner.settle(settlement).await,
        }
    }
}

impl fmt::Debug for PatchedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            Some(shown) => f.write_str(shown),
            None => self.inner.fmt(f),
        }
    }
}

/// A wire that carries requests otherwise.
struct PatchedWire {
    inner: Arc<dyn QueueWire>,
    call: Box<Call>,
}

#[async_trait]
impl QueueWire for PatchedWire {
    async fn call(&self, request: QueueRequest) -> Replied {
        (self.call)(Arc::clone(&self.inner), request).await
    }
}

/// A wire that carries requests otherwise. The wire within is handed over with the request.
pub(super) fn calling(
    inner: Arc<dyn QueueWire>,
    call: impl Fn(Arc<dyn QueueWire>, QueueRequest) -> Later<Replied> + Send + Sync + 'static,
) -> Arc<dyn QueueWire> {
    Arc::new(PatchedWire {
        inner,
        call: Box::new(call),
    })
}

/// A wire that changes replies; the request is the one that was sent.
pub(super) fn replying(
    inner: Arc<dyn QueueWire>,
    change: impl Fn(&QueueRequest, Replied) -> Replied + Clone + Send + Sync + 'static,
) -> Arc<dyn QueueWire> {
    calling(inner, move |inner, request| {
        let change = change.clone();
        Box::pin(async move {
            let reply = inner.call(request.clone()).await;
            change(&request, reply)
        })
    })
}

/// A wire that changes the messages of replies.
pub(super) fn changing_messages(
    inner: Arc<dyn QueueWire>,
    change: impl Fn(&mut Vec<QueueMessage>) + Clone + Send + Sync + 'static,
) -> Arc<dyn QueueWire> {
    replying(inner, move |_, mut reply| {
        if let Ok(QueueReply::Messages { messages, .. }) = &mut reply {
            change(messages);
        }
        reply
    })
}

/// A wire that changes the answers for messages of a request.
pub(super) fn changing_answers(
    inner: Arc<dyn QueueWire>,
    change: impl Fn(&QueueRequest, &mut Vec<EntryAnswer>) + Clone + Send + Sync + 'static,
) -> Arc<dyn QueueWire> {
    replying(inner, move |request, mut reply| {
        if let Ok(QueueReply::Answers(answers)) = &mut reply {
            change(request, answers);
        }
        reply
    })
}

/// Consumes as an honest consumer does.
pub(super) fn consuming(
    subscription: Arc<dyn Subscription>,
    settings: ConsumerSettings,
    handler: BoxedHandler,
    stop: Stop,
) -> Later<ConsumerReport> {
    Box::pin(async move {
        let handler = move |received: Received| handler(received);
        Consumer::new(settings)
            .run(subscription, handler, stop)
            .await
    })
}
