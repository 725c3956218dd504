//! The configuration of one sink: raw options, checked into a typed whole.

mod raw;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, Problems, read_options};
use rdkafka::ClientConfig;
use serde_json::Value;
use zeroize::Zeroizing;

use self::raw::RawConfig;
pub(crate) use self::raw::RawProperty;
pub(crate) use self::validate::{Check, is_topic};

/// What a record costs beyond what `max_message_bytes` counts, at the most.
const RECORD_OVERHEAD: usize = 1_024;

/// The largest record that a client sends.
const MAX_MESSAGE_BYTES: usize = 100_000_000;

/// A complete and consistent configuration of a [`KafkaSink`](crate::KafkaSink).
///
/// `Debug` shows the names of the further properties and none of their values.
#[derive(Clone)]
pub struct KafkaSinkConfig {
    brokers: Vec<String>,
    topic: String,
    inline_max_bytes: NonZeroUsize,
    max_message_bytes: usize,
    timeout: Duration,
    properties: BTreeMap<String, Zeroizing<String>>,
}

impl KafkaSinkConfig {
    /// Reads options, as they stand in a configuration file. Needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with its key.
    pub fn from_options(options: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawConfig = read_options(options, &mut problems);
        validate::validate(raw, problems)
    }

    /// What a source stores spent records with, as large as brokers take them.
    pub(crate) fn for_dead_letters(
        brokers: Vec<String>,
        topic: String,
        timeout: Duration,
        properties: BTreeMap<String, Zeroizing<String>>,
    ) -> Self {
        Self {
            brokers,
            topic,
            inline_max_bytes: DEFAULT_INLINE_MAX_BYTES,
            max_message_bytes: MAX_MESSAGE_BYTES,
            timeout,
            properties,
        }
    }

    /// The JSON schema of the options. Their descriptions are the reference.
    #[must_use]
    pub fn options_schema() -> Value {
        schemars::schema_for!(RawConfig).to_value()
    }

    /// The brokers to begin with.
    #[must_use]
    pub fn brokers(&self) -> &[String] {
        &self.brokers
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The largest body in bytes that travels inside its message.
    #[must_use]
    pub fn inline_max_bytes(&self) -> NonZeroUsize {
        self.inline_max_bytes
    }

    /// The largest message in bytes: key, headers and body together.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    /// How long one delivery may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long the client tries: less than [`KafkaSinkConfig::timeout`], so that there is
    /// time to find out what a failure means.
    fn message_timeout(&self) -> Duration {
        self.timeout - (self.timeout / 5).min(Duration::from_secs(1))
    }

    /// The configuration of the client.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        // What waits is bounded as in the other sinks; properties may change it.
        client
            .set("client.id", "sink-kafka")
            .set("queue.buffering.max.messages", "4096")
            .set("queue.buffering.max.kbytes", "131072");
        for (name, value) in &self.properties {
            client.set(name, value.as_str());
        }
        let max_bytes = self.max_message_bytes + RECORD_OVERHEAD;
        let timeout_ms = self.message_timeout().as_millis();
        client
            .set("bootstrap.servers", self.brokers.join(","))
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("allow.auto.create.topics", "false")
            .set("message.max.bytes", max_bytes.to_string())
            .set("message.timeout.ms", timeout_ms.to_string());
        client
    }
}

impl fmt::Debug for KafkaSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSinkConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("inline_max_bytes", &self.inline_max_bytes)
            .field("max_message_bytes", &self.max_message_bytes)
            .field("timeout", &self.timeout)
            .field("properties", &self.properties.keys())
            .finish()
    }
}
