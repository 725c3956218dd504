//! The reference sink's options.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{BatchSettings, HostServices, Problems, read_options};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::broker::{Broker, HOST, MAX_BYTES, MAX_ENTRIES, is_ordered};

/// Sends messages to the reference broker.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ReferenceSinkOptions")]
struct RawConfig {
    /// The destination's name, required. One that ends in `.ordered` keeps order.
    destination: Option<String>,
    /// Whose requests they are, required without `vault`.
    key_id: Option<String>,
    /// The secret that belongs to the key, required without `vault`.
    #[schemars(extend("writeOnly" = true))]
    secret: Option<String>,
    /// Whether key and secret come from the broker's vault, and not from the options. Default
    /// false.
    vault: Option<bool>,
    /// Whether messages name their tenant, for a destination without order to be fair to all.
    /// Default false.
    fair: Option<bool>,
    /// Whether requests take turns, so that one is under way at a time. Default false.
    serial: Option<bool>,
    /// Whether deliveries are sent in batches. Default true, without `confirm` false.
    batch: Option<bool>,
    /// How long a batch waits to fill, in milliseconds. 1 to 60000, default 20.
    #[schemars(range(min = 1, max = 60_000))]
    batch_linger_ms: Option<u64>,
    /// The most messages in a batch. 1 to 10, default 10.
    #[schemars(range(min = 1, max = 10))]
    batch_max_entries: Option<u64>,
    /// The most messages that wait. 1 to 100000, default 4096.
    #[schemars(range(min = 1, max = 100_000))]
    batch_queue_max: Option<u64>,
    /// The most messages of one tenant that wait. 1 to 100000, default 4096.
    #[schemars(range(min = 1, max = 100_000))]
    batch_queue_tenant_max: Option<u64>,
    /// The most requests at once. 1 to 64, default 4.
    #[schemars(range(min = 1, max = 64))]
    batch_max_inflight: Option<u64>,
    /// The largest body in bytes that travels inside its message. 1 to 16384, default
    /// 8192.
    #[schemars(range(min = 1, max = 16_384))]
    inline_max_bytes: Option<u64>,
    /// The largest message in bytes. 1 to 16384, default 16384.
    #[schemars(range(min = 1, max = 16_384))]
    max_message_bytes: Option<u64>,
    /// Whether a delivery waits until the broker has confirmed it. Default true.
    confirm: Option<bool>,
    /// Whether the destination takes only ASCII in attributes. Default false.
    ascii_attributes: Option<bool>,
    /// Whether the destination takes control characters in attributes. Default false.
    control_characters: Option<bool>,
    /// How long one delivery may take, in milliseconds. 1 to 300000, default 5000.
    #[schemars(range(min = 1, max = 300_000))]
    timeout_ms: Option<u64>,
    /// How the broker is reached.
    link: Option<RawLink>,
}

/// How the broker is reached.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ReferenceLinkOptions")]
struct RawLink {
    /// The broker's host. Default `memory.internal`.
    host: Option<String>,
    /// How long one request may take, in milliseconds: the delivery's own time where that
    /// is shorter. 1 to 300000, default 300000.
    #[schemars(range(min = 1, max = 300_000))]
    request_timeout_ms: Option<u64>,
}

/// The reference sink's configuration.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReferenceConfig {
    /// The destination's name.
    pub destination: String,
    /// Whose requests they are.
    pub key_id: String,
    /// The secret that belongs to the key.
    pub secret: String,
    /// Whether whoever builds the sink has to say where key and secret are found.
    pub(super) asks_vault: bool,
    /// Where key and secret are found; `None`: they are those above.
    pub vault: Option<Arc<Broker>>,
    /// Whether messages without order name their tenant.
    pub fair: bool,
    /// Whether one request is under way at a time.
    pub serial: bool,
    /// How deliveries are batched; `None`: not.
    pub batching: Option<BatchSettings>,
    /// The largest body inside a message.
    pub inline_max_bytes: NonZeroUsize,
    /// The largest message.
    pub max_message_bytes: usize,
    /// Whether a delivery waits until the broker has confirmed it.
    pub confirm: bool,
    /// Whether the destination takes only ASCII in attributes.
    pub ascii_attributes: bool,
    /// Whether the destination takes control characters in attributes.
    pub control_characters: bool,
    /// The time limit of one delivery.
    pub timeout: Duration,
    /// The broker's host.
    pub host: String,
    /// Whether requests are counted and have a span, as whoever builds the sink says.
    pub(super) is_observed: bool,
}

