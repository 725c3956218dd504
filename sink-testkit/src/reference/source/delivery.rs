//! A delivery and its settlement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Delivery, Received, SettleError, Settlement, Sink, SinkError};
use tokio::time::Instant;

use super::client::GONE;
use super::copies;
use super::lease::{Hold, Leases};
use super::place::PlaceKind;
use super::settler::{Change, Settler};
use super::wire::HoldChange;

/// What the deliveries of one subscription share.
pub(super) struct Settling {
    pub(super) settler: Settler,
    pub(super) leases: Leases,
    pub(super) kind: PlaceKind,
    pub(super) group: String,
    /// The cap of the declared redrive policy.
    pub(super) max_attempts: Option<u32>,
    /// Where copies are published.
    pub(super) out_retry: Option<Arc<dyn Sink>>,
}

pub(super) struct ReferenceDelivery {
    pub(super) settling: Arc<Settling>,
    pub(super) received: Received,
    pub(super) handle: String,
    pub(super) hold: Hold,
}

impl ReferenceDelivery {
    /// What a settlement is at the broker.
    fn change(&self, settlement: Settlement) -> Change {
        match settlement {
            Settlement::Ack => self.ack(),
            Settlement::Retry => self.give_back(Duration::ZERO),
            Settlement::RetryAfter(delay) => self.give_back(self.kept_to(delay)),
            // The broker moves a spent message when it is back; an ack would lose it.
            Settlement::Drop if self.is_spent() => self.give_back(Duration::ZERO),
            Settlement::Drop => self.ack(),
        }
    }

    fn ack(&self) -> Change {
        Change::Ack(self.handle.clone())
    }

    fn give_back(&self, time: Duration) -> Change {
        Change::Return(HoldChange {
            handle: self.handle.clone(),
            time,
        })
    }

    fn is_spent(&self) -> bool {
        let count = self.received.redelivery_count();
        self.settling
            .max_attempts
            .is_some_and(|max| count.is_none_or(|count| count >= max))
    }

    /// A delay in whole seconds, rounded up, that ends within the longest hold.
    fn kept_to(&self, delay: Duration) -> Duration {
        let asked = whole_seconds(delay);
        let left = self.hold.end.map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        });
        asked.min(Duration::from_secs(left.as_secs()))
    }

    /// Publishes a copy, so that the original can be marked done.
    async fn copy(&self, delay: Duration) -> Result<(), SettleError> {
        let Some(sink) = &self.settling.out_retry else {
            return Err(settle_error(SinkError::config(
                "NoRetrySink",
                "a log gives nothing back: register the source with out_retry",
            )));
        };
        let not_before = (!delay.is_zero()).then(|| Instant::now() + delay);
        let (envelope, ctx) = copies::copy_of(&self.received, &self.settling.group, not_before);
        sink.deliver(&envelope, &ctx)
            .await
            .map(|_receipt| ())
            .map_err(settle_error)
    }
}

/// A copy waits no longer: ten years.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Rounded up to whole seconds.
fn whole_seconds(time: Duration) -> Duration {
    let seconds = time
        .as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0));
    Duration::from_secs(seconds)
}

fn settle_error(error: SinkError) -> SettleError {
    if error.code() == GONE {
        return SettleError::Lost(Some(error.into()));
    }
    error.into()
}

#[async_trait]
impl Delivery for ReferenceDelivery {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let Settling {
            settler,
            leases,
            kind,
            ..
        } = &*self.settling;
        if !leases.end(&self.hold).await {
            return Err(SettleError::Lost(None));
        }
        let change = match (kind, settlement) {
            (PlaceKind::Log, Settlement::Retry) => {
                self.copy(Duration::ZERO).await?;
                self.ack()
            }
            (PlaceKind::Log, Settlement::RetryAfter(delay)) => {
                self.copy(whole_seconds(delay).min(LONGEST_DELAY)).await?;
                self.ack()
            }
            _ => self.change(settlement),
        };
        settler.settle(change).await.map_err(settle_error)
    }
}

impl Drop for ReferenceDelivery {
    fn drop(&mut self) {
        self.settling.leases.forget(&self.hold);
    }
}

impl fmt::Debug for ReferenceDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceDelivery")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
