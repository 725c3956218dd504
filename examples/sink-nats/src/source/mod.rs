//! A stream to consume.

mod builder;
mod calls;
mod config;
mod consumer;
mod dead_letter;
mod delivery;
mod hold;
mod origin;
mod raw;
mod receive;
mod telemetry;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    HostServices, Problems, Source, SourceError, Subscription, SubscriptionPlan, read_options,
};
use serde_json::Value;

pub use self::builder::NatsSourceBuilder;
use self::calls::Calls;
use self::config::SourceConfig;
use self::dead_letter::DeadLetter;
use self::raw::RawSource;
use self::receive::{NatsSubscription, Shared};
use self::telemetry::SourceTelemetry;
use crate::link::Link;

/// A stream to consume through a durable pull consumer: a description, until it is opened.
///
/// From options, as a host reads them, or from [`NatsSource::builder`]. Opening it never
/// creates a stream. The durable consumer belongs to its subscribers: it is created where there
/// is none of the name, and one that is there is used as it is, or refused.
///
/// With [`max_attempts`](dispatch_api::SourceExt::max_attempts) and
/// [`dead_letter`](dispatch_api::SourceExt::dead_letter), the subject of an existing stream,
/// it moves a message there that was delivered so many times.
///
/// Deliveries come in no order that is kept over retries, and have no group. An id is
/// `<stream>/<sequence>`, as in the receipt of a [`NatsSink`](crate::NatsSink); the attributes
/// are the headers. `Debug` shows no credential.
#[derive(Clone)]
pub struct NatsSource {
    config: Arc<SourceConfig>,
    /// Shared with sinks and sources of the host with the same servers and credentials.
    link: Arc<Link>,
}

impl NatsSource {
    /// Starts a description in Rust.
    pub fn builder(
        servers: impl IntoIterator<Item = impl Into<String>>,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> NatsSourceBuilder {
        let servers = servers.into_iter().map(Into::into).collect();
        NatsSourceBuilder::new(servers, stream.into(), durable.into())
    }

    /// Reads options, as they stand in a configuration file. Reads the files that they name,
    /// and needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with its key.
    pub fn from_options(options: &Value, services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawSource = read_options(options, &mut problems);
        Ok(Self::new(config::validate(raw, problems)?, services))
    }

    /// The JSON schema of the options. Their descriptions are the reference.
    #[must_use]
    pub fn options_schema() -> Value {
        schemars::schema_for!(RawSource).to_value()
    }

    fn new(config: SourceConfig, services: &HostServices) -> Self {
        Self {
            link: Link::shared(&config.link, services),
            config: Arc::new(config),
        }
    }

    /// The stream's name.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.config.stream
    }

    /// The durable consumer's name.
    #[must_use]
    pub fn durable(&self) -> &str {
        &self.config.durable
    }

    /// The only subject that is consumed, where the options name one.
    #[must_use]
    pub fn filter_subject(&self) -> Option<&str> {
        self.config.filter_subject.as_deref()
    }

    /// How long a received message is held unless that is extended; `None` for as long as the
    /// consumer itself says.
    #[must_use]
    pub fn ack_wait(&self) -> Option<Duration> {
        self.config.ack_wait
    }

    /// How long a receive waits for a message.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.config.wait
    }

    /// How long a request other than a receive may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.config.timeout
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        let config = &*self.config;
        let dead_letter = DeadLetter::declared(plan)?;
        let calls = Calls {
            link: Arc::clone(&self.link),
            timeout: config.timeout,
            stream: config.stream.clone(),
            durable: config.durable.clone(),
            telemetry: SourceTelemetry::new(&config.stream, &config.durable),
        };
        let deadline = calls.deadline();
        let durable = consumer::bind(&calls, config, deadline).await?;
        if let Some(policy) = &dead_letter {
            let checked = policy.check(&calls, config, &durable.filters, deadline);
            checked.await?;
        }
        let shared = Shared {
            name: format!("{}/{}", config.stream, config.durable),
            calls: Arc::new(calls),
            dead_letter: dead_letter.map(Arc::new),
            ack_wait: durable.ack_wait,
            wait: durable.wait,
            max_batch: durable.max_batch,
        };
        Ok(Arc::new(NatsSubscription::new(shared)))
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
