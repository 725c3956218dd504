//! From options to a configuration, with every problem at once.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, Problems};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use zeroize::Zeroizing;

use super::KafkaSinkConfig;
use super::raw::{RawConfig, RawProperty};

/// Properties that this plugin sets itself, or that would break what it promises.
const OWNED: &[(&str, &str)] = &[
    ("acks", "the plugin waits for all replicas in sync"),
    (
        "allow.auto.create.topics",
        "the plugin never creates a topic",
    ),
    ("bootstrap.servers", "set brokers instead"),
    ("delivery.timeout.ms", "set timeout_ms instead"),
    (
        "enable.gapless.guarantee",
        "one lost message would end every later one",
    ),
    (
        "enable.idempotence",
        "the plugin's producer is always idempotent",
    ),
    ("message.max.bytes", "set max_message_bytes instead"),
    ("message.send.max.retries", "set timeout_ms instead"),
    ("message.timeout.ms", "set timeout_ms instead"),
    ("metadata.broker.list", "set brokers instead"),
    ("plugin.library.paths", "the plugin loads no further code"),
    (
        "request.required.acks",
        "the plugin waits for all replicas in sync",
    ),
    ("retries", "set timeout_ms instead"),
    (
        "test.mock.num.brokers",
        "messages would go to no real broker",
    ),
    ("transactional.id", "the plugin uses no transactions"),
];

/// Checks everything that can be checked without a network.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(raw: RawConfig, problems: Problems) -> Result<KafkaSinkConfig, Problems> {
    let mut check = Check::new(problems, OWNED);
    let brokers = check.brokers(raw.brokers);
    let topic = check.topic(raw.topic);
    let inline_max_bytes = check.size(
        "inline_max_bytes",
        raw.inline_max_bytes,
        DEFAULT_INLINE_MAX_BYTES.get() as u64,
        1..=u64::MAX,
    );
    let max_message_bytes = check.size(
        "max_message_bytes",
        raw.max_message_bytes,
        1_000_000,
        1..=100_000_000,
    );
    // Base64 makes four bytes of three, and a message is more than its body.
    if raw.inline_max_bytes.is_some_and(|bytes| bytes > 0)
        && inline_max_bytes / 3 * 4 >= max_message_bytes
    {
        check.problems.add(
            "inline_max_bytes",
            format!(
                "expected less than three quarters of max_message_bytes ({max_message_bytes}): a \
                 body travels in base64, and a larger one could neither be sent nor go by claim"
            ),
        );
    }
    let timeout_ms = check.number("timeout_ms", raw.timeout_ms, 5_000, 100..=300_000);
    let properties = check.properties(raw.properties.unwrap_or_default());
    check.problems.into_result(KafkaSinkConfig {
        brokers,
        topic,
        inline_max_bytes: NonZeroUsize::new(inline_max_bytes).unwrap_or(NonZeroUsize::MIN),
        max_message_bytes,
        timeout: Duration::from_millis(timeout_ms),
        properties,
    })
}

fn is_broker(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // Of an IPv6 address without a port.
        Some((_, rest)) if rest.contains(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    !host.is_empty()
        && host.chars().all(is_host)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

pub(crate) fn is_topic(text: &str) -> bool {
    (1..=249).contains(&text.len())
        && text != "."
        && text != ".."
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Collects the problems of the options that a sink and a source have in common.
pub(crate) struct Check {
    problems: Problems,
    /// Properties that nobody else may set, and what to do instead.
    owned: &'static [(&'static str, &'static str)],
}

impl Check {
    pub(crate) fn new(problems: Problems, owned: &'static [(&'static str, &'static str)]) -> Self {
        Self { problems, owned }
    }

    pub(crate) fn add(&mut self, path: &str, problem: &str) {
        self.problems.add(path, problem);
    }

    pub(crate) fn into_problems(self) -> Problems {
        self.problems
    }

    pub(crate) fn brokers(&mut self, brokers: Option<Vec<String>>) -> Vec<String> {
        let brokers = brokers.unwrap_or_default();
        if brokers.is_empty() {
            self.problems.add(
                "brokers",
                "missing: list at least one broker, such as [\"127.0.0.1:9092\"]",
            );
        }
        for (index, broker) in brokers.iter().enumerate() {
            if !is_broker(broker.trim()) {
                self.problems.add(
                    format!("brokers[{index}]"),
                    "expected host or host:port; encryption is the property security.protocol",
                );
            }
        }
        brokers
            .iter()
            .map(|broker| broker.trim().to_owned())
            .collect()
    }

    pub(crate) fn topic(&mut self, topic: Option<String>) -> String {
        let topic = topic.unwrap_or_default();
        if topic.trim().is_empty() {
            self.problems.add("topic", "missing: set the topic's name");
        } else if !is_topic(&topic) {
            self.problems.add(
                "topic",
                "expected 1 to 249 ASCII letters, digits, dots, underscores and hyphens",
            );
        }
        topic
    }

    pub(crate) fn properties(
        &mut self,
        properties: BTreeMap<String, RawProperty>,
    ) -> BTreeMap<String, Zeroizing<String>> {
        let mut checked = BTreeMap::new();
        for (name, value) in properties {
            let value = Zeroizing::new(match value {
                RawProperty::Flag(flag) => flag.to_string(),
                RawProperty::Number(number) => number.to_string(),
                RawProperty::Text(text) => text,
            });
            match check_property(self.owned, &name, &value) {
                Ok(()) => {
                    checked.insert(name, value);
                }
                Err(problem) => self.problems.add(format!("properties.{name}"), problem),
            }
        }
        checked
    }

    pub(crate) fn number(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let value = value.unwrap_or(default);
        if range.contains(&value) {
            return value;
        }
        let expected = match (range.start(), range.end()) {
            (least, &u64::MAX) => format!("expected {least} or more"),
            (least, most) => format!("expected {least} to {most}"),
        };
        self.problems.add(path, expected);
        default
    }

    fn size(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> usize {
        let value = self.number(path, value, default, range);
        usize::try_from(value).unwrap_or(usize::MAX)
    }
}

/// Asks librdkafka itself about one property. What it says is not quoted: it repeats values.
fn check_property(owned: &[(&str, &str)], name: &str, value: &str) -> Result<(), String> {
    if let Some((_, instead)) = owned.iter().find(|(owned, _)| *owned == name) {
        return Err(format!("belongs to the plugin: {instead}"));
    }
    if name.contains('\0') || value.contains('\0') {
        return Err("holds NUL".to_owned());
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            Err("librdkafka, as it is built here, knows no such property".to_owned())
        }
        Err(KafkaError::ClientConfig(_, reason, ..))
            if reason.contains("not supported in this build") =>
        {
            Err(
                "librdkafka is built without what this property needs: build it with the \
                 feature ssl, gssapi or curl of the crate rdkafka"
                    .to_owned(),
            )
        }
        Err(_) => Err(
            "librdkafka refuses the value; its CONFIGURATION.md lists what it accepts".to_owned(),
        ),
    }
}
