//! Messages that arrive.

use std::time::Duration;

use dispatch_api::{
    ClaimId, ClaimRef, DeliveryContext, Envelope, HostServices, Message, Outcome, Sink as _,
};
use serde_json::json;
use sink_testkit::sqs::{Credentials, Fault, Operation, SqsServer};
use tokio::task::JoinSet;

use crate::bench::{Bench, FIFO_QUEUE, ID, QUEUE, config, ctx, envelope, envelope_of, parts, sink};

/// The text that every sink publishes for this delivery.
fn expected_body(envelope: &Envelope, ctx: &DeliveryContext, bench: &Bench) -> String {
    let inline = bench.sink.inline_max_bytes().unwrap();
    Message::for_delivery(envelope, ctx, inline)
        .unwrap()
        .encode()
}

fn attributes(bench: &Bench) -> Vec<(String, String)> {
    bench.stored()[0]
        .attributes
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

#[tokio::test]
async fn a_standard_queue_stores_the_message_byte_for_byte_without_ids() {
    let bench = Bench::standard().await;
    let receipt = bench.deliver().await.unwrap();
    let stored = bench.stored();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].body, expected_body(&envelope(), &ctx(), &bench));
    assert_eq!(receipt.provider_id, Some(stored[0].message_id.clone()));
    assert_eq!(receipt.sequence, None);
    assert_eq!(stored[0].group_id, None);
    assert_eq!(stored[0].deduplication_id, None);
}

#[tokio::test]
async fn every_attribute_with_a_value_is_sent_as_a_string() {
    let bench = Bench::standard().await;
    let replay = ctx().with_replay_id("rp-3");
    bench.sink.deliver(&envelope(), &replay).await.unwrap();
    let expected = [
        ("ankusa_dedupe_key", "mv-88 🌊"),
        ("ankusa_id", ID),
        ("ankusa_idempotency_key", "quay-7:harbor:mv-88 🌊"),
        ("ankusa_message_version", "1"),
        ("ankusa_replay_id", "rp-3"),
        ("ankusa_source_id", "harbor"),
        ("ankusa_tenant_id", "quay-7"),
        ("content_type", "application/json"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(attributes(&bench), expected);
    let sent = bench.sends()[0].json();
    for attribute in sent["MessageAttributes"].as_object().unwrap().values() {
        assert_eq!(attribute["DataType"], "String");
    }
}

#[tokio::test]
async fn an_attribute_without_a_value_is_left_out() {
    let bench = Bench::standard().await;
    let bare = Envelope::new(ID.parse().unwrap(), "harbor", 0, "");
    bench.sink.deliver(&bare, &ctx()).await.unwrap();
    let names: Vec<_> = attributes(&bench)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(!names.contains(&"ankusa_tenant_id".to_owned()), "{names:?}");
    assert_eq!(names.len(), 5);
}

#[tokio::test]
async fn a_fifo_queue_gets_the_group_and_the_deduplication_id() {
    let bench = Bench::fifo().await;
    let receipt = bench.deliver().await.unwrap();
    let stored = bench.stored();
    assert_eq!(stored[0].body, expected_body(&envelope(), &ctx(), &bench));
    assert_eq!(stored[0].group_id.as_deref(), Some("quay-7/harbor"));
    assert_eq!(stored[0].deduplication_id.as_deref(), Some(ID));
    assert_eq!(receipt.sequence, stored[0].sequence_number);
    assert!(receipt.sequence.is_some());
}

#[tokio::test]
async fn a_replay_changes_the_deduplication_id_only_and_is_stored_again() {
    let bench = Bench::fifo().await;
    bench.deliver().await.unwrap();
    let replay = ctx().with_replay_id("rp-3");
    bench.sink.deliver(&envelope(), &replay).await.unwrap();
    let stored = bench.stored();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].group_id, stored[1].group_id);
    let deduplication_id = stored[1].deduplication_id.clone().unwrap();
    assert_eq!(deduplication_id, format!("{ID}:replay:rp-3"));
}

#[tokio::test]
async fn a_retry_after_a_lost_answer_is_stored_once_on_a_fifo_queue() {
    let bench = Bench::fifo().await;
    bench
        .server
        .fault(Operation::SendMessage, Fault::reset().after_storing());
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(error.code(), "ConnectionLost");
    bench.deliver().await.unwrap();
    assert_eq!(bench.stored().len(), 1);
    assert_eq!(bench.sends().len(), 2);
}