impl ReferenceConfig {
    /// Reads options, and checks all of them.
    ///
    /// # Errors
    ///
    /// Every problem at once.
    pub fn from_options(options: &Value, _services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawConfig = read_options(options, &mut problems);
        let mut check = Check { problems };
        let destination = check.required("destination", raw.destination);
        let asks_vault = raw.vault.unwrap_or(false);
        let [key_id, secret] =
            [("key_id", raw.key_id), ("secret", raw.secret)].map(|(name, value)| match value {
                None if asks_vault => String::new(),
                value => check.required(name, value),
            });
        let mut settings = BatchSettings::default();
        let linger = check.ranged("batch_linger_ms", raw.batch_linger_ms, 20, 60_000);
        settings.linger = Duration::from_millis(linger);
        settings.max_entries =
            check.count("batch_max_entries", raw.batch_max_entries, 10, MAX_ENTRIES);
        settings.max_bytes = MAX_BYTES;
        settings.queue_max_entries = check
            .count("batch_queue_max", raw.batch_queue_max, 4_096, 100_000)
            .get();
        settings.queue_max_tenant_entries = check
            .count(
                "batch_queue_tenant_max",
                raw.batch_queue_tenant_max,
                4_096,
                100_000,
            )
            .get();
        settings.max_inflight = check.count("batch_max_inflight", raw.batch_max_inflight, 4, 64);
        let inline_max_bytes =
            check.count("inline_max_bytes", raw.inline_max_bytes, 8_192, MAX_BYTES);
        let max_message_bytes = check.count(
            "max_message_bytes",
            raw.max_message_bytes,
            16_384,
            MAX_BYTES,
        );
        let timeout = check.ranged("timeout_ms", raw.timeout_ms, 5_000, 300_000);
        let link = raw.link.unwrap_or_default();
        let of_request = check.ranged(
            "link.request_timeout_ms",
            link.request_timeout_ms,
            300_000,
            300_000,
        );
        let host = match link.host {
            None => HOST.to_owned(),
            host => check.required("link.host", host),
        };
        if host.contains('@') {
            let text = "holds credentials: set them as key_id and secret";
            check.problems.add("link.host", text);
        }
        if raw.inline_max_bytes.is_some() && inline_max_bytes.get() > max_message_bytes.get() {
            check.problems.add(
                "inline_max_bytes",
                "expected max_message_bytes or less: a larger body could neither be sent nor go \
                 by claim",
            );
        }
        if raw.batch == Some(false) && raw.batch_linger_ms.is_some() {
            check.problems.add(
                "batch_linger_ms",
                "is for batches, and `batch` is false: leave one of them out",
            );
        }
        let confirm = raw.confirm.unwrap_or(true);
        if !confirm && raw.batch == Some(true) {
            check.problems.add(
                "confirm",
                "false is for messages sent one by one: a `batch` waits for its answers",
            );
        }
        let config = Self {
            destination,
            key_id,
            secret,
            asks_vault,
            vault: None,
            fair: raw.fair.unwrap_or(false),
            serial: raw.serial.unwrap_or(false),
            batching: raw.batch.unwrap_or(confirm).then_some(settings),
            inline_max_bytes,
            max_message_bytes: max_message_bytes.get(),
            confirm,
            ascii_attributes: raw.ascii_attributes.unwrap_or(false),
            control_characters: raw.control_characters.unwrap_or(false),
            timeout: Duration::from_millis(timeout.min(of_request)),
            host,
            is_observed: true,
        };
        check.problems.into_result(config)
    }

    /// The JSON schema of the options.
    #[must_use]
    pub fn schema() -> Value {
        schemars::schema_for!(RawConfig).to_value()
    }

    /// Whether the destination keeps order.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        is_ordered(&self.destination)
    }
}

struct Check {
    problems: Problems,
}

impl Check {
    fn required(&mut self, key: &str, value: Option<String>) -> String {
        match value {
            Some(value) if !value.trim().is_empty() => value,
            Some(_) => {
                self.problems.add(key, "is blank: give it a value");
                String::new()
            }
            None => {
                self.problems.add(key, "is required");
                String::new()
            }
        }
    }

    fn ranged(&mut self, key: &str, value: Option<u64>, default: u64, max: u64) -> u64 {
        match value {
            None => default,
            Some(value) if (1..=max).contains(&value) => value,
            Some(_) => {
                let text = format!("expected a number from 1 to {max}");
                self.problems.add(key, text);
                default
            }
        }
    }

    fn count(&mut self, key: &str, value: Option<u64>, default: u64, max: usize) -> NonZeroUsize {
        let count = self.ranged(key, value, default, max as u64);
        let count = usize::try_from(count).ok().and_then(NonZeroUsize::new);
        count.expect("the range begins at 1 and ends at a usize")
    }
}

impl fmt::Debug for ReferenceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceConfig")
            .field("destination", &self.destination)
            .field("key_id", &self.key_id)
            .field("secret", &"<redacted>")
            .field("batching", &self.batching)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
