use super::connection::HttpConfig;
use super::*;
use serde_json::json;
use std::path::PathBuf;

const STANDARD: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks";
const FIFO: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo";

fn read(options: &Value) -> Result<SqsSinkConfig, Vec<String>> {
    SqsSinkConfig::from_options(options, &HostServices::new())
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// The minimum with `more` laid over it.
fn with(more: &Value) -> Value {
    let mut options = json!({"queue_url": STANDARD, "region": "us-east-1"});
    let members = options.as_object_mut().unwrap();
    for (name, value) in more.as_object().unwrap() {
        members.insert(name.clone(), value.clone());
    }
    options
}

/// The paths and texts of what is wrong with the minimum and `more`.
fn problems(more: &Value) -> Vec<String> {
    read(&with(more)).unwrap_err()
}

#[test]
fn a_url_and_a_region_are_enough_and_everything_else_has_its_default() {
    let config = read(&with(&json!({}))).unwrap();
    assert_eq!(config.queue_url(), STANDARD);
    assert_eq!(config.queue_name(), "hooks");
    assert_eq!(config.region(), "us-east-1");
    assert_eq!(config.endpoint(), "https://sqs.us-east-1.amazonaws.com");
    assert_eq!(config.inline_max_bytes().get(), 65_536);
    assert_eq!(config.max_message_bytes(), 1_048_576);
    assert_eq!(config.timeout(), Duration::from_secs(5));
    assert!(config.connection.credentials().is_none());
    assert!(matches!(config.grouping, Grouping::None));
    let batch = config.batching().unwrap();
    assert_eq!(batch.linger, Duration::from_millis(20));
    assert_eq!(batch.max_entries.get(), 10);
    assert_eq!(batch.max_bytes, 262_144);
    assert_eq!(batch.queue_max_entries, 4_096);
    assert_eq!(batch.queue_max_bytes, 134_217_728);
    assert_eq!(batch.queue_max_tenant_entries, 1_024);
    assert_eq!(batch.max_inflight.get(), 8);
    assert_eq!(
        config.connection.http,
        HttpConfig {
            proxy: None,
            pool_max_idle_per_host: 64,
            pool_idle_timeout: Duration::from_secs(20),
            root_certificates: Vec::new(),
        }
    );
}

#[test]
fn the_hosts_concurrency_is_the_default_of_batches_under_way() {
    let services = HostServices::new().with_sink_concurrency(NonZeroUsize::new(3).unwrap());
    let config = SqsSinkConfig::from_options(&with(&json!({})), &services).unwrap();
    assert_eq!(config.batch.max_inflight.get(), 3);
    let config = read(&with(&json!({"batch_max_inflight": 5}))).unwrap();
    assert_eq!(config.batch.max_inflight.get(), 5);
}

#[test]
fn the_largest_message_has_to_fit_into_the_waiting_bytes_where_anything_waits() {
    let small = json!({"batch_queue_max_bytes": 999, "max_message_bytes": 1_000});
    let problems = read(&with(&small)).unwrap_err().join("\n");
    assert!(
        problems.starts_with("batch_queue_max_bytes: expected max_message_bytes (1000) or more"),
        "{problems}"
    );
    let mut single = small;
    single["batch"] = json!(false);
    read(&with(&single)).unwrap();
}

#[test]
fn a_body_that_travels_inside_has_to_fit_in_base64() {
    let problems = read(&with(&json!({"inline_max_bytes": 786_432}))).unwrap_err();
    assert!(
        problems[0].starts_with("inline_max_bytes: expected less than three quarters"),
        "{problems:?}"
    );
    read(&with(&json!({"inline_max_bytes": 780_000}))).unwrap();
}

#[test]
fn every_option_is_taken_from_the_table() {
    let config = read(&with(&json!({
        "queue_url": FIFO,
        "endpoint": "http://127.0.0.1:4566/",
        "message_group_id": "{source_id}",
        "inline_max_bytes": 1, "max_message_bytes": 262_144, "timeout_ms": 300_000,
        "access_key_id": "AKID", "secret_access_key": "secret", "session_token": "token",
        "batch": false, "batch_linger_ms": 60_000, "batch_max_entries": 1,
        "batch_max_bytes": 1_048_576, "batch_queue_max": 1, "batch_queue_max_bytes": 1,
        "batch_queue_tenant_max": 1, "batch_max_inflight": 1_024,
        "http": {
            "proxy": "http://proxy.internal:3128", "pool_max_idle_per_host": 0,
            "pool_idle_timeout_ms": 60_000, "root_certificates": ["/etc/ca.pem"],
        },
    })))
    .unwrap();
    assert!(config.is_fifo());
    assert_eq!(config.endpoint(), "http://127.0.0.1:4566");
    assert!(config.batching().is_none());
    assert_eq!(config.max_message_bytes(), 262_144);
    assert!(config.connection.credentials().is_some());
    assert_eq!(config.connection.http.pool_max_idle_per_host, 0);
    assert_eq!(
        config.connection.http.root_certificates,
        [PathBuf::from("/etc/ca.pem")]
    );
}

#[test]
fn everything_wrong_is_reported_at_once() {
    assert_eq!(
        read(&json!({
            "queue_ulr": STANDARD,
            "region": " ",
            "timeout_ms": 0,
            "batch": "yes",
            "secret_access_key": "canary",
            "http": {"porxy": "http://proxy", "pool_idle_timeout_ms": 0},
        }))
        .unwrap_err()
        .iter()
        .map(|problem| problem.split(':').next().unwrap())
        .collect::<Vec<_>>(),
        [
            "queue_ulr",
            "http.porxy",
            "batch",
            "queue_url",
            "region",
            "access_key_id",
            "timeout_ms",
            "http.pool_idle_timeout_ms",
        ]
    );
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_known_one_at_both_depths() {
    let found = problems(&json!({
        "queue_ulr": "x", "asume_role": {}, "http": {"root_certificate": []},
    }));
    assert!(found.iter().any(|p| p.contains("did you mean `queue_url`")));
    assert!(
        found
            .iter()
            .any(|p| p.starts_with("asume_role: ") && p.contains("`assume_role`?"))
    );
    assert!(
        found
            .iter()
            .any(|p| p.starts_with("http.root_certificate: ") && p.contains("`root_certificates`?"))
    );
}

#[test]
fn blank_is_missing() {
    let found = read(&json!({"queue_url": "  ", "region": ""})).unwrap_err();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|problem| problem.contains("missing")));
    // Where nothing is required, nothing is missing.
    read(&with(&json!({
        "endpoint": "", "message_group_id": " ", "access_key_id": "", "secret_access_key": "\t",
        "session_token": "", "http": {"proxy": " "},
    })))
    .unwrap();
}