#[tokio::test]
async fn a_retry_after_the_deduplication_window_can_be_stored_twice() {
    let bench = Bench::fifo().await;
    bench.deliver().await.unwrap();
    bench.server.clock().advance(Duration::from_secs(299));
    bench.deliver().await.unwrap();
    assert_eq!(bench.stored().len(), 1);
    bench.server.clock().advance(Duration::from_secs(2));
    bench.deliver().await.unwrap();
    assert_eq!(bench.stored().len(), 2);
}

#[tokio::test]
async fn one_group_arrives_in_the_order_in_which_it_was_answered() {
    let bench = Bench::fifo().await;
    let services = HostServices::new();
    let mut sent = Vec::new();
    for number in 0..20 {
        let id = services.new_envelope_id();
        let envelope = Envelope::new(id, "harbor", number, "{}");
        bench.sink.deliver(&envelope, &ctx()).await.unwrap();
        sent.push(Some(id.to_string()));
    }
    let stored: Vec<_> = bench
        .stored()
        .into_iter()
        .inspect(|message| assert_eq!(message.group_id.as_deref(), Some("/harbor")))
        .map(|message| message.deduplication_id)
        .collect();
    assert_eq!(stored, sent);
}

#[tokio::test]
async fn a_standard_queue_with_a_group_is_a_fair_queue() {
    let bench = Bench::with(QUEUE, |config| config.message_group_id("{tenant_id}")).await;
    bench.deliver().await.unwrap();
    let stored = bench.stored();
    assert_eq!(stored[0].group_id.as_deref(), Some("quay-7"));
    assert_eq!(stored[0].deduplication_id, None);
}

#[tokio::test]
async fn a_closure_can_make_the_group() {
    let bench = Bench::with(FIFO_QUEUE, |config| {
        config.message_group_id_with(|envelope| envelope.source_id().to_uppercase())
    })
    .await;
    bench.deliver().await.unwrap();
    assert_eq!(bench.stored()[0].group_id.as_deref(), Some("HARBOR"));
}

#[tokio::test]
async fn a_body_over_the_inline_limit_goes_by_claim() {
    let bench = Bench::with(QUEUE, |config| config.inline_max_bytes(16)).await;
    let envelope = envelope_of("x".repeat(17));
    let error = bench.sink.deliver(&envelope, &ctx()).await.unwrap_err();
    assert_eq!(error.code(), "ClaimCheckMissing");
    let claim = ClaimRef::new("quay-7", ClaimId::new(1, 2, 3)).unwrap();
    let by_claim = ctx().with_claim(claim.clone());
    bench.sink.deliver(&envelope, &by_claim).await.unwrap();
    bench
        .sink
        .deliver(&envelope_of("x".repeat(16)), &by_claim)
        .await
        .unwrap();
    let stored = bench.stored();
    assert_eq!(stored.len(), 2);
    assert!(stored[0].body.contains(&claim.to_string()));
    assert!(stored[1].body.contains("body_base64"));
}

#[tokio::test]
async fn the_request_is_a_post_to_the_root_with_the_queue_in_its_body() {
    let bench = Bench::standard().await;
    bench.deliver().await.unwrap();
    let sends = bench.sends();
    let request = &sends[0];
    assert_eq!(request.line, "POST /");
    for (name, value) in [
        ("content-type", "application/x-amz-json-1.0"),
        ("x-amz-target", "AmazonSQS.SendMessage"),
        ("x-amzn-query-mode", "true"),
        ("content-length", &request.body.len().to_string()),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
        assert_eq!(request.headers.get_all(name).iter().count(), 1, "{name}");
    }
    assert!(
        request
            .header("user-agent")
            .unwrap()
            .starts_with("sink-sqs/")
    );
    for absent in ["transfer-encoding", "x-amz-security-token", "expect"] {
        assert_eq!(request.header(absent), None);
    }
    let body = request.json();
    assert_eq!(body["QueueUrl"], bench.server.queue_url(QUEUE));
    assert_eq!(body.get("DelaySeconds"), None);
    assert_eq!(body.get("MessageSystemAttributes"), None);
}

#[tokio::test]
async fn an_endpoint_of_its_own_leaves_the_queue_url_as_it_is() {
    let server = SqsServer::start().await.unwrap();
    server.create_queue(QUEUE, []).await.unwrap();
    let elsewhere = format!(
        "http://localhost:{}/000000000000/{QUEUE}",
        server.address().port()
    );
    let sink = sink(config(&elsewhere).endpoint(server.endpoint()));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let requests = server.requests_of(Operation::SendMessage);
    assert_eq!(requests[0].json()["QueueUrl"], elsewhere);
    assert_eq!(
        requests[0].header("host"),
        Some(server.address().to_string().as_str())
    );
}

