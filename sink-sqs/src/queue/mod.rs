//! A queue to consume.

mod builder;
mod config;
mod error;
mod raw;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    HostServices, Problems, Source, SourceError, Subscription, SubscriptionPlan, read_options,
};
use serde_json::Value;

pub use self::builder::SqsQueueBuilder;
pub(crate) use self::config::{QueueConfig, QueueName, whole_seconds};
pub use self::error::SqsError;
use self::raw::RawQueue;
use crate::calls::Calls;
use crate::client::Client;
use crate::receive::{Opened, SqsSubscription};
use crate::redrive::{Redrive, SourceQueue};
use crate::telemetry::ConsumerTelemetry;

/// How much longer than its waiting time a receive may take.
pub(crate) const RECEIVE_MARGIN: Duration = Duration::from_secs(10);

/// More than any answer to a receive: ten messages of 1 MiB, of which JSON can make three times
/// as much, and what is said of them.
const MAX_RECEIVED_BYTES: usize = 36 * 1_024 * 1_024;

/// A queue to consume: a description, until it is opened.
///
/// From options, as a host reads them, or from [`SqsQueue::builder`]. With
/// [`max_attempts`](dispatch_api::SourceExt::max_attempts) and
/// [`dead_letter`](dispatch_api::SourceExt::dead_letter) it is registered with a redrive
/// policy. `Debug` shows no credential.
#[derive(Clone)]
pub struct SqsQueue {
    config: Arc<QueueConfig>,
    client: Client,
    services: HostServices,
}

impl SqsQueue {
    /// Starts a description in Rust, of a queue by its URL or its name.
    pub fn builder(queue: impl Into<String>, region: impl Into<String>) -> SqsQueueBuilder {
        SqsQueueBuilder::new(queue.into(), region.into())
    }

    /// Reads options, as they stand in a configuration file. Reads the configured
    /// certificates, and needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with its key.
    pub fn from_options(options: &Value, services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawQueue = read_options(options, &mut problems);
        Self::new(config::validate(raw, problems)?, services)
    }

    /// The JSON schema of the options. Their descriptions are the reference.
    #[must_use]
    pub fn options_schema() -> Value {
        schemars::schema_for!(RawQueue).to_value()
    }

    fn new(config: QueueConfig, services: &HostServices) -> Result<Self, Problems> {
        Ok(Self {
            client: Client::new(&config.connection, services)?,
            config: Arc::new(config),
            services: services.clone(),
        })
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.config.queue.name()
    }

    /// Whether it is a FIFO queue.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.name().ends_with(".fifo")
    }

    /// How long a receive waits for a message, in whole seconds.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.config.wait
    }

    /// How long a received message is hidden from others, in whole seconds; `None` for as
    /// long as the queue itself says.
    #[must_use]
    pub fn visibility(&self) -> Option<Duration> {
        self.config.visibility
    }
}

#[async_trait]
impl Source for SqsQueue {
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        let redrive = Redrive::declared(self.name(), plan)?;
        let client = self.client.limited_by(&format!(
            "timeout_ms is {}",
            self.config.connection.timeout().as_millis()
        ));
        let telemetry = ConsumerTelemetry::new(self.name());
        let calls = Calls::new(
            client,
            self.config.connection.timeout(),
            self.services.clone(),
            telemetry,
        );
        let url = match &self.config.queue {
            QueueName::Url(url) => url.as_str().to_owned(),
            QueueName::Name(name) => calls.queue_url(name, None).await?,
        };
        let attributes = calls.attributes(&url).await?;
        let visibility = match self.config.visibility {
            Some(visibility) => visibility,
            None => attributes.visibility()?,
        };
        if visibility.is_zero() {
            return Err(SqsError::NoVisibility {
                queue: self.name().to_owned(),
            }
            .into());
        }
        if let Some(redrive) = &redrive {
            let source = SourceQueue {
                name: self.name(),
                url: &url,
                attributes: &attributes,
            };
            redrive.write(&calls, &source).await?;
        }
        let wait = self.config.wait;
        let receiving = self.client.limited_by(&format!(
            "a receive has {} s, its waiting time and {} s more",
            (wait + RECEIVE_MARGIN).as_secs(),
            RECEIVE_MARGIN.as_secs(),
        ));
        let receiving = receiving.with_answers_of(MAX_RECEIVED_BYTES);
        Ok(Arc::new(SqsSubscription::new(Opened {
            name: self.name().to_owned(),
            url,
            wait,
            visibility,
            max_attempts: redrive.map(|redrive| redrive.max_attempts()),
            receiving: calls.with_client(receiving),
            calls,
            batch_settlement: self.config.batch_settlement,
            services: self.services.clone(),
        })))
    }
}

impl fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsQueue")
            .field("queue", &self.config.queue)
            .field("connection", &self.config.connection)
            .field("wait", &self.config.wait)
            .field("visibility", &self.config.visibility)
            .field("batch_settlement", &self.config.batch_settlement)
            .finish_non_exhaustive()
    }
}
