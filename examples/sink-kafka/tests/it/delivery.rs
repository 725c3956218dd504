//! What arrives in a topic.

use std::collections::HashSet;
use std::sync::Arc;

use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, Envelope, HostServices, Message, Sink as _};
use rdkafka::Timestamp;
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use serde_json::json;

use crate::support::{Cluster, TOPIC, ctx, envelope, envelope_of, sink};

fn headers(message: &OwnedMessage) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = message.headers().unwrap().iter();
    headers
        .map(|header| {
            let value = header.value.unwrap_or_default();
            (header.key.to_owned(), text(value))
        })
        .collect()
}

#[tokio::test]
async fn a_stored_record_is_the_message_with_its_attributes_as_headers() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    let envelope = envelope_of("hello").with_dedupe_key("line\r\nbreak é");
    let context = ctx().with_replay_id("rp-1");
    let receipt = sink.deliver(&envelope, &context).await.unwrap();
    assert_eq!(receipt.provider_id.as_deref(), Some("hooks/0/0"));
    assert_eq!(receipt.sequence.as_deref(), Some("0"));

    let stored = &cluster.stored(0, 1)[0];
    let message = Message::for_delivery(&envelope, &context, DEFAULT_INLINE_MAX_BYTES).unwrap();
    assert_eq!(stored.payload().unwrap(), message.encode().as_bytes());
    assert_eq!(stored.key().unwrap(), b"acme/github");
    assert_eq!(stored.timestamp(), Timestamp::CreateTime(1_767_225_600_123));
    let attributes: Vec<_> = message
        .attributes()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into_owned()))
        .collect();
    assert_eq!(headers(stored), attributes);
}

#[tokio::test]
async fn without_a_tenant_the_header_is_there_and_empty() {
    let cluster = Cluster::start();
    let id = HostServices::new().new_envelope_id();
    let envelope = Envelope::new(id, "github", 1, "{}");
    let sink = cluster.sink(&json!({}));
    sink.deliver(&envelope, &ctx()).await.unwrap();
    let stored = &cluster.stored(0, 1)[0];
    assert_eq!(stored.key().unwrap(), b"/github");
    assert!(headers(stored).contains(&("ankusa_tenant_id".to_owned(), String::new())));
}

#[tokio::test]
async fn a_body_over_the_inline_maximum_goes_by_claim() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"inline_max_bytes": 4}));
    let envelope = envelope_of("hello");
    let error = sink.deliver(&envelope, &ctx()).await.unwrap_err();
    assert_eq!(error.code(), "ClaimCheckMissing");
    let claim = "urn:ankusa:claim:v1:acme:01KDVDNA3V24H36H2NCSVRG000";
    let context = ctx().with_claim(claim.parse().unwrap());
    sink.deliver(&envelope, &context).await.unwrap();
    let stored = cluster.stored(0, 1);
    assert!(String::from_utf8_lossy(stored[0].payload().unwrap()).contains(claim));
}

#[tokio::test]
async fn many_deliveries_at_once_are_each_stored_once_and_each_get_their_own_receipt() {
    const COUNT: usize = 500;
    let cluster = Cluster::start();
    let sink = Arc::new(cluster.sink(&json!({"timeout_ms": 20_000})));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..COUNT {
        let sink = Arc::clone(&sink);
        running.spawn(async move { sink.deliver(&envelope(), &ctx()).await.unwrap() });
    }
    let receipts: HashSet<_> = running
        .join_all()
        .await
        .into_iter()
        .map(|receipt| receipt.provider_id.unwrap())
        .collect();
    assert_eq!(receipts.len(), COUNT);
    assert_eq!(cluster.stored(0, COUNT).len(), COUNT);
}

#[tokio::test]
async fn one_tenant_and_source_keeps_to_one_partition_and_its_order() {
    let cluster = Cluster::without_topic();
    cluster.create_topic(4);
    let sink = cluster.sink(&json!({}));
    let first = sink.deliver(&envelope(), &ctx()).await.unwrap();
    let partition = first
        .provider_id
        .unwrap()
        .split('/')
        .nth(1)
        .unwrap()
        .to_owned();
    for offset in 1..10 {
        let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
        let expected = format!("{TOPIC}/{partition}/{offset}");
        assert_eq!(receipt.provider_id, Some(expected));
    }
}

/// Real brokers, if the environment names some.
#[tokio::test]
async fn named_brokers_store_a_record() {
    let Ok(brokers) = std::env::var("KAFKA_BROKERS") else {
        eprintln!("skipped: KAFKA_BROKERS names no brokers");
        return;
    };
    let topic = std::env::var("KAFKA_TOPIC").unwrap_or_else(|_| TOPIC.to_owned());
    let sink = sink(&brokers, &json!({"topic": topic}));
    let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert!(
        receipt
            .provider_id
            .unwrap()
            .starts_with(&format!("{topic}/"))
    );
    let missing = format!("{topic}-that-nobody-made");
    let sink = crate::support::sink(&brokers, &json!({"topic": missing}));
    for _ in 0..2 {
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(error.code(), "UnknownTopic");
    }
}