#[tokio::test]
async fn a_session_token_is_sent_and_signed() {
    let server = SqsServer::builder()
        .credentials([Credentials::new("AKID", "secret").with_session_token("token-1")])
        .start()
        .await
        .unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let sink = sink(
        config(&queue_url)
            .credentials("AKID", "secret")
            .session_token("token-1"),
    );
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let requests = server.requests_of(Operation::SendMessage);
    assert_eq!(requests[0].header("x-amz-security-token"), Some("token-1"));
    let authorization = requests[0].header("authorization").unwrap();
    assert!(authorization.contains("x-amz-security-token"));
}

#[tokio::test]
async fn exactly_the_maximum_is_accepted_and_one_byte_more_is_refused_unsent() {
    let envelope = envelope_of("x".repeat(1_000)).with_dedupe_key("€".repeat(80));
    let generous = config("http://127.0.0.1:1/000000000000/hooks")
        .build(&HostServices::new())
        .unwrap();
    let size = generous.preflight(&envelope, &ctx()).unwrap();

    // A queue with this very maximum counts along.
    let server = SqsServer::start().await.unwrap();
    let maximum = size.to_string();
    let queue_url = server
        .create_queue(QUEUE, [("MaximumMessageSize", maximum.as_str())])
        .await
        .unwrap();
    let exact = sink(config(&queue_url).max_message_bytes(size as u64));
    exact.deliver(&envelope, &ctx()).await.unwrap();
    let longer = envelope_of("x".repeat(1_003)).with_dedupe_key("€".repeat(80));
    let error = exact.deliver(&longer, &ctx()).await.unwrap_err();
    assert_eq!(error.code(), "MessageTooLarge");
    let smaller = sink(config(&queue_url).max_message_bytes(size as u64 - 1));
    let error = smaller.deliver(&envelope, &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "MessageTooLarge")
    );
    assert!(error.text().contains(&maximum), "{error}");
    assert_eq!(server.requests_of(Operation::SendMessage).len(), 1);

    // The same count makes the queue refuse what it cannot hold.
    let lower = (size - 1).to_string();
    let queue_url = server
        .create_queue("lower", [("MaximumMessageSize", lower.as_str())])
        .await
        .unwrap();
    let error = sink(config(&queue_url))
        .deliver(&envelope, &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "InvalidParameterValue")
    );
}

#[tokio::test]
async fn a_message_of_nearly_one_mebibyte_passes() {
    let bench = Bench::with(QUEUE, |config| config.inline_max_bytes(786_000)).await;
    let envelope = envelope_of(vec![0xa5; 780_000]);
    let size = bench.sink.config().preflight(&envelope, &ctx()).unwrap();
    assert!(size > 1_040_000, "{size}");
    bench.sink.deliver(&envelope, &ctx()).await.unwrap();
    assert_eq!(
        bench.stored()[0].body,
        expected_body(&envelope, &ctx(), &bench)
    );
}

#[tokio::test]
async fn many_deliveries_at_once_are_each_stored_once() {
    let bench = Bench::standard().await;
    let services = HostServices::new();
    let sink = std::sync::Arc::new(bench.sink);
    let mut deliveries = JoinSet::new();
    let mut ids = Vec::new();
    for _ in 0..64 {
        let id = services.new_envelope_id();
        ids.push(json!(id.to_string()));
        let sink = std::sync::Arc::clone(&sink);
        deliveries.spawn(async move {
            let envelope = Envelope::new(id, "harbor", 0, "{}");
            sink.deliver(&envelope, &DeliveryContext::direct()).await
        });
    }
    for result in deliveries.join_all().await {
        result.unwrap();
    }
    let mut stored: Vec<_> = bench
        .server
        .messages(QUEUE)
        .unwrap()
        .iter()
        .map(|message| {
            serde_json::from_str::<serde_json::Value>(&message.body).unwrap()["id"].clone()
        })
        .collect();
    let by_text = |value: &serde_json::Value| value.to_string();
    stored.sort_by_key(by_text);
    ids.sort_by_key(by_text);
    assert_eq!(stored, ids);
}

#[tokio::test]
async fn deliveries_one_after_the_other_use_one_connection() {
    let bench = Bench::standard().await;
    for _ in 0..5 {
        bench.deliver().await.unwrap();
    }
    assert_eq!(bench.server.connections(), 1);
}
