//! A delivery of the queue and its settlement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Delivery, Received, SettleError, Settlement, SinkError};
use tokio::time::Instant;

use crate::calls::is_lost;
use crate::lease::{Hold, Leases};
use crate::queue::whole_seconds;
use crate::requests::Change;
use crate::settler::{Caller, Settler};
use crate::telemetry::ConsumerTelemetry;

/// What the deliveries of one subscription share.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) settler: Settler,
    pub(crate) leases: Leases<Caller>,
    /// The declared redrive policy's count.
    pub(crate) max_attempts: Option<u32>,
    pub(crate) telemetry: ConsumerTelemetry,
}

/// One received message, held until it is settled or dropped.
pub(crate) struct SqsDelivery {
    pub(crate) settling: Arc<Settling>,
    pub(crate) received: Received,
    pub(crate) handle: Arc<str>,
    pub(crate) hold: Hold,
}

impl SqsDelivery {
    /// What a settlement is at the queue.
    fn change(&self, settlement: Settlement) -> Change {
        match settlement {
            Settlement::Ack => Change::Delete,
            Settlement::Retry => Change::Visibility(0),
            Settlement::RetryAfter(delay) => Change::Visibility(self.seconds(delay)),
            // The next receive moves a spent message to the dead-letter queue; a delete would
            // lose it.
            Settlement::Drop if self.is_spent() => Change::Visibility(0),
            Settlement::Drop => Change::Delete,
        }
    }

    /// Whether the declared redrive policy moves the message on its next receive. It may, where
    /// the count is unknown.
    fn is_spent(&self) -> bool {
        let count = self.received.redelivery_count();
        self.settling
            .max_attempts
            .is_some_and(|max| count.is_none_or(|count| count >= max))
    }

    /// A delay in whole seconds, rounded up, and no longer than the service allows.
    fn seconds(&self, delay: Duration) -> u64 {
        let asked = whole_seconds(delay).as_secs();
        let left = self.hold.end.saturating_duration_since(Instant::now());
        let allowed = left.as_secs();
        if asked > allowed {
            self.settling.telemetry.delay_shortened(asked, allowed);
        }
        asked.min(allowed)
    }

    async fn carry_out(&self, settlement: Settlement) -> Result<(), SettleError> {
        if !self.settling.leases.end(self.hold.number).await {
            return Err(SettleError::Lost(None));
        }
        let change = self.change(settlement);
        let changed = self.settling.settler.change(&self.handle, change).await;
        changed.map_err(settle_error)
    }
}

fn settle_error(error: SinkError) -> SettleError {
    if is_lost(&error) {
        return SettleError::Lost(Some(error.into()));
    }
    error.into()
}

#[async_trait]
impl Delivery for SqsDelivery {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let result = self.carry_out(settlement).await;
        let code = result.as_ref().map_or_else(SettleError::code, |()| "");
        self.settling.telemetry.settled(settlement.as_str(), code);
        result
    }
}

impl Drop for SqsDelivery {
    fn drop(&mut self) {
        self.settling.leases.forget(self.hold.number);
    }
}

impl fmt::Debug for SqsDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsDelivery")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
