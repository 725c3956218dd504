//! An open subscription: receiving, and what comes of it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_nats::Message;
use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{Delivery, ErrorChain, Received, Settlement, SourceError, Subscription};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::calls::Calls;
use super::dead_letter::DeadLetter;
use super::delivery::NatsDelivery;
use super::hold::Hold;
use super::origin::Origin;

/// The most messages of a receive, whatever is asked for: each is held by a task.
pub(super) const MAX_BATCH: usize = 256;

/// A consumer that is consumed.
#[derive(Debug)]
pub(super) struct NatsSubscription {
    shared: Arc<Shared>,
    is_closed: AtomicBool,
}

impl NatsSubscription {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            is_closed: AtomicBool::new(false),
        }
    }
}

/// What opening a source found out.
#[derive(Debug)]
pub(super) struct Shared {
    /// `<stream>/<durable>`.
    pub(super) name: String,
    pub(super) calls: Arc<Calls>,
    pub(super) dead_letter: Option<Arc<DeadLetter>>,
    pub(super) ack_wait: Duration,
    pub(super) wait: Duration,
    pub(super) max_batch: usize,
}

#[async_trait]
impl Subscription for NatsSubscription {
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(SourceError::subscription_closed());
        }
        // In a task of its own: messages that come when nobody waits for them any more go
        // back at once, and are not held until their time is over.
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let result = shared.receive(max.get().min(shared.max_batch)).await;
            if let Err(Ok(deliveries)) = sender.send(result) {
                let given_back = deliveries
                    .into_iter()
                    .map(|delivery| delivery.settle(Settlement::Retry));
                join_all(given_back).await;
            }
        });
        receiver.await.unwrap_or_else(|_| {
            Err(SourceError::transient(
                "ReceiveStopped",
                "the runtime ended that the receive ran on, or the receive panicked",
            ))
        })
    }

    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

impl Shared {
    async fn receive(&self, max: usize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        let arrived = Mutex::new(Vec::new());
        let take = |message: Message| {
            if let Some(delivery) = self.delivery(message) {
                let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                arrived.push(delivery);
            }
        };
        let pulled = self.calls.pull(max, self.wait, &take).await;
        let arrived = arrived.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = pulled {
            self.calls.telemetry.receive_failed(error.code());
            // What came before is there all the same; the next receive tells of the fault.
            if arrived.is_empty() {
                return Err(error.into());
            }
        }
        let (spent, good): (Vec<_>, Vec<_>) =
            arrived.into_iter().partition(NatsDelivery::is_overspent);
        let burials: Vec<_> = spent.iter().map(|delivery| self.bury(delivery)).collect();
        join_all(burials).await;
        self.calls.telemetry.received(good.len(), "");
        let boxed = |delivery| Box::new(delivery) as Box<dyn Delivery>;
        Ok(good.into_iter().map(boxed).collect())
    }

    /// A message that stays is delivered again when its hold is over, and tried again then.
    async fn bury(&self, delivery: &NatsDelivery) {
        self.calls.telemetry.received(1, "MaxAttemptsExceeded");
        if let Err(error) = delivery.bury().await
            && let Some(count) = self.calls.telemetry.not_moved.due()
        {
            tracing::warn!(
                stream = self.calls.stream,
                durable = self.calls.durable,
                message_id = delivery.received.id(),
                error = %ErrorChain(&error),
                count,
                "a spent message could not be moved to the dead-letter subject: it stays, and is \
                 moved when it comes back"
            );
        }
    }

    fn delivery(&self, message: Message) -> Option<NatsDelivery> {
        let origin = message.reply.as_deref().and_then(Origin::parse);
        let (Some(reply), Some(origin)) = (message.reply, origin) else {
            self.calls.telemetry.received(1, "UnexpectedMessage");
            if let Some(count) = self.calls.telemetry.foreign.due() {
                tracing::warn!(
                    stream = self.calls.stream,
                    durable = self.calls.durable,
                    count,
                    "a message came that is none of the consumer's: it is left alone"
                );
            }
            return None;
        };
        let reply: Arc<str> = Arc::from(reply.as_str());
        let hold = Hold::begin(Arc::clone(&self.calls), Arc::clone(&reply), self.ack_wait);
        let headers = message.headers.unwrap_or_default();
        let attributes = headers.iter().flat_map(|(name, values)| {
            let name: &str = name.as_ref();
            let pair = |value: &async_nats::HeaderValue| {
                (
                    name.to_owned(),
                    Bytes::copy_from_slice(value.as_str().as_bytes()),
                )
            };
            values.iter().map(pair)
        });
        let id = format!("{}/{}", self.calls.stream, origin.sequence);
        let received = Received::new(id, message.payload, hold.lease())
            .with_attributes(attributes.collect())
            // More than that many is as many as anybody asks about.
            .with_redelivery_count(Some(u32::try_from(origin.delivered).unwrap_or(u32::MAX)))
            .with_sent_at(UNIX_EPOCH.checked_add(Duration::from_nanos(origin.stored_at)));
        Some(NatsDelivery {
            calls: Arc::clone(&self.calls),
            dead_letter: self.dead_letter.clone(),
            received,
            headers,
            origin,
            reply,
            hold,
        })
    }
}
