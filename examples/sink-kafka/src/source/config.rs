//! From options to the configuration of a source, with every problem at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dispatch_api::Problems;
use rdkafka::ClientConfig;
use zeroize::Zeroizing;

use super::raw::{RawSource, RawStart};
use crate::config::{Check, KafkaSinkConfig};

/// Properties that the source sets itself, or that would break what it promises.
const OWNED: &[(&str, &str)] = &[
    (
        "allow.auto.create.topics",
        "the source never creates a topic",
    ),
    ("auto.commit.enable", "the source commits what was settled"),
    ("auto.offset.reset", "set start instead"),
    ("bootstrap.servers", "set brokers instead"),
    ("enable.auto.commit", "the source commits what was settled"),
    (
        "enable.auto.offset.store",
        "the source commits what was settled",
    ),
    ("enable.partition.eof", "the end of a partition is no news"),
    ("group.id", "set group instead"),
    (
        "group.protocol",
        "the source is a member by the classic protocol",
    ),
    ("metadata.broker.list", "set brokers instead"),
    ("plugin.library.paths", "the source loads no further code"),
    (
        "test.mock.num.brokers",
        "messages would come from no real broker",
    ),
];

/// The properties that say how a client reaches its brokers, for the dead letters' producer.
const CONNECTION: &[&str] = &[
    "api.version.",
    "broker.",
    "client.dns.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
    "ssl_",
];

/// A complete and consistent configuration of a [`KafkaSource`](super::KafkaSource).
#[derive(Clone)]
pub(crate) struct SourceConfig {
    pub(crate) brokers: Vec<String>,
    pub(crate) topic: String,
    pub(crate) group: String,
    start: RawStart,
    pub(crate) wait: Duration,
    pub(crate) timeout: Duration,
    properties: BTreeMap<String, Zeroizing<String>>,
}

/// Checks everything that can be checked without a network.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(raw: RawSource, problems: Problems) -> Result<SourceConfig, Problems> {
    let mut check = Check::new(problems, OWNED);
    let brokers = check.brokers(raw.brokers);
    let topic = check.topic(raw.topic);
    let group = raw.group.unwrap_or_default();
    if group.trim().is_empty() {
        check.add("group", "missing: set the consumer group's name");
    } else if group.len() > 249 || group.contains(char::is_control) {
        check.add(
            "group",
            "expected 1 to 249 characters, none of them a control character",
        );
    }
    let wait = check.number("wait_ms", raw.wait_ms, 20_000, 0..=60_000);
    let timeout = check.number("timeout_ms", raw.timeout_ms, 5_000, 100..=300_000);
    let properties = check.properties(raw.properties.unwrap_or_default());
    check.into_problems().into_result(SourceConfig {
        brokers,
        topic,
        group,
        start: raw.start.unwrap_or_default(),
        wait: Duration::from_millis(wait),
        timeout: Duration::from_millis(timeout),
        properties,
    })
}

impl SourceConfig {
    /// The configuration of the client.
    pub(super) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        // What waits in the client is bounded, and partitions that stay are not taken away
        // when a member comes or goes; properties may change both.
        client
            .set("client.id", "sink-kafka")
            .set("queued.max.messages.kbytes", "16384")
            .set("partition.assignment.strategy", "cooperative-sticky");
        for (name, value) in &self.properties {
            client.set(name, value.as_str());
        }
        let start = match self.start {
            RawStart::Earliest => "earliest",
            RawStart::Latest => "latest",
        };
        client
            .set("bootstrap.servers", self.brokers.join(","))
            .set("group.id", &self.group)
            .set("auto.offset.reset", start)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "false")
            .set("allow.auto.create.topics", "false");
        client
    }

    /// What a producer to another topic of the same brokers needs.
    pub(super) fn producer(&self, topic: &str) -> KafkaSinkConfig {
        let properties = self.properties.iter().filter(|(name, _)| {
            let is_of_connection = |start: &&str| name.starts_with(*start);
            CONNECTION.iter().any(is_of_connection)
        });
        let properties = properties.map(|(name, value)| (name.clone(), value.clone()));
        KafkaSinkConfig::for_dead_letters(
            self.brokers.clone(),
            topic.to_owned(),
            self.timeout,
            properties.collect(),
        )
    }
}

impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("start", &self.start)
            .field("wait", &self.wait)
            .field("timeout", &self.timeout)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::read_options;
    use serde_json::{Value, json};

    fn read(options: &Value) -> Result<SourceConfig, Vec<String>> {
        let mut problems = Problems::new();
        let raw = read_options(options, &mut problems);
        validate(raw, problems)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn brokers_topic_and_group_are_enough_and_everything_else_has_its_default() {
        let options = json!({"brokers": ["127.0.0.1"], "topic": "hooks", "group": "workers"});
        let config = read(&options).unwrap();
        assert_eq!(config.wait, Duration::from_secs(20));
        assert_eq!(config.timeout, Duration::from_secs(5));
        let client = config.client();
        assert_eq!(client.get("auto.offset.reset"), Some("earliest"));
        assert_eq!(client.get("enable.auto.commit"), Some("false"));
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_key() {
        let problems = read(&json!({
            "topic": "ho oks", "group": "a\nb", "wait_ms": 60_001, "timeout_ms": 1,
            "properties": {"group.id": "x", "auto.offset.reset": "latest", "no.such": 1},
        }))
        .unwrap_err();
        let keys: Vec<&str> = problems
            .iter()
            .map(|problem| problem.split(':').next().unwrap())
            .collect();
        assert_eq!(
            keys,
            [
                "brokers",
                "topic",
                "group",
                "wait_ms",
                "timeout_ms",
                "properties.auto.offset.reset",
                "properties.group.id",
                "properties.no.such",
            ]
        );
    }

    #[test]
    fn the_producer_of_dead_letters_has_the_connection_s_properties_and_no_others() {
        let config = read(&json!({
            "brokers": ["127.0.0.1"], "topic": "hooks", "group": "workers",
            "properties": {"sasl.username": "u", "fetch.min.bytes": 2, "socket.timeout.ms": 1_000},
        }))
        .unwrap();
        let producer = config.producer("dead").client();
        assert_eq!(producer.get("sasl.username"), Some("u"));
        assert_eq!(producer.get("socket.timeout.ms"), Some("1000"));
        assert_eq!(producer.get("fetch.min.bytes"), None);
        assert_eq!(producer.get("bootstrap.servers"), Some("127.0.0.1"));
    }

    #[test]
    fn debug_shows_no_value_of_a_property() {
        let config = read(&json!({
            "brokers": ["127.0.0.1"], "topic": "hooks", "group": "workers",
            "properties": {"sasl.password": "hunter2"},
        }));
        let shown = format!("{:?}", config.unwrap());
        assert!(shown.contains("sasl.password"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
