//! The options as they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Sends messages to a Kafka topic.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "KafkaSinkOptions")]
pub(crate) struct RawConfig {
    /// The brokers to begin with, required: `host` or `host:port` (9092 is the default).
    pub(crate) brokers: Option<Vec<String>>,
    /// The topic, required: 1 to 249 letters, digits and `._-`.
    pub(crate) topic: Option<String>,
    /// The largest body in bytes that travels inside its message; a larger one goes
    /// by claim. 1 and more, default 65536. A message holds its body in base64.
    #[schemars(range(min = 1))]
    pub(crate) inline_max_bytes: Option<u64>,
    /// The largest message in bytes, key, headers and body together; a larger one is
    /// refused without a request. 1 to 100000000, default 1000000. Keep it below the
    /// topic's `max.message.bytes`, which also counts some hundred bytes around them.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(crate) max_message_bytes: Option<u64>,
    /// How long one delivery may take in milliseconds, the client's own retries
    /// included. 100 to 300000, default 5000.
    #[schemars(range(min = 100, max = 300_000))]
    pub(crate) timeout_ms: Option<u64>,
    /// Further properties of librdkafka by their names, such as `security.protocol`.
    /// Those that this plugin sets itself are refused. Values are texts, whole numbers or
    /// true and false; they are never shown.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) properties: Option<BTreeMap<String, RawProperty>>,
}

/// The value of a property.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "KafkaProperty")]
pub(crate) enum RawProperty {
    /// true or false.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// Anything else.
    Text(String),
}
