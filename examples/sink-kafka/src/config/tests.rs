use super::*;
use serde_json::json;

fn read(more: &Value) -> Result<KafkaSinkConfig, Vec<String>> {
    let mut options = json!({"brokers": ["127.0.0.1:9092"], "topic": "hooks"});
    let members = options.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    KafkaSinkConfig::from_options(&options)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// The one problem of these options.
fn problem(more: &Value) -> String {
    let problems = read(more).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.into_iter().next().unwrap()
}

#[test]
fn brokers_and_a_topic_are_enough_and_everything_else_has_its_default() {
    let config = read(&json!({})).unwrap();
    assert_eq!(config.brokers(), ["127.0.0.1:9092"]);
    assert_eq!(config.topic(), "hooks");
    assert_eq!(config.inline_max_bytes().get(), 65_536);
    assert_eq!(config.max_message_bytes(), 1_000_000);
    assert_eq!(config.timeout(), Duration::from_secs(5));
    let client = config.client();
    for (name, value) in [
        ("bootstrap.servers", "127.0.0.1:9092"),
        ("enable.idempotence", "true"),
        ("acks", "all"),
        ("allow.auto.create.topics", "false"),
        ("message.max.bytes", "1001024"),
        ("message.timeout.ms", "4000"),
        ("queue.buffering.max.messages", "4096"),
    ] {
        assert_eq!(client.get(name), Some(value), "{name}");
    }
}

#[test]
fn every_problem_is_reported_at_once_with_its_key() {
    let problems = read(&json!({
        "brokers": ["a b", "kafka://host:9092", "u:p@host"], "topic": "a b", "timeout_ms": 99,
        "inline_max_bytes": 0, "max_message_bytes": 0, "tpoic": 1,
        "properties": {"acks": "1", "no.such.property": 1, "linger.ms": "soon"},
    }))
    .unwrap_err();
    let keys: Vec<_> = problems
        .iter()
        .map(|problem| problem.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "tpoic",
            "brokers[0]",
            "brokers[1]",
            "brokers[2]",
            "topic",
            "inline_max_bytes",
            "max_message_bytes",
            "timeout_ms",
            "properties.acks",
            "properties.linger.ms",
            "properties.no.such.property",
        ],
        "{problems:#?}"
    );
    assert!(problems[0].contains("did you mean `topic`?"));
    assert!(problems[9].contains("refuses the value"));
    assert!(problems[10].contains("knows no such property"));
}

#[test]
fn brokers_and_topics_take_the_usual_forms() {
    for broker in ["host", "host:9093", "10.0.0.1:1", "[::1]:9092", "[::1]"] {
        read(&json!({"brokers": [broker]})).unwrap();
    }
    for broker in ["", "host:", "host:0", "host:65536", "a,b", "host/path"] {
        let found = problem(&json!({"brokers": [broker]}));
        assert!(found.starts_with("brokers[0]: expected host"), "{found}");
    }
    assert!(problem(&json!({"brokers": []})).starts_with("brokers: missing"));
    for topic in [".", "..", "a/b", "é", &"t".repeat(250)] {
        let found = problem(&json!({"topic": topic}));
        assert!(found.starts_with("topic: expected 1 to 249"), "{found}");
    }
    read(&json!({"topic": "t".repeat(249)})).unwrap();
}

#[test]
fn what_the_plugin_owns_is_refused_with_what_to_set_instead() {
    for name in [
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "bootstrap.servers",
        "metadata.broker.list",
        "transactional.id",
        "allow.auto.create.topics",
        "message.max.bytes",
        "retries",
        "test.mock.num.brokers",
    ] {
        let found = problem(&json!({"properties": {name: "canary"}}));
        assert!(
            found.starts_with(&format!("properties.{name}: belongs to the plugin")),
            "{found}"
        );
        assert!(!found.contains("canary"));
    }
}

#[test]
fn properties_reach_the_client_in_every_type_and_are_shown_by_name_alone() {
    let config = read(&json!({"properties": {
        "linger.ms": 7, "socket.keepalive.enable": true, "compression.type": "lz4",
        "sasl.password": "canary", "queue.buffering.max.messages": 12,
    }}))
    .unwrap();
    let client = config.client();
    assert_eq!(client.get("linger.ms"), Some("7"));
    assert_eq!(client.get("socket.keepalive.enable"), Some("true"));
    assert_eq!(client.get("compression.type"), Some("lz4"));
    assert_eq!(client.get("queue.buffering.max.messages"), Some("12"));
    let shown = format!("{config:?}");
    assert!(shown.contains("sasl.password"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn the_client_gives_up_before_the_delivery_does() {
    let timeout_of = |timeout_ms: u64| {
        let config = read(&json!({"timeout_ms": timeout_ms})).unwrap();
        config
            .client()
            .get("message.timeout.ms")
            .unwrap()
            .to_owned()
    };
    assert_eq!(timeout_of(100), "80");
    assert_eq!(timeout_of(60_000), "59000");
}

#[test]
fn a_body_inside_its_message_has_to_fit_the_largest_message() {
    let found = problem(&json!({"inline_max_bytes": 750, "max_message_bytes": 1_000}));
    assert!(
        found.starts_with("inline_max_bytes: expected less than"),
        "{found}"
    );
}

#[test]
fn a_property_that_needs_another_build_says_so_and_shows_no_value() {
    let found = problem(&json!({"properties": {"ssl.key.password": "canary"}}));
    assert!(found.contains("feature ssl"), "{found}");
    assert!(!found.contains("canary"), "{found}");
}
