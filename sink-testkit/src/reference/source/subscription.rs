//! An open subscription of the reference source.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dispatch_api::{Delivery, Received, Settlement, Sink, SourceError, Subscription};
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::Client;
use super::delivery::{ReferenceDelivery, Settling};
use super::lease::Leases;
use super::place::PlaceKind;
use super::queue::MAX_ENTRIES;
use super::settler::Settler;
use super::wire::{QueueCall, QueueMessage, QueueReply, ReceiveCall};
use crate::reference::broker::body_digest;

type Deliveries = Vec<Box<dyn Delivery>>;

pub(super) struct ReferenceSubscription {
    shared: Arc<Shared>,
    is_closed: AtomicBool,
}

struct Shared {
    client: Arc<Client>,
    settling: Arc<Settling>,
    receives: AtomicU64,
    /// Receives of a log without an answer.
    unanswered: Mutex<Vec<u64>>,
    /// What a log gave to a receive that nobody waited for.
    left: Mutex<VecDeque<Box<dyn Delivery>>>,
}

impl ReferenceSubscription {
    pub(super) fn new(
        client: Client,
        max_attempts: Option<u32>,
        out_retry: Option<Arc<dyn Sink>>,
    ) -> Self {
        let client = Arc::new(client);
        let settling = Settling {
            settler: Settler::new(Arc::clone(&client)),
            leases: Leases::new(Arc::clone(&client)),
            kind: client.settings.kind,
            group: client.settings.group.clone(),
            max_attempts,
            out_retry,
        };
        Self {
            shared: Arc::new(Shared {
                client,
                settling: Arc::new(settling),
                receives: AtomicU64::new(0),
                unanswered: Mutex::default(),
                left: Mutex::default(),
            }),
            is_closed: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl Subscription for ReferenceSubscription {
    async fn receive(&self, max: NonZeroUsize) -> Result<Deliveries, SourceError> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(SourceError::subscription_closed());
        }
        let max = max.get().min(MAX_ENTRIES);
        let left = self.shared.take_left(max);
        if !left.is_empty() {
            return Ok(left);
        }
        // In a task of its own: what comes when nobody waits any more goes back at once.
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let result = shared.receive(max).await;
            if let Err(Ok(deliveries)) = sender.send(result) {
                shared.put_back(deliveries).await;
            }
        });
        receiver.await.unwrap_or_else(|_| {
            Err(SourceError::transient(
                "ReceiveStopped",
                "the receive panicked, or its runtime ended",
            ))
        })
    }

    fn is_ordered(&self) -> bool {
        self.shared.client.settings.kind != PlaceKind::Plain
    }

    fn locks_groups(&self) -> bool {
        self.shared.client.settings.kind != PlaceKind::Log
    }

    fn name(&self) -> &str {
        &self.shared.client.settings.place
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.shared.settling.settler.flush().await;
    }
}

impl Shared {
    async fn receive(&self, max: usize) -> Result<Deliveries, SourceError> {
        let settings = &self.client.settings;
        let asked = Instant::now();
        let number = self.receives.fetch_add(1, Ordering::SeqCst);
        let unanswered = self.unanswered().clone();
        let call = QueueCall::Receive(ReceiveCall {
            max,
            wait: settings.wait,
            hold: settings.hold,
            number,
            unanswered: unanswered.clone(),
        });
        let deadline = asked + settings.wait + settings.timeout;
        let (messages, waited) = match self.client.call(call, deadline).await {
            Ok(QueueReply::Messages { messages, waited }) => (messages, waited),
            Ok(_) => {
                self.unanswered().push(number);
                return Err(self.client.unexpected().into());
            }
            Err(error) => {
                self.unanswered().push(number);
                return Err(error.into());
            }
        };
        self.unanswered()
            .retain(|known| !unanswered.contains(known));
        let is_damaged = |message: &QueueMessage| body_digest(&message.body) != message.digest;
        if self.settling.kind == PlaceKind::Log && messages.iter().any(is_damaged) {
            // A log hands out in order, so all of it comes again.
            self.unanswered().push(number);
            return Err(SourceError::transient(
                "DigestMismatch",
                "a received message does not fit its digest: it is asked for again",
            ));
        }
        // The hold began no sooner than this.
        let since = asked + waited;
        let mut deliveries: Deliveries = Vec::with_capacity(messages.len());
        let mut broken_off: HashSet<String> = HashSet::new();
        for message in messages {
            let key = match self.settling.kind {
                PlaceKind::Ordered => message.key.clone(),
                PlaceKind::Plain | PlaceKind::Log => None,
            };
            // Behind one that is left, the rest of its key comes back with it.
            if key.as_ref().is_some_and(|key| broken_off.contains(key)) {
                continue;
            }
            match self.delivery(message, since) {
                Some(delivery) => deliveries.push(Box::new(delivery)),
                None => broken_off.extend(key),
            }
        }
        Ok(deliveries)
    }

    /// The delivery of a message that is what was put, and is still held.
    fn delivery(&self, message: QueueMessage, since: Instant) -> Option<ReferenceDelivery> {
        if body_digest(&message.body) != message.digest {
            tracing::warn!(
                place = self.client.settings.place,
                message_id = message.id,
                "a received message does not fit its digest: it is left unsettled"
            );
            return None;
        }
        let hold = match self.settling.kind {
            PlaceKind::Log => Leases::unlimited(),
            PlaceKind::Plain | PlaceKind::Ordered => {
                self.settling.leases.begin(&message.handle, since)?
            }
        };
        let received = Received::new(message.id, message.body, hold.lease.clone())
            .with_attributes(message.attributes)
            .with_group(message.key)
            .with_redelivery_count(Some(message.receives))
            .with_sent_at(Some(message.sent_at));
        Some(ReferenceDelivery {
            settling: Arc::clone(&self.settling),
            received,
            handle: message.handle,
            hold,
        })
    }

    fn take_left(&self, max: usize) -> Deliveries {
        let mut left = self.left();
        let count = left.len().min(max);
        left.drain(..count).collect()
    }

    /// What nobody waits for: a log has no way back, so the next receive has it.
    async fn put_back(&self, deliveries: Deliveries) {
        if self.settling.kind == PlaceKind::Log {
            self.left().extend(deliveries);
            return;
        }
        let given_back = deliveries
            .into_iter()
            .map(|delivery| delivery.settle(Settlement::Retry));
        // A failure leaves a message to the end of its hold.
        join_all(given_back).await;
    }

    fn left(&self) -> MutexGuard<'_, VecDeque<Box<dyn Delivery>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unanswered(&self) -> MutexGuard<'_, Vec<u64>> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReferenceSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceSubscription")
            .field("settings", &self.shared.client.settings)
            .finish_non_exhaustive()
    }
}
