//! Copies for a later attempt.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Content, DeliveryContext, Envelope, HostServices, Message, Outcome, Redelivery, Sink,
    SinkError, deliver_contained, redeem,
};
use tokio::time::{Instant, timeout_at};

use super::record::StoredRecord;

/// Publishes the copies of one group.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) group: String,
    pub(super) services: HostServices,
}

impl Copies {
    /// Publishes a copy that is handed out no sooner than after the delay.
    ///
    /// # Errors
    ///
    /// The sink's, or why the record makes no copy: then there is none.
    pub(super) async fn publish(
        &self,
        record: &StoredRecord,
        delay: Duration,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        let publishing = async {
            let (envelope, ctx) = self.delivery(record).await?;
            let redelivery = self.redelivery(record, delay);
            let ctx = ctx.with_redelivery(redelivery).with_deadline(deadline);
            deliver_contained(&*self.sink, &envelope, &ctx).await
        };
        match timeout_at(deadline, publishing).await {
            Ok(published) => published.map(|_receipt| ()),
            Err(_) => Err(SinkError::transient(
                Outcome::Unknown,
                "Timeout",
                "no answer about the copy in time",
            )),
        }
    }

    async fn delivery(
        &self,
        record: &StoredRecord,
    ) -> Result<(Envelope, DeliveryContext), SinkError> {
        let message = Message::decode(record.payload()).map_err(|error| {
            SinkError::permanent(
                "NotRepeatable",
                "a sink takes no copy of what is no message of the wire format: settle with drop, \
                 or leave it for a consumer that understands it",
            )
            .with_source(error)
        })?;
        let body = match &message.content {
            Content::Inline(body) => body.clone(),
            Content::Claim(claim) => {
                let store = self.services.claim_check().ok_or_else(|| {
                    SinkError::config(
                        "ClaimCheckMissing",
                        "the body lies in a claim store, and the source's host has no claim \
                         check: configure the one that the producer used",
                    )
                })?;
                let digest = message.sha256.as_deref().unwrap_or_default();
                let redeemed = redeem(&**store, claim, digest).await;
                redeemed.map_err(|error| {
                    let text = "the body cannot be redeemed for the copy";
                    let failed = match error.is_retryable() {
                        true => SinkError::transient(Outcome::NotStored, "ClaimUnavailable", text),
                        false => SinkError::permanent("ClaimRefused", text),
                    };
                    failed.with_source(error)
                })?
            }
        };
        message.to_delivery(body)
    }

    fn redelivery(&self, record: &StoredRecord, delay: Duration) -> Redelivery {
        let mut redelivery = Redelivery::new(record.count().saturating_add(1));
        if !delay.is_zero() {
            let delay = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            redelivery.not_before = Some(self.services.unix_ms().saturating_add(delay));
        }
        redelivery.group = Some(self.group.clone());
        redelivery.key = record.key().cloned();
        redelivery.attributes = record.headers().to_vec();
        redelivery
    }
}
