//! A delivery of the consumer and its settlement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{Delivery, Received, SettleError, Settlement, SinkError};

use super::calls::Calls;
use super::dead_letter::{DeadLetter, headers_of_copy};
use super::hold::Hold;
use super::origin::Origin;
use crate::connection::Outgoing;

/// The longest delay of a retry: the server adds it to the time of day in nanoseconds.
const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One received message, held until it is settled or dropped.
pub(super) struct NatsDelivery {
    pub(super) calls: Arc<Calls>,
    pub(super) dead_letter: Option<Arc<DeadLetter>>,
    pub(super) received: Received,
    /// As they came.
    pub(super) headers: HeaderMap,
    pub(super) origin: Origin,
    /// Where the message is acknowledged.
    pub(super) reply: Arc<str>,
    pub(super) hold: Hold,
}

impl NatsDelivery {
    /// Whether it was delivered more often than its policy allows.
    pub(super) fn is_overspent(&self) -> bool {
        let policy = self.dead_letter.as_ref();
        policy.is_some_and(|policy| self.origin.delivered > u64::from(policy.max_attempts))
    }

    /// Moves the message to the dead-letter subject: a copy first, and only when a stream has
    /// confirmed that, the message out of the consumer.
    ///
    /// # Errors
    ///
    /// The message stays; a copy may be there.
    pub(super) async fn bury(&self) -> Result<(), SettleError> {
        let Some(policy) = &self.dead_letter else {
            return self.confirmed(Bytes::from_static(b"+TERM")).await;
        };
        let copied = self.copy(&policy.subject).await;
        let code = copied.as_ref().map_or_else(SinkError::code, |()| "");
        self.calls.telemetry.dead_lettered(code);
        copied.map_err(SettleError::from)?;
        self.confirmed(Bytes::from_static(b"+TERM")).await
    }

    async fn copy(&self, subject: &str) -> Result<(), SinkError> {
        // The sequence alone would be another message's after the stream was made anew.
        let id = format!("{}@{}", self.received.id(), self.origin.stored_at);
        let message = Outgoing {
            subject,
            headers: Some(headers_of_copy(&self.headers, &id)),
            payload: self.received.body().clone(),
        };
        self.calls.store(message, self.calls.deadline()).await
    }

    async fn carry_out(&self, settlement: Settlement) -> Result<(), SettleError> {
        let kind = match settlement {
            Settlement::Ack => Bytes::from_static(b"+ACK"),
            Settlement::RetryAfter(delay) if !delay.is_zero() => {
                let delay = delay.min(MAX_DELAY).as_nanos();
                Bytes::from(format!("-NAK {{\"delay\":{delay}}}"))
            }
            Settlement::Retry | Settlement::RetryAfter(_) => Bytes::from_static(b"-NAK"),
            Settlement::Drop if self.is_spent() => {
                if self.received.lease().is_lost() {
                    return Err(SettleError::Lost(None));
                }
                return self.bury().await;
            }
            Settlement::Drop => Bytes::from_static(b"+TERM"),
        };
        self.confirmed(kind).await
    }

    /// Whether a policy takes it out now.
    fn is_spent(&self) -> bool {
        let count = self.received.redelivery_count().unwrap_or(u32::MAX);
        let policy = self.dead_letter.as_ref();
        policy.is_some_and(|policy| policy.is_spent(count))
    }

    /// The last word about the message.
    async fn confirmed(&self, kind: Bytes) -> Result<(), SettleError> {
        if !self.hold.end().await {
            // The server would apply it to somebody else's delivery.
            return Err(SettleError::Lost(None));
        }
        let deadline = self.calls.deadline();
        let confirmed = self.calls.acknowledge(&self.reply, kind, deadline).await;
        confirmed.map_err(SettleError::from)
    }
}

#[async_trait]
impl Delivery for NatsDelivery {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let result = self.carry_out(settlement).await;
        let code = result.as_ref().map_or_else(SettleError::code, |()| "");
        self.calls.telemetry.settled(settlement.as_str(), code);
        result
    }
}

impl fmt::Debug for NatsDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsDelivery")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
