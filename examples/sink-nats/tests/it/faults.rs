//! What a scripted server answers, and how each is classed.

use dispatch_api::{Outcome, Sink as _};
use serde_json::json;

use crate::fake::{FakeServer, Then, ack, refusal};
use crate::support::{ctx, envelope, parts, sink};

#[tokio::test]
async fn every_answer_of_a_stream_has_its_class_and_outcome() {
    use Outcome::{NotStored, Unknown};
    let cases = [
        (
            refusal(503, 10077, "maximum bytes exceeded"),
            ("retry_after", NotStored, "StreamFull"),
        ),
        (
            refusal(503, 10077, "write failed"),
            ("transient", Unknown, "StoreFailed"),
        ),
        (
            refusal(503, 10023, "insufficient resources"),
            ("retry_after", NotStored, "InsufficientResources"),
        ),
        (
            refusal(429, 10167, "too many requests"),
            ("retry_after", NotStored, "TooManyRequests"),
        ),
        (
            refusal(404, 10059, "stream not found"),
            ("config", NotStored, "NoStream"),
        ),
        (
            refusal(503, 10076, "jetstream not enabled"),
            ("config", NotStored, "JetStreamNotEnabled"),
        ),
        (
            refusal(400, 10054, "message size exceeds maximum allowed"),
            ("permanent", NotStored, "MessageTooLarge"),
        ),
        (
            refusal(503, 10008, "unavailable"),
            ("transient", Unknown, "JetStreamUnavailable"),
        ),
        (
            refusal(400, 99_999, "?"),
            ("transient", NotStored, "StreamError"),
        ),
        (
            Then::Reply("{}".to_owned()),
            ("transient", Unknown, "UnexpectedReply"),
        ),
        (
            Then::Reply(String::new()),
            ("transient", Unknown, "UnexpectedReply"),
        ),
    ];
    let server = FakeServer::start(cases.iter().map(|(then, _)| then.clone())).await;
    let sink = sink(&server.address(), &json!({}));
    for (then, expected) in &cases {
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(parts(&error), *expected, "{then:?}");
    }
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert!(
        server
            .published()
            .iter()
            .all(|message| message.connection == 0)
    );
}

#[tokio::test]
async fn a_duplicate_is_a_success() {
    let duplicate = r#"{"stream":"HOOKS","seq":5,"duplicate":true}"#;
    let server = FakeServer::start([Then::Reply(duplicate.to_owned())]).await;
    let sink = sink(&server.address(), &json!({}));
    let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(receipt.provider_id.as_deref(), Some("HOOKS/5"));
}

#[tokio::test]
async fn an_error_of_the_server_about_something_else_changes_nothing() {
    let server = FakeServer::start([
        Then::Error("Permissions Violation for Publish to \"hooks.globex\"".to_owned()),
        ack(2),
    ])
    .await;
    let sink = sink(
        &server.address(),
        &json!({"timeout_ms": 200, "subject": "hooks.{tenant_id}"}),
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_refused_header_leaves_no_trace_on_the_wire() {
    let server = FakeServer::start([]).await;
    let sink = sink(&server.address(), &json!({}));
    for key in ["a\r\nNats-Msg-Id: stolen", "a\n", "a\r", "a\0"] {
        let error = sink
            .deliver(&envelope().with_dedupe_key(key), &ctx())
            .await
            .unwrap_err();
        assert_eq!(
            parts(&error),
            ("permanent", Outcome::NotStored, "InvalidHeader")
        );
    }
    assert_eq!(server.connects().len(), 0);
    let envelope = envelope().with_dedupe_key("Nats-Msg-Id: stolen");
    sink.deliver(&envelope, &ctx()).await.unwrap();
    let published = server.published();
    assert_eq!(published.len(), 1);
    let ids = published[0]
        .headers
        .lines()
        .filter(|line| line.starts_with("Nats-Msg-Id:"));
    let expected = format!("Nats-Msg-Id: {}", envelope.id());
    assert_eq!(ids.collect::<Vec<_>>(), [expected]);
    assert_eq!(published[0].subject, "hooks.acme");
}
