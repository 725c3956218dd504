//! A delivery of a record and its settlement.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Delivery, ErrorClass, Outcome, Received, SettleError, Settlement, SinkError, SourceError,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::{Instant, timeout_at};

use super::client::lock;
use super::offsets::Place;
use super::receive::Shared;
use super::record::StoredRecord;
use crate::classify;

/// How long a record rests that was left unsettled, so that it does not come over and over.
const REST: Duration = Duration::from_secs(1);

/// One record, out until it is settled or dropped.
pub(super) struct KafkaDelivery {
    pub(super) shared: Arc<Shared>,
    pub(super) place: Place,
    pub(super) record: StoredRecord,
    pub(super) received: Received,
    /// It waits to be handed out again, and this is not the delivery of it any more.
    pub(super) is_back: AtomicBool,
}

impl KafkaDelivery {
    async fn carry_out(&self, settlement: Settlement) -> Result<(), SettleError> {
        if !lock(&self.shared.offsets).is_held(self.place) {
            return Err(SettleError::Lost(None));
        }
        let deadline = Instant::now() + self.shared.timeout;
        let is_spent = self.is_spent();
        let is_copied = match settlement {
            Settlement::Retry | Settlement::RetryAfter(_) | Settlement::Drop if is_spent => {
                self.bury(deadline).await?;
                true
            }
            Settlement::Retry => {
                self.copy(Duration::ZERO, deadline).await?;
                true
            }
            Settlement::RetryAfter(delay) => {
                self.copy(delay, deadline).await?;
                true
            }
            Settlement::Ack | Settlement::Drop => false,
        };
        let committed = self.commit(Instant::now() + self.shared.timeout).await;
        committed.map_err(|error| as_begun(error, is_copied))
    }

    /// Whether a policy takes it out now.
    fn is_spent(&self) -> bool {
        let policy = self.shared.dead_letter.as_ref();
        policy.is_some_and(|policy| policy.is_spent(&self.record))
    }

    /// Moves the record to the dead-letter topic.
    pub(super) async fn bury(&self, deadline: Instant) -> Result<(), SettleError> {
        let Some(policy) = &self.shared.dead_letter else {
            return Ok(());
        };
        let buried = policy.bury(&self.record, deadline).await;
        let code = buried.as_ref().map_or_else(SinkError::code, |()| "");
        self.shared.telemetry.dead_lettered(code);
        buried.map_err(SettleError::from)
    }

    async fn copy(&self, delay: Duration, deadline: Instant) -> Result<(), SettleError> {
        let Some(copies) = &self.shared.copies else {
            return Err(SettleError::from(SinkError::config(
                "NoRetrySink",
                "Kafka gives nothing back, so that a retry is a copy: set out_retry to the sink \
                 that publishes it",
            )));
        };
        let published = copies.publish(&self.record, delay, deadline).await;
        published.map_err(SettleError::from)
    }

    /// The record is done: up to where all are, that is committed.
    pub(super) async fn commit(&self, deadline: Instant) -> Result<(), SettleError> {
        let place = self.place;
        let done = lock(&self.shared.offsets).done(place);
        match done {
            Err(_) => return Err(SettleError::Lost(None)),
            // Those before it are out: theirs is the commit that counts for it too.
            Ok(false) => return Ok(()),
            Ok(true) => {}
        }
        let answer = self.shared.commits.commit(place);
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(code))) => Err(self.not_committed(code)),
            Ok(Err(_)) => Err(SettleError::Lost(None)),
            Err(_) => Err(SettleError::from(SinkError::transient(
                Outcome::Unknown,
                "Timeout",
                "no answer to the commit in time",
            ))),
        }
    }

    fn not_committed(&self, code: Code) -> SettleError {
        let error = classify::commit_failed(code, &self.shared.topic);
        match error.class() {
            // The brokers know this member no more, or not as the partition's.
            ErrorClass::Permanent => SettleError::Lost(Some(error.into())),
            _ => error.into(),
        }
    }
}

/// What is done is within the next commit of its partition, and a copy may be out: a commit that
/// is refused leaves open what becomes of the record. One of a partition that is another
/// member's comes to that, unless there is a copy beside the record now.
fn as_begun(error: SettleError, is_copied: bool) -> SettleError {
    match error {
        SettleError::Refused(error) => SettleError::Unknown(error),
        SettleError::Lost(error) if is_copied => SettleError::Unknown(error.unwrap_or_else(|| {
            SourceError::transient(
                "NotAssigned",
                "the partition went to another member after the copy was stored: both come",
            )
        })),
        other => other,
    }
}

#[async_trait]
impl Delivery for KafkaDelivery {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let result = self.carry_out(settlement).await;
        let code = result.as_ref().map_or_else(SettleError::code, |()| "");
        self.shared.telemetry.settled(settlement.as_str(), code);
        result
    }

    async fn give_back(self: Box<Self>) -> Result<(), SettleError> {
        self.is_back.store(true, Ordering::Relaxed);
        let is_back = self
            .shared
            .put_back(self.place, &self.record, Duration::ZERO);
        is_back.then_some(()).ok_or(SettleError::Lost(None))
    }
}

impl Drop for KafkaDelivery {
    fn drop(&mut self) {
        if !self.is_back.load(Ordering::Relaxed) {
            // Has no effect on what is done, or is lost.
            self.shared.put_back(self.place, &self.record, REST);
        }
    }
}

impl fmt::Debug for KafkaDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaDelivery")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_fails_beside_a_copy_is_never_without_effect() {
        let refused = || SettleError::Refused(SourceError::transient("BrokerError", ""));
        assert_eq!(as_begun(refused(), false).as_str(), "unknown");
        assert_eq!(as_begun(refused(), true).as_str(), "unknown");
        assert_eq!(as_begun(SettleError::Lost(None), false).as_str(), "lost");
        let beside = as_begun(SettleError::Lost(None), true);
        assert_eq!((beside.as_str(), beside.code()), ("unknown", "NotAssigned"));
    }
}
