//! The reference sink with the least that a sink has to have.

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{DeliveryContext, DrainReport, Envelope, Guarantees, Receipt, Sink, SinkError};
use tokio::time::Instant;

/// A sink whose receipts are empty, and which describes nothing.
#[derive(Debug)]
pub(super) struct Bare(pub(super) Arc<dyn Sink>);

#[async_trait]
impl Sink for Bare {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        self.0.deliver(envelope, ctx).await.map(|_| Receipt::new())
    }

    fn durable(&self) -> bool {
        self.0.durable()
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        self.0.inline_max_bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.0.drain(deadline).await
    }
}
