use super::*;
use serde_json::json;

fn read(more: &Value) -> Result<NatsSinkConfig, Vec<String>> {
    let mut options = json!({"servers": ["127.0.0.1"], "subject": "hooks.acme"});
    let members = options.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    NatsSinkConfig::from_options(&options)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// The one problem of these options.
fn problem(more: &Value) -> String {
    let problems = read(more).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.into_iter().next().unwrap()
}

#[test]
fn servers_and_a_subject_are_enough_and_everything_else_has_its_default() {
    let config = read(&json!({})).unwrap();
    assert_eq!(config.subject(), "hooks.acme");
    assert_eq!(config.inline_max_bytes().get(), 65_536);
    assert_eq!(config.max_message_bytes(), None);
    assert_eq!(config.timeout(), Duration::from_secs(5));
    assert_eq!(config.connect_timeout(), Duration::from_secs(2));
    assert!(matches!(config.link.credentials, Credentials::None));
    assert_eq!(config.link.servers[0].port(), 4_222);
    assert!(config.link.root_certificates.is_empty());
}

#[test]
fn the_time_to_connect_is_part_of_the_time_of_a_delivery() {
    let config = read(&json!({"timeout_ms": 700})).unwrap();
    assert_eq!(config.connect_timeout(), Duration::from_millis(700));
    assert_eq!(
        problem(&json!({"timeout_ms": 700, "connect_timeout_ms": 701})),
        "connect_timeout_ms: expected at most timeout_ms (700), which it is a part of"
    );
}

#[test]
fn every_problem_is_reported_at_once_with_its_key() {
    let problems = read(&json!({
        "servers": ["a b", "ws://host"], "subject": "hooks.*", "timeout_ms": 0,
        "inline_max_bytes": 0, "max_message_bytes": 0, "user": "u", "tokn": "t",
        "tls": {"root_certificates": ["/does/not/exist"]},
    }))
    .unwrap_err();
    let keys: Vec<_> = problems
        .iter()
        .map(|problem| problem.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "tokn",
            "servers[0]",
            "servers[1]",
            "subject",
            "inline_max_bytes",
            "max_message_bytes",
            "timeout_ms",
            "password",
            "tls.root_certificates[0]",
        ],
        "{problems:#?}"
    );
    assert!(problems[0].contains("did you mean `token`?"));
}

#[test]
fn servers_take_the_usual_forms_and_no_others() {
    for server in [
        "host",
        "host:4223",
        "nats://host",
        "tls://host:4443/",
        "[::1]:4222",
    ] {
        read(&json!({"servers": [server]})).unwrap();
    }
    for server in [
        "",
        "http://host",
        "ws://host",
        "wss://host",
        "nats://host/path",
        "nats://",
        "host:x",
        "nats://host?a=b",
    ] {
        let found = problem(&json!({"servers": [server]}));
        assert!(
            found.starts_with("servers[0]: expected host"),
            "{server}: {found}"
        );
    }
    for server in ["nats://u:canary@host", "canary@host", "nats://:canary@host"] {
        let found = problem(&json!({"servers": [server]}));
        assert!(
            found.starts_with("servers[0]: holds credentials"),
            "{found}"
        );
        assert!(!found.contains("canary"), "{found}");
    }
    assert!(problem(&json!({"servers": []})).starts_with("servers: missing"));
}

#[test]
fn there_is_one_way_to_authenticate() {
    for (options, key) in [
        (json!({"token": "t", "user": "u", "password": "p"}), "user"),
        (json!({"token": "t", "password": "p"}), "user"),
        (
            json!({"token": "t", "credentials_file": "f"}),
            "credentials_file",
        ),
        (
            json!({"user": "u", "password": "p", "credentials_file": "f"}),
            "credentials_file",
        ),
    ] {
        let found = problem(&options);
        assert!(found.starts_with(&format!("{key}: names other")), "{found}");
    }
    assert_eq!(
        problem(&json!({"user": "u"})),
        "password: missing beside user"
    );
    assert_eq!(
        problem(&json!({"password": "p"})),
        "user: missing beside password"
    );
    let found = problem(&json!({"credentials_file": "/does/not/exist"}));
    assert!(
        found.starts_with("credentials_file: cannot be read"),
        "{found}"
    );
    read(&json!({"token": " ", "user": "u", "password": "p"})).unwrap();
}

#[test]
fn a_body_inside_its_message_has_to_fit_the_largest_message() {
    let found = problem(&json!({"inline_max_bytes": 750, "max_message_bytes": 1_000}));
    assert!(
        found.starts_with("inline_max_bytes: expected less than three quarters"),
        "{found}"
    );
    read(&json!({"max_message_bytes": 1_000})).unwrap();
}

#[test]
fn a_file_without_a_certificate_is_refused_before_anything_connects() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no certificate").unwrap();
    let found = problem(&json!({"tls": {"root_certificates": [file.path()]}}));
    assert!(found.contains("holds no certificate"), "{found}");
}
