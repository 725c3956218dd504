//! The plugin as a host finds it.

use dispatch_api::{HostServices, Registry, SinkKey};
use serde_json::{Value, json};
use sink_nats::PLUGIN;

fn key(options: &Value) -> SinkKey {
    let registry = Registry::with([&PLUGIN]).unwrap();
    let built = registry.build("nats", options, &HostServices::new());
    built.unwrap().key
}

#[test]
fn the_kind_is_found_when_the_crate_is_linked() {
    let registry = Registry::linked().unwrap();
    let kinds: Vec<_> = registry.plugins().map(|plugin| plugin.kind).collect();
    assert_eq!(kinds, ["nats"]);
}

#[test]
fn a_sink_is_built_without_network_and_runtime() {
    let options = json!({"servers": ["nowhere.invalid:1"], "subject": "hooks"});
    let registry = Registry::linked().unwrap();
    let built = registry
        .build("nats", &options, &HostServices::new())
        .unwrap();
    assert!(built.sink.durable());
}

#[test]
fn servers_and_subject_are_asked_for_together() {
    let registry = Registry::with([&PLUGIN]).unwrap();
    let error = registry
        .build("nats", &json!({}), &HostServices::new())
        .unwrap_err();
    let found: Vec<_> = error
        .into_problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("servers: missing"), "{found:?}");
    assert!(found[1].starts_with("subject: missing"), "{found:?}");
}

#[test]
fn a_rotated_credentials_file_makes_another_sink() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |jwt: &str| {
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n---\n-----BEGIN USER NKEY SEED-----\n{seed}\n"
        );
        std::fs::write(file.path(), text).unwrap();
    };
    let options =
        json!({"servers": ["127.0.0.1"], "subject": "hooks", "credentials_file": file.path()});
    write("one");
    let first = key(&options);
    assert_eq!(first, key(&options));
    write("two");
    assert_ne!(first, key(&options));
}

#[test]
fn the_schema_is_an_object_of_all_options() {
    let schema = (PLUGIN.schema)();
    let properties = schema["properties"].as_object().unwrap();
    let names: Vec<_> = properties.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "connect_timeout_ms",
            "credentials_file",
            "duplicate_window_ms",
            "inline_max_bytes",
            "max_message_bytes",
            "password",
            "servers",
            "subject",
            "timeout_ms",
            "tls",
            "token",
            "user",
        ]
    );
    assert_eq!(properties["password"]["writeOnly"], true);
    assert_eq!(properties["token"]["writeOnly"], true);
}
