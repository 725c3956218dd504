//! Nothing shows a credential or a payload.

use std::error::Error;

use dispatch_api::{HostServices, Sink as _, SinkError};
use http::StatusCode;
use sink_sqs::SqsSink;
use sink_testkit::sqs::{Answer, Credentials, Damage, ErrorCode, Fault, Operation, SqsServer};

use crate::bench::{QUEUE, config, ctx, envelope_of, sink};
use crate::raw::{RawServer, Then};

const SECRET: &str = "canarySecretKey";
const TOKEN: &str = "canarySessionToken";
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
    let encoded = "Y2FuYXJ5UGF5bG9hZ";
    for forbidden in [SECRET, TOKEN, PAYLOAD, encoded] {
        assert!(!shown.contains(forbidden), "{forbidden} in {shown}");
    }
}

fn canary_sink(queue_url: &str) -> SqsSink {
    sink(
        config(queue_url)
            .credentials("AKID", SECRET)
            .session_token(TOKEN)
            .timeout_ms(300),
    )
}

async fn canary_server() -> (SqsServer, String) {
    let server = SqsServer::builder()
        .credentials([Credentials::new("AKID", SECRET).with_session_token(TOKEN)])
        .start()
        .await
        .unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    (server, queue_url)
}

fn echo(text: String) -> Answer {
    let body = serde_json::json!({"__type": "com.amazonaws.sqs#AccessDenied", "message": text});
    Answer::json(StatusCode::FORBIDDEN, &body)
}

#[tokio::test]
async fn no_error_shows_a_credential_or_a_payload() {
    let (server, queue_url) = canary_server().await;
    let sink = canary_sink(&queue_url);
    let envelope = envelope_of(PAYLOAD);
    sink.deliver(&envelope, &ctx()).await.unwrap();
    let sent = server.requests_of(Operation::SendMessage)[0].clone();
    let body = sent.json()["MessageBody"].as_str().unwrap().to_owned();
    for fault in [
        Fault::reset(),
        Fault::silence(),
        Fault::truncated(),
        Fault::padded(1_100_000),
        Fault::damaged(Damage::BodyDigestWrong),
        Fault::answer(Answer::html(StatusCode::BAD_GATEWAY)),
        Fault::answer(Answer::new(StatusCode::OK).with_body(body.clone())),
        Fault::answer(Answer::new(StatusCode::BAD_GATEWAY).with_body(body.clone())),
        Fault::answer(echo(format!("the body {body} is refused"))),
        Fault::answer(echo(format!("x-amz-security-token:{TOKEN} and {SECRET}"))),
        Fault::answer(Answer::error(ErrorCode::InvalidSignature)),
        Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
    ] {
        server.fault(Operation::SendMessage, fault);
        let error = sink.deliver(&envelope, &ctx()).await.unwrap_err();
        assert_clean(&everything(&error));
    }
    server.shutdown().await;
    let error = sink.deliver(&envelope, &ctx()).await.unwrap_err();
    assert_clean(&everything(&error));
    let raw = RawServer::start(Then::Close).await;
    let error = canary_sink(&raw.queue_url())
        .deliver(&envelope, &ctx())
        .await
        .unwrap_err();
    assert_clean(&everything(&error));
}

#[test]
fn no_public_type_shows_a_credential() {
    let builder = config("http://127.0.0.1:1/000000000000/hooks")
        .credentials("AKID", SECRET)
        .session_token(TOKEN);
    let mut shown = format!("{builder:?} {:?}", sink_sqs::PLUGIN);
    let sink = sink(builder);
    shown.push_str(&format!(
        "{sink:?} {sink:#?} {:?} {:#?} {:?}",
        sink.config(),
        sink.config(),
        sink.describe()
    ));
    assert!(shown.contains("hooks"));
    assert_clean(&shown);
}

#[test]
fn no_problem_shows_a_credential() {
    let problems = sink_sqs::SqsSinkConfig::from_options(
        &serde_json::json!({
            "queue_url": format!("https://{SECRET}:{TOKEN}@127.0.0.1/0/hooks"),
            "region": SECRET, "endpoint": SECRET, "message_group_id": "{",
            "access_key_id": format!("{SECRET} "), "session_token": format!("{TOKEN} "),
            "timeout_ms": SECRET, "batch": SECRET, "http": {"proxy": SECRET},
        }),
        &HostServices::new(),
    )
    .unwrap_err();
    assert!(problems.iter().count() >= 8);
    assert_clean(&format!("{problems} {problems:?}"));
}