#[test]
fn a_region_is_always_required_and_hinted_at_where_the_host_shows_it() {
    for (queue_url, hint) in [
        (STANDARD, "us-east-1"),
        (
            "https://queue.amazonaws.com/123456789012/hooks",
            "us-east-1",
        ),
        (
            "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com/123456789012/hooks",
            "eu-west-1",
        ),
        ("http://127.0.0.1:4566/000000000000/hooks", "such as"),
    ] {
        let found = read(&json!({"queue_url": queue_url})).unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("region: missing"), "{found:?}");
        assert!(found[0].contains(hint), "{found:?}");
    }
}

#[test]
fn the_region_fits_every_host_of_the_service_and_is_free_elsewhere() {
    let found = problems(&json!({"region": "eu-west-1"}));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("region: it contradicts queue_url") && found[0].contains("us-east-1")
    );
    let found = problems(&json!({"endpoint": "https://sqs.eu-west-1.amazonaws.com"}));
    assert!(found[0].starts_with("region: it contradicts endpoint"));
    read(&with(&json!({
        "queue_url": "http://127.0.0.1:4566/000000000000/hooks", "region": "eu-west-1",
    })))
    .unwrap();
    read(&with(&json!({
        "queue_url": "http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/hooks",
        "region": "eu-west-1",
    })))
    .unwrap();
    for region in ["US-EAST-1", "us east 1", "us_east_1"] {
        let found = problems(&json!({"region": region}));
        assert!(found[0].starts_with("region: expected"), "{region}");
    }
}

#[test]
fn hosts_of_the_service_demand_https() {
    let found = problems(&json!({"queue_url": STANDARD.replace("https", "http")}));
    assert_eq!(
        found,
        ["queue_url: its host belongs to the service: expected https"]
    );
    let found = problems(&json!({
        "queue_url": "http://127.0.0.1/0/hooks", "endpoint": "http://sqs.us-east-1.api.aws",
    }));
    assert_eq!(
        found,
        ["endpoint: its host belongs to the service: expected https"]
    );
}

