//! A topic to consume.

mod builder;
mod client;
mod commits;
mod config;
mod copies;
mod dead_letter;
mod delivery;
mod offsets;
mod raw;
mod receive;
mod record;
mod telemetry;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    HostServices, Problems, RepublishesRetries, Source, SourceError, Subscription,
    SubscriptionPlan, read_options,
};
use serde_json::Value;
use tokio::sync::Notify;

pub use self::builder::KafkaSourceBuilder;
use self::client::{Client, Context};
use self::config::SourceConfig;
use self::copies::Copies;
use self::dead_letter::DeadLetter;
use self::offsets::Offsets;
use self::raw::RawSource;
use self::receive::{KafkaSubscription, Parts};
use self::telemetry::SourceTelemetry;

/// A topic to consume as a member of a consumer group: a description, until it is opened.
///
/// From options, as a host reads them, or from [`KafkaSource::builder`]. Opening it never
/// creates a topic.
///
/// Offsets are committed as far as every record before them is settled. Kafka gives nothing
/// back, so that a retry is a copy: [`out_retry`](dispatch_api::SourceExt::out_retry) names
/// the sink that publishes it, and the original is committed once the copy is stored. Without
/// it a retry is refused, and so is a [`max_attempts`](dispatch_api::SourceExt::max_attempts)
/// above 1. With that and [`dead_letter`](dispatch_api::SourceExt::dead_letter), an existing
/// topic, it moves a message there that was delivered so many times, its copies counted.
///
/// The group of a delivery is the record's key, and records of one key are handled in their
/// order, one at a time; a copy comes after those that were there before it. An id is
/// `<topic>/<partition>/<offset>`, as in the receipt of a [`KafkaSink`](crate::KafkaSink); the
/// attributes are the headers. `Debug` shows no credential.
#[derive(Clone)]
pub struct KafkaSource {
    config: Arc<SourceConfig>,
    services: HostServices,
}

impl KafkaSource {
    /// Starts a description in Rust.
    pub fn builder(
        brokers: impl IntoIterator<Item = impl Into<String>>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> KafkaSourceBuilder {
        let brokers = brokers.into_iter().map(Into::into).collect();
        KafkaSourceBuilder::new(brokers, topic.into(), group.into())
    }

    /// Reads options, as they stand in a configuration file. Needs no network.
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
            config: Arc::new(config),
            services: services.clone(),
        }
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.config.topic
    }

    /// The consumer group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.config.group
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
impl Source for KafkaSource {
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        let config = &*self.config;
        let dead_letter = DeadLetter::declared(plan, config)?;
        let offsets: Arc<Mutex<Offsets>> = Arc::default();
        let telemetry = SourceTelemetry::new(&config.topic, &config.group);
        let news: Arc<Notify> = Arc::default();
        let context = Context::new(Arc::clone(&offsets), Arc::clone(&news), telemetry.clone());
        let client = Client::new(config, context)?;
        let spent = dead_letter.as_ref().map(|policy| policy.topic().to_owned());
        let client = look(client, config, spent).await?;
        let copies = plan.out_retry.as_ref().map(|sink| Copies {
            sink: Arc::clone(sink),
            group: config.group.clone(),
            services: self.services.clone(),
        });
        let parts = Parts {
            topic: config.topic.clone(),
            group: config.group.clone(),
            wait: config.wait,
            timeout: config.timeout,
            services: self.services.clone(),
            telemetry,
            offsets,
            news,
            copies,
            dead_letter,
        };
        Ok(Arc::new(KafkaSubscription::start(client, parts)?))
    }
}

/// Sees whether the topics are there, on a thread that may wait.
async fn look(
    client: Client,
    config: &SourceConfig,
    spent: Option<String>,
) -> Result<Client, SourceError> {
    let (topic, timeout) = (config.topic.clone(), config.timeout);
    let looked = tokio::task::spawn_blocking(move || {
        let topics: Vec<&str> = [Some(&*topic), spent.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let found = client.find_topics(&topics, timeout);
        found.map(|()| client).map_err(|(missing, error)| {
            match spent.is_some_and(|spent| spent == missing) && error.code() == "UnknownTopic" {
                true => SourceError::config(
                    "DeadLetterMissing",
                    format!(
                        "there is no dead-letter topic `{missing}`: create it, or correct \
                         dead_letter; the source never creates one"
                    ),
                ),
                false => error,
            }
        })
    });
    looked.await.unwrap_or_else(|_| {
        Err(SourceError::transient(
            "OpenStopped",
            "the runtime ended that the source is opened on",
        ))
    })
}

impl RepublishesRetries for KafkaSource {}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
