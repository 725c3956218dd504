//! The options as they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::RawProperty;

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Consumes a Kafka topic as a member of a consumer group.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "KafkaSourceOptions")]
pub(crate) struct RawSource {
    /// The brokers to begin with, required: `host` or `host:port` (9092 is the default).
    pub(crate) brokers: Option<Vec<String>>,
    /// The topic, required: 1 to 249 letters, digits and `._-`. It has to exist: none is ever
    /// created.
    pub(crate) topic: Option<String>,
    /// The consumer group, required, 1 to 249 characters. Subscribers of the same group share
    /// the topic's partitions.
    pub(crate) group: Option<String>,
    /// Where a group begins that has committed nothing: `earliest`, the default, or `latest`,
    /// which passes over what was there before.
    pub(crate) start: Option<RawStart>,
    /// How long a receive waits for a message, in milliseconds. 0 to 60000, default 20000.
    #[schemars(range(min = 0, max = 60_000))]
    pub(crate) wait_ms: Option<u64>,
    /// How long a request may take, in milliseconds. 100 to 300000, default 5000.
    #[schemars(range(min = 100, max = 300_000))]
    pub(crate) timeout_ms: Option<u64>,
    /// Further properties of librdkafka by their names, such as `security.protocol` or
    /// `session.timeout.ms`. Those that the source sets itself are refused. Values are texts,
    /// whole numbers or true and false; they are never shown.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) properties: Option<BTreeMap<String, RawProperty>>,
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "KafkaStart")]
pub(crate) enum RawStart {
    /// With the oldest record that is kept.
    #[default]
    Earliest,
    /// With what comes from now on.
    Latest,
}
