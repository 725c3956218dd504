//! Nothing shows a credential or a payload.

use std::error::Error;

use dispatch_api::{Sink as _, SinkError};
use serde_json::json;
use sink_nats::NatsSinkConfig;

use crate::fake::{FakeServer, Then, refusal};
use crate::support::{ctx, envelope_of, sink};

const SECRET: &str = "canarySecret";
const PAYLOAD: &str = "canaryPayload";

/// Everything an error says, its causes included.
fn everything(error: &SinkError) -> String {
    let mut shown = format!("{error} {error:?} {error:#?}");
    let mut next = error.source();
    while let Some(cause) = next {
        shown.push_str(&format!(" {cause} {cause:?}"));
        next = cause.source();
    }
    shown
}

fn assert_clean(shown: &str) {
    // The payload travels in base64.
    for forbidden in [SECRET, PAYLOAD, "Y2FuYXJ5UGF5bG9hZ"] {
        assert!(!shown.contains(forbidden), "{forbidden} in {shown}");
    }
}

#[tokio::test]
async fn no_error_shows_a_credential_or_a_payload() {
    let script = [
        refusal(503, 10077, &format!("maximum {PAYLOAD} {SECRET}")),
        refusal(400, 1, &format!("{PAYLOAD} {SECRET}")),
        Then::Reply(format!("{PAYLOAD} {SECRET}")),
        Then::Error(format!("Authorization Violation {SECRET}")),
        Then::Error("Permissions Violation for Publish to \"hooks.acme\"".to_owned()),
        Then::Close,
    ];
    let count = script.len();
    let server = FakeServer::start(script).await;
    let address = server.address();
    for options in [
        json!({"token": SECRET}),
        json!({"user": "u", "password": SECRET}),
    ] {
        let mut options = options;
        options["timeout_ms"] = json!(300);
        let sink = sink(&address, &options);
        for _ in 0..count / 2 {
            let error = sink
                .deliver(&envelope_of(PAYLOAD), &ctx())
                .await
                .unwrap_err();
            assert_clean(&everything(&error));
        }
    }
    drop(server);
    let sink = sink(&address, &json!({"token": SECRET, "timeout_ms": 300}));
    let error = sink
        .deliver(&envelope_of(PAYLOAD), &ctx())
        .await
        .unwrap_err();
    assert_clean(&everything(&error));
}

#[test]
fn no_public_type_shows_a_credential() {
    for options in [
        json!({"token": SECRET}),
        json!({"user": "u", "password": SECRET}),
    ] {
        let sink = sink("127.0.0.1", &options);
        let shown = format!(
            "{sink:?} {sink:#?} {:?} {:#?} {:?} {:?}",
            sink.config(),
            sink.config(),
            sink.describe(),
            sink_nats::PLUGIN,
        );
        assert!(shown.contains("redacted"), "{shown}");
        assert_clean(&shown);
    }
}

#[test]
fn no_problem_shows_a_credential() {
    let problems = NatsSinkConfig::from_options(&json!({
        "servers": [format!("nats://u:{SECRET}@127.0.0.1"), format!("http://{SECRET}")],
        "subject": format!("{SECRET}.*"), "token": SECRET, "user": SECRET,
        "credentials_file": format!("/{SECRET}"), "timeout_ms": SECRET,
        "tls": {"root_certificates": [format!("/{SECRET}")]},
    }))
    .unwrap_err();
    assert_eq!(problems.iter().count(), 6, "{problems}");
    assert_clean(&format!("{problems} {problems:?}"));
}