#[test]
fn a_url_with_credentials_is_refused_and_never_echoed() {
    let found = problems(&json!({
        "queue_url": "https://canary:canary@sqs.us-east-1.amazonaws.com/1/hooks",
        "endpoint": "https://canary@127.0.0.1",
        "http": {"proxy": "http://canary:canary@proxy.internal:3128"},
    }));
    assert_eq!(found.len(), 3);
    for problem in found {
        assert!(problem.contains("user information"), "{problem}");
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn half_of_static_credentials_is_a_problem() {
    for (options, path) in [
        (json!({"access_key_id": "AKID"}), "secret_access_key"),
        (
            json!({"access_key_id": "AKID", "secret_access_key": " "}),
            "secret_access_key",
        ),
        (json!({"secret_access_key": "canary"}), "access_key_id"),
        (json!({"session_token": "canary"}), "session_token"),
    ] {
        let found = problems(&options);
        assert_eq!(found.len(), 1, "{options}");
        assert!(found[0].starts_with(path), "{found:?}");
        assert!(!found[0].contains("canary"));
    }
}

#[test]
fn keys_with_white_space_are_refused_without_being_shown() {
    let found = problems(&json!({
        "access_key_id": "canary ", "secret_access_key": "canary\n", "session_token": "canärÿ",
    }));
    assert_eq!(found.len(), 3);
    assert!(!found.concat().contains("canary"));
}

#[test]
fn numbers_out_of_range_are_answered_with_the_range() {
    for (key, value, expected) in [
        ("inline_max_bytes", json!(0), "expected 1 or more"),
        (
            "inline_max_bytes",
            json!(-1),
            "expected a whole number, 0 or more",
        ),
        ("max_message_bytes", json!(0), "expected 1 to 1048576"),
        (
            "max_message_bytes",
            json!(1_048_577),
            "expected 1 to 1048576",
        ),
        ("timeout_ms", json!(0), "expected 1 to 300000"),
        ("timeout_ms", json!(300_001), "expected 1 to 300000"),
        (
            "timeout_ms",
            json!("5s"),
            "expected a whole number, 0 or more",
        ),
        ("batch_linger_ms", json!(0), "expected 1 to 60000"),
        ("batch_linger_ms", json!(60_001), "expected 1 to 60000"),
        ("batch_max_entries", json!(11), "expected 1 to 10"),
        ("batch_max_bytes", json!(1_048_577), "expected 1 to 1048576"),
        ("batch_queue_max", json!(0), "expected 1 or more"),
        ("batch_queue_max_bytes", json!(0), "expected 1 or more"),
        ("batch_queue_tenant_max", json!(0), "expected 1 or more"),
        ("batch_max_inflight", json!(0), "expected 1 to 1024"),
        ("batch", json!(1), "expected true or false"),
    ] {
        assert_eq!(
            problems(&json!({key: value})),
            [format!("{key}: {expected}")]
        );
    }
    assert_eq!(
        problems(&json!({"http": {
            "pool_max_idle_per_host": 1_025, "pool_idle_timeout_ms": 60_001,
            "root_certificates": ["/a", ""],
        }})),
        [
            "http.root_certificates[1]: blank: expected the path of a PEM file",
            "http.pool_max_idle_per_host: expected 0 to 1024",
            "http.pool_idle_timeout_ms: expected 1 to 60000",
        ]
    );
}

#[test]
fn the_group_is_checked_as_far_as_no_envelope_can_change_it() {
    for group in ["two words", "{tenant}", "{", &"g".repeat(129)] {
        let found = problems(&json!({"message_group_id": group}));
        assert!(found[0].starts_with("message_group_id: "), "{found:?}");
    }
    assert!(matches!(
        read(&with(&json!({"queue_url": FIFO}))).unwrap().grouping,
        Grouping::TenantAndSource
    ));
}

#[test]
fn every_problem_is_lower_case_and_has_no_final_dot() {
    let found = read(&json!({
        "queue_url": "x", "region": "X", "endpoint": "x", "message_group_id": "{",
        "session_token": "x", "timeout_ms": 0, "http": {"proxy": "x", "root_certificates": [""]},
    }))
    .unwrap_err();
    assert_eq!(found.len(), 8);
    for problem in found {
        let (_, text) = problem.split_once(": ").unwrap();
        assert!(text.starts_with(|c: char| c.is_lowercase()), "{problem}");
        assert!(!text.ends_with('.'), "{problem}");
    }
}

#[test]
fn every_option_is_described_in_the_schema_and_listed_in_the_readme() {
    let schema = SqsSinkConfig::options_schema();
    for (prefix, properties) in [
        ("", &schema["properties"]),
        ("http.", &schema["$defs"]["SqsHttpOptions"]["properties"]),
        (
            "assume_role.",
            &schema["$defs"]["SqsAssumeRoleOptions"]["properties"],
        ),
    ] {
        let properties = properties.as_object().unwrap();
        assert!(!properties.is_empty());
        for (name, property) in properties {
            assert!(property["description"].is_string(), "{name}");
            let in_readme = format!("`{prefix}{name}`");
            assert!(
                name == "http"
                    || name == "assume_role"
                    || include_str!("../../README.md").contains(&in_readme),
                "{name}"
            );
        }
    }
}

#[test]
fn a_closure_takes_the_place_of_a_template() {
    let config = SqsSinkConfig::builder(FIFO, "us-east-1")
        .message_group_id("{")
        .message_group_id_with(|envelope| envelope.source_id().to_uppercase())
        .build(&HostServices::new())
        .unwrap();
    assert!(matches!(config.grouping, Grouping::With(_)));
}

#[test]
fn debug_shows_no_credential() {
    let builder = SqsSinkConfig::builder(STANDARD, "us-east-1")
        .credentials("canary-id", "canary-secret")
        .session_token("canary-token");
    assert!(!format!("{builder:?}").contains("canary"));
    let config = builder.build(&HostServices::new()).unwrap();
    let shown = format!("{config:?}");
    assert!(
        shown.contains("hooks") && !shown.contains("canary"),
        "{shown}"
    );
}

#[cfg(feature = "default-chain")]
#[test]
fn a_profile_beside_keys_is_one_too_many() {
    let problems = read(&with(&json!({
        "profile": "sender", "access_key_id": "AKID", "secret_access_key": "secret",
    })));
    let problems = problems.unwrap_err();
    assert!(
        problems[0].starts_with("profile: names other credentials beside"),
        "{problems:?}"
    );
}

#[cfg(feature = "default-chain")]
#[test]
fn a_profile_and_a_role_are_taken() {
    let config = read(&with(&json!({
        "profile": " sender ",
        "assume_role": {
            "role_arn": "arn:aws-cn:iam::123456789012:role/team/sender",
            "external_id": "agreed:2026/1", "session_name": "harbor@quay",
        },
    })))
    .unwrap();
    assert_eq!(config.connection.profile(), Some("sender"));
    let role = config.connection.assume_role().unwrap();
    assert_eq!(
        role.role_arn,
        "arn:aws-cn:iam::123456789012:role/team/sender"
    );
    assert_eq!(role.external_id.as_deref(), Some("agreed:2026/1"));
    assert_eq!(role.session_name, "harbor@quay");
    assert!(!format!("{config:?}").contains("agreed"), "{config:?}");
    let least = read(&with(&json!({
        "assume_role": {"role_arn": "arn:aws:iam::123456789012:role/r", "session_name": " "},
    })))
    .unwrap();
    assert_eq!(
        least.connection.assume_role().unwrap().session_name,
        "sink-sqs"
    );
}

#[cfg(feature = "default-chain")]
#[test]
fn a_role_is_checked_member_by_member() {
    let paths = |more: &Value| -> Vec<String> {
        let found = problems(more);
        let path = |problem: &String| problem.split(": ").next().unwrap().to_owned();
        found.iter().map(path).collect()
    };
    assert_eq!(paths(&json!({"assume_role": {}})), ["assume_role.role_arn"]);
    assert_eq!(
        paths(&json!({"profile": "a]b", "assume_role": {
            "role_arn": "sender", "external_id": "x", "session_name": "two words",
        }})),
        [
            "profile",
            "assume_role.role_arn",
            "assume_role.external_id",
            "assume_role.session_name",
        ]
    );
    for arn in [
        "arn:aws:iam::123456789012:user/r",
        "arn:aws:iam::12345:role/r",
        "arn:aws:iam:us-east-1:123456789012:role/r",
        "arn:aws:sts::123456789012:role/r",
        "arn:aws:iam::123456789012:role/",
        "arn:aws:iam::123456789012:role/a b",
        "aws:iam::123456789012:role/r",
    ] {
        let found = paths(&json!({"assume_role": {"role_arn": arn}}));
        assert_eq!(found, ["assume_role.role_arn"], "{arn}");
    }
    let long = "s".repeat(65);
    for name in ["s", long.as_str(), "a/b"] {
        let found = paths(&json!({"assume_role": {
            "role_arn": "arn:aws:iam::123456789012:role/r", "session_name": name,
        }}));
        assert_eq!(found, ["assume_role.session_name"], "{name}");
    }
}

#[cfg(not(feature = "default-chain"))]
#[test]
fn a_profile_and_a_role_need_the_chain() {
    let found = problems(&json!({
        "profile": "sender",
        "assume_role": {"role_arn": "arn:aws:iam::123456789012:role/r"},
    }));
    assert_eq!(found.len(), 2, "{found:?}");
    for (problem, path) in found.iter().zip(["profile: ", "assume_role: "]) {
        assert!(problem.starts_with(path), "{problem}");
        assert!(problem.contains("default-chain"), "{problem}");
    }
}
