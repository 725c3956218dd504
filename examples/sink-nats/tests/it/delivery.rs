//! What arrives in a stream.

use std::collections::HashSet;
use std::sync::Arc;

use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, HostServices, Message, Sink as _};
use serde_json::json;

use crate::support::server::server_or_skip;
use crate::support::{ctx, envelope, envelope_of, parts, sink, sink_in, soon};

#[tokio::test]
async fn a_stored_message_is_the_message_with_its_attributes_as_headers() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    let envelope = envelope_of("hello").with_dedupe_key("d 1 é");
    let receipt = sink.deliver(&envelope, &ctx()).await.unwrap();
    assert_eq!(receipt.provider_id.as_deref(), Some("HOOKS/1"));
    assert_eq!(receipt.sequence.as_deref(), Some("1"));

    let stored = stream.get_raw_message(1).await.unwrap();
    let context = ctx();
    let message = Message::for_delivery(&envelope, &context, DEFAULT_INLINE_MAX_BYTES).unwrap();
    assert_eq!(stored.subject.as_str(), "hooks.acme");
    assert_eq!(stored.payload, message.encode().as_bytes());
    let attributes = message.attributes();
    assert_eq!(stored.headers.len(), attributes.len() + 1);
    for (name, value) in attributes {
        assert_eq!(stored.headers.get(name).unwrap().as_str(), value, "{name}");
    }
    let id = envelope.id().to_string();
    assert_eq!(stored.headers.get("Nats-Msg-Id").unwrap().as_str(), id);
}

#[tokio::test]
async fn without_a_tenant_the_header_is_there_and_empty() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    let id = HostServices::new().new_envelope_id();
    let envelope = dispatch_api::Envelope::new(id, "github", 0, "{}");
    sink.deliver(&envelope, &ctx()).await.unwrap();
    let stored = stream.get_raw_message(1).await.unwrap();
    assert_eq!(stored.headers.get("ankusa_tenant_id").unwrap().as_str(), "");
}

#[tokio::test]
async fn a_repeat_is_answered_with_the_first_receipt_and_a_replay_is_stored_again() {
    let server = server_or_skip!();
    let mut stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    let envelope = envelope();
    let first = sink.deliver(&envelope, &ctx()).await.unwrap();
    assert_eq!(sink.deliver(&envelope, &ctx()).await.unwrap(), first);
    let replay = ctx().with_replay_id("rp-1");
    let replayed = sink.deliver(&envelope, &replay).await.unwrap();
    assert_eq!(replayed.provider_id.as_deref(), Some("HOOKS/2"));
    assert_eq!(sink.deliver(&envelope, &replay).await.unwrap(), replayed);
    assert_eq!(stream.info().await.unwrap().state.messages, 2);
}

#[tokio::test]
async fn a_body_over_the_inline_maximum_goes_by_claim() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({"inline_max_bytes": 4}));
    let envelope = envelope_of("hello");
    let error = sink.deliver(&envelope, &ctx()).await.unwrap_err();
    assert_eq!(error.code(), "ClaimCheckMissing");
    let claim = "urn:ankusa:claim:v1:acme:01KDVDNA3V24H36H2NCSVRG000";
    let context = ctx().with_claim(claim.parse().unwrap());
    sink.deliver(&envelope, &context).await.unwrap();
    let stored = stream.get_raw_message(1).await.unwrap();
    assert!(String::from_utf8_lossy(&stored.payload).contains(claim));
}

#[tokio::test]
async fn many_deliveries_at_once_are_each_stored_once_and_each_get_their_own_receipt() {
    const COUNT: u64 = 200;
    let server = server_or_skip!();
    let mut stream = server.create_stream().await;
    let sink = Arc::new(sink(&server.address(), &json!({"timeout_ms": 20_000})));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..COUNT {
        let sink = Arc::clone(&sink);
        running.spawn(async move { sink.deliver(&envelope(), &ctx()).await.unwrap() });
    }
    let receipts: HashSet<_> = soon(running.join_all())
        .await
        .into_iter()
        .map(|receipt| receipt.provider_id.unwrap())
        .collect();
    assert_eq!(receipts.len() as u64, COUNT);
    assert_eq!(stream.info().await.unwrap().state.messages, COUNT);
}

#[tokio::test]
async fn deliveries_awaited_one_by_one_are_stored_in_their_order() {
    let server = server_or_skip!();
    server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    for number in 1..=20 {
        let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
        assert_eq!(receipt.sequence, Some(number.to_string()));
    }
}

#[tokio::test]
async fn a_hostile_tenant_stays_one_token_and_harms_no_neighbour() {
    let server = server_or_skip!();
    let mut stream = server
        .create_stream_with(|config| config.subjects = vec!["hooks.*".to_owned()])
        .await;
    let sink = sink(&server.address(), &json!({"subject": "hooks.{tenant_id}"}));
    for (tenant, subject) in [
        ("globex.acme", "hooks.globex%2Eacme"),
        (">", "hooks.%3E"),
        ("a b", "hooks.a%20b"),
        ("", "hooks.%"),
    ] {
        let receipt = sink
            .deliver(&envelope().with_tenant(tenant), &ctx())
            .await
            .unwrap();
        let sequence = receipt.sequence.unwrap().parse().unwrap();
        let stored = stream.get_raw_message(sequence).await.unwrap();
        assert_eq!(stored.subject.as_str(), subject);
    }
    for tenant in ["x\r\nPUB hooks.globex 0\r\n\r\n", "x\0"] {
        let error = sink
            .deliver(&envelope().with_tenant(tenant), &ctx())
            .await
            .unwrap_err();
        assert_eq!(error.code(), "InvalidHeader");
    }
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 5);
}

#[tokio::test]
async fn sinks_of_one_host_with_the_same_servers_share_a_connection() {
    let server = server_or_skip!();
    server.create_stream().await;
    let services = HostServices::new();
    let subjects = ["hooks.one", "hooks.two", "hooks.three"];
    let sinks =
        subjects.map(|subject| sink_in(&services, &server.address(), &json!({"subject": subject})));
    for sink in &sinks {
        sink.deliver(&envelope(), &ctx()).await.unwrap();
    }
    let other = sink(&server.address(), &json!({"subject": "none.there"}));
    let error = other.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error).2, "NoStream");
}

/// The server that the environment names, if it does: a stream there has to take
/// `hooks.acme`.
#[tokio::test]
async fn a_named_server_stores_a_message() {
    let Ok(url) = std::env::var("NATS_URL") else {
        eprintln!("skipped: NATS_URL names no server");
        return;
    };
    let sink = sink(&url, &json!({}));
    let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert!(receipt.provider_id.is_some());
}
