//! A source whose durable consumer is given the hold that a case asks for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Source, SourceError, Subscription, SubscriptionPlan};
use sink_nats::NatsSource;
use sink_testkit::conformance::FixtureError;

use crate::live::client::Client;

/// Changes the consumer's hold before it is opened, as an operator does: the source itself
/// refuses a consumer that is there with another one.
pub(crate) struct Tuned {
    pub(crate) source: NatsSource,
    /// Where the server listens, past the proxy.
    pub(crate) address: String,
    pub(crate) hold: Duration,
}

impl Tuned {
    async fn tune(&self) -> Result<(), FixtureError> {
        let (stream, durable) = (self.source.stream(), self.source.durable());
        let mut client = Client::connect(&self.address).await?;
        let Some(info) = client.consumer(stream, durable).await? else {
            return Ok(());
        };
        let hold = u64::try_from(self.hold.as_nanos())?;
        let mut config = info["config"].clone();
        if config["ack_wait"].as_u64() == Some(hold) {
            return Ok(());
        }
        config["ack_wait"] = hold.into();
        client.change_consumer(stream, durable, &config).await
    }
}

#[async_trait]
impl Source for Tuned {
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        // A stream that is not there is for the source to notice.
        let tuned = self.tune().await;
        let opened = self.source.open(plan).await?;
        match tuned {
            Ok(()) => Ok(opened),
            Err(error) => Err(SourceError::transient("NotTuned", error.to_string())),
        }
    }
}

impl fmt::Debug for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
