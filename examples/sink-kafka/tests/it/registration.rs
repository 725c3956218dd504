//! The plugin as a host finds it.

use dispatch_api::{HostServices, Registry};
use serde_json::json;
use sink_kafka::PLUGIN;

#[test]
fn the_kind_is_found_when_the_crate_is_linked() {
    let registry = Registry::linked().unwrap();
    let kinds: Vec<_> = registry.plugins().map(|plugin| plugin.kind).collect();
    assert_eq!(kinds, ["kafka"]);
}

#[test]
fn a_sink_is_built_without_network_and_runtime() {
    let options = json!({"brokers": ["nowhere.invalid:1"], "topic": "hooks"});
    let registry = Registry::linked().unwrap();
    let built = registry
        .build("kafka", &options, &HostServices::new())
        .unwrap();
    assert!(built.sink.durable());
}

#[test]
fn brokers_and_topic_are_asked_for_together() {
    let registry = Registry::with([&PLUGIN]).unwrap();
    let error = registry
        .build("kafka", &json!({}), &HostServices::new())
        .unwrap_err();
    let found: Vec<_> = error
        .into_problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("brokers: missing"), "{found:?}");
    assert!(found[1].starts_with("topic: missing"), "{found:?}");
}

#[test]
fn the_schema_is_an_object_of_all_options() {
    let schema = (PLUGIN.schema)();
    let properties = schema["properties"].as_object().unwrap();
    let names: Vec<_> = properties.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "brokers",
            "inline_max_bytes",
            "max_message_bytes",
            "properties",
            "timeout_ms",
            "topic",
        ]
    );
    assert_eq!(properties["properties"]["writeOnly"], true);
}
