//! The plugin as a host finds it.

use dispatch_api::{HostServices, Registry, SinkKey};
use serde_json::{Value, json};
use sink_sqs::PLUGIN;

const QUEUE_URL: &str = "http://127.0.0.1:1/000000000000/hooks";

fn problems(options: &Value) -> Vec<String> {
    let registry = Registry::with([&PLUGIN]).unwrap();
    let error = registry
        .build("sqs", options, &HostServices::new())
        .unwrap_err();
    error
        .into_problems()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn key(options: &Value, secret: &'static str) -> SinkKey {
    let services = HostServices::new().with_environment(move |name| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKID".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
        _ => None,
    });
    let registry = Registry::with([&PLUGIN]).unwrap();
    registry.build("sqs", options, &services).unwrap().key
}

#[test]
fn the_kind_is_found_when_the_crate_is_linked() {
    let registry = Registry::linked().unwrap();
    let kinds: Vec<_> = registry.plugins().map(|plugin| plugin.kind).collect();
    assert_eq!(kinds, ["sqs"]);
}

#[test]
fn region_and_queue_url_are_asked_for_together() {
    let found = problems(&json!({}));
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("queue_url: missing"), "{found:?}");
    assert!(found[1].starts_with("region: missing"), "{found:?}");
}

#[test]
fn unknown_keys_are_answered_with_the_nearest_known_one_at_both_depths() {
    let found = problems(&json!({
        "queue_url": QUEUE_URL, "region": "us-east-1",
        "max_atempts": 3, "time_out_ms": 1, "http": {"pool_idle_timeout": 5},
    }));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found
            .iter()
            .any(|p| p.contains("did you mean `timeout_ms`?"))
    );
    assert!(
        found
            .iter()
            .any(|p| p.contains("did you mean `pool_idle_timeout_ms`?"))
    );
}

#[test]
fn a_rotated_key_of_the_environment_makes_another_sink_unless_the_options_have_keys() {
    let options = json!({"queue_url": QUEUE_URL, "region": "us-east-1"});
    assert_eq!(key(&options, "one"), key(&options, "one"));
    assert_ne!(key(&options, "one"), key(&options, "two"));
    let with_keys = |secret: &str| {
        json!({
            "queue_url": QUEUE_URL, "region": "us-east-1",
            "access_key_id": "AKID", "secret_access_key": secret,
        })
    };
    assert_eq!(key(&with_keys("s"), "one"), key(&with_keys("s"), "two"));
    assert_ne!(key(&with_keys("s"), "one"), key(&with_keys("t"), "one"));
}

#[test]
fn the_schema_is_an_object_of_all_options() {
    let schema = (PLUGIN.schema)();
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), 21);
    assert_eq!(properties["secret_access_key"]["writeOnly"], true);
}
