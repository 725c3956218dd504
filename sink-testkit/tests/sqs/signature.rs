//! Requests that are not signed well.

use std::time::Duration;

use reqwest::header::HeaderValue;
use serde_json::json;
use sink_testkit::sqs::{Credentials, SqsServer};

use crate::support::{Client, Reply, standard};

async fn send(client: &Client) -> Reply {
    client
        .on("q", "SendMessage", json!({ "MessageBody": "a" }))
        .await
}

#[track_caller]
fn assert_signature_error(reply: &Reply) {
    reply.assert_error(
        403,
        "com.amazon.coral.service#InvalidSignatureException",
        "SignatureDoesNotMatch;Sender",
    );
}

#[track_caller]
fn assert_unknown_client(reply: &Reply) {
    reply.assert_error(
        403,
        "com.amazon.coral.service#UnrecognizedClientException",
        "InvalidClientTokenId;Sender",
    );
}

#[tokio::test]
async fn what_aws_sigv4_signs_is_accepted_with_and_without_a_token() {
    let (server, mut client) = standard().await;
    send(&client).await.ok();
    server.set_credentials([Credentials::new("temporary", "s/+=").with_session_token("t0ken==")]);
    client.access_key = "temporary".into();
    client.secret = "s/+=".into();
    client.token = Some("t0ken==".into());
    send(&client).await.ok();
}

#[tokio::test]
async fn an_unknown_access_key_is_an_unrecognized_client() {
    let (_server, mut client) = standard().await;
    client.access_key = "nobody".into();
    assert_unknown_client(&send(&client).await);
}

#[tokio::test]
async fn a_wrong_secret_region_or_service_does_not_match() {
    let (_server, client) = standard().await;
    let mut wrong = client.clone();
    wrong.secret = "other".into();
    assert_signature_error(&send(&wrong).await);
    let mut wrong = client.clone();
    wrong.region = "eu-west-1".into();
    assert_signature_error(&send(&wrong).await);
    let mut wrong = client;
    wrong.service = "sns".into();
    assert_signature_error(&send(&wrong).await);
}

#[tokio::test]
async fn a_tampered_body_does_not_match() {
    let (server, client) = standard().await;
    let mut request = client.signed("SendMessage", r#"{"QueueUrl":"q","MessageBody":"a"}"#);
    *request.body_mut() = Some(r#"{"QueueUrl":"q","MessageBody":"b"}"#.into());
    assert_signature_error(&client.send(request).await.unwrap());
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn a_clock_is_good_up_to_15_minutes_off_and_beyond_gives_the_code_of_a_bad_signature() {
    let (server, mut client) = standard().await;
    client.time = Some(server.clock().now());
    server.clock().advance(Duration::from_secs(890));
    send(&client).await.ok();
    server.clock().advance(Duration::from_secs(20));
    assert_signature_error(&send(&client).await);
    client.time = Some(server.clock().now() + Duration::from_secs(910));
    assert_signature_error(&send(&client).await);
}

#[tokio::test]
async fn a_malformed_authorization_is_an_incomplete_signature() {
    let (_server, client) = standard().await;
    let mut request = client.signed("SendMessage", "{}");
    request.headers_mut().insert(
        "authorization",
        HeaderValue::from_static("AWS4-HMAC-SHA256 Credential=test"),
    );
    client.send(request).await.unwrap().assert_error(
        400,
        "com.amazon.coral.service#IncompleteSignatureException",
        "IncompleteSignature;Sender",
    );
}

#[tokio::test]
async fn no_authorization_is_access_denied() {
    let (_server, client) = standard().await;
    let mut request = client.signed("SendMessage", "{}");
    request.headers_mut().remove("authorization");
    client.send(request).await.unwrap().assert_error(
        403,
        "com.amazon.coral.service#AccessDeniedException",
        "AccessDenied;Sender",
    );
}

#[tokio::test]
async fn a_token_that_is_wrong_missing_or_one_too_many_is_an_unrecognized_client() {
    let (server, mut client) = standard().await;
    client.token = Some("one too many".into());
    assert_unknown_client(&send(&client).await);
    server.set_credentials([Credentials::new("test", "test").with_session_token("right")]);
    client.token = Some("wrong".into());
    assert_unknown_client(&send(&client).await);
    client.token = None;
    assert_unknown_client(&send(&client).await);
}

#[tokio::test]
async fn a_token_past_its_end_is_expired() {
    let (server, mut client) = standard().await;
    let end = server.clock().now() + Duration::from_secs(60);
    server.set_credentials([Credentials::new("test", "test")
        .with_session_token("t")
        .expiring_at(end)]);
    client.token = Some("t".into());
    send(&client).await.ok();
    server.clock().advance(Duration::from_secs(60));
    send(&client).await.assert_error(
        403,
        "com.amazon.coral.service#ExpiredTokenException",
        "ExpiredToken;Sender",
    );
}

#[tokio::test]
async fn a_header_of_the_service_that_is_not_signed_does_not_match() {
    let (_server, client) = standard().await;
    let mut request = client.signed("SendMessage", r#"{"QueueUrl":"q","MessageBody":"a"}"#);
    request
        .headers_mut()
        .insert("x-amz-extra", HeaderValue::from_static("slipped in"));
    assert_signature_error(&client.send(request).await.unwrap());
}

#[tokio::test]
async fn a_header_that_need_not_be_signed_may_be_added() {
    let (_server, client) = standard().await;
    let mut request = client.signed("SendMessage", r#"{"QueueUrl":"q","MessageBody":"a"}"#);
    request
        .headers_mut()
        .insert("user-agent", HeaderValue::from_static("anything"));
    client.send(request).await.unwrap().ok();
}

#[tokio::test]
async fn a_server_can_be_told_not_to_look() {
    let server = SqsServer::builder()
        .verify_signatures(false)
        .start()
        .await
        .unwrap();
    server.create_queue("q", []).await.unwrap();
    let mut client = Client::of(&server);
    client.secret = "whatever".into();
    send(&client).await.ok();
}

#[tokio::test]
async fn debug_of_public_types_shows_no_secret() {
    let credentials = Credentials::new("key", "the-secret").with_session_token("the-token");
    let builder = SqsServer::builder().credentials([credentials.clone()]);
    let server = builder.clone().start().await.unwrap();
    let mut client = Client::of(&server);
    client.access_key = "key".into();
    client.secret = "the-secret".into();
    client.token = Some("the-token".into());
    client.call("ListQueues", json!({})).await.ok();
    let shown = format!(
        "{credentials:?} {builder:?} {server:?} {:?}",
        server.requests()
    );
    assert!(
        !shown.contains("the-secret") && !shown.contains("the-token"),
        "{shown}"
    );
}
