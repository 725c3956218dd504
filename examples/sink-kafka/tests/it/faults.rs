//! How brokers fail, and how each is classed.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{ErrorClass, Outcome, Receipt, Sink as _};
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Error};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Cluster, ctx, envelope, envelope_of, parts, sink};

/// Fails the next requests to store something.
fn fail(cluster: &Cluster, errors: &[Error]) {
    cluster.mock.request_errors(Api::Produce, errors);
}

#[tokio::test]
async fn an_unknown_topic_is_told_at_once_and_never_created() {
    let cluster = Cluster::without_topic();
    let sink = cluster.sink(&json!({"timeout_ms": 60_000}));
    let began = Instant::now();
    for _ in 0..2 {
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("config", Outcome::NotStored, "UnknownTopic")
        );
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(cluster.topics(), [""; 0]);
    cluster.create_topic(1);
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_topic_that_vanishes_under_a_running_sink_is_the_configurations_fault() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"timeout_ms": 2_000}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let unknown = Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.mock.topic_error("hooks", unknown).unwrap();
    fail(&cluster, &[unknown; 100]);
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "UnknownTopic")
    );
}

#[tokio::test]
async fn a_topic_that_is_not_allowed_is_the_configurations_fault() {
    let forbidden = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    let expected = ("config", Outcome::NotStored, "TopicAuthorizationFailed");
    let cluster = Cluster::start();
    cluster.mock.topic_error("hooks", forbidden).unwrap();
    let error = cluster
        .sink(&json!({}))
        .deliver(&envelope(), &ctx())
        .await
        .unwrap_err();
    assert_eq!(parts(&error), expected);

    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    fail(&cluster, &[forbidden]);
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), expected);
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_record_that_the_topic_refuses_is_permanent_and_harms_no_neighbour() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    for (error, code) in [
        (
            Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            "MessageTooLarge",
        ),
        (Error::RD_KAFKA_RESP_ERR_INVALID_RECORD, "InvalidRecord"),
        (
            Error::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
            "InvalidTimestamp",
        ),
    ] {
        fail(&cluster, &[error]);
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(parts(&error), ("permanent", Outcome::NotStored, code));
        sink.deliver(&envelope(), &ctx()).await.unwrap();
    }
    assert_eq!(cluster.stored(0, 3).len(), 3);
}

#[tokio::test]
async fn a_record_over_the_maximum_is_refused_without_a_broker() {
    let sink = sink("127.0.0.1:1", &json!({"max_message_bytes": 2_000}));
    let error = sink
        .deliver(&envelope_of("x".repeat(2_000)), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "MessageTooLarge")
    );
}

#[tokio::test]
async fn the_client_takes_every_record_that_the_maximum_allows() {
    let cluster = Cluster::start();
    let envelope = envelope_of("x".repeat(60_000)).with_dedupe_key("k".repeat(1_000));
    let measuring = sink("127.0.0.1:1", &json!({"max_message_bytes": 1}));
    let error = measuring.deliver(&envelope, &ctx()).await.unwrap_err();
    let size: usize = error.text().split(' ').nth(3).unwrap().parse().unwrap();
    let sink = cluster.sink(&json!({"max_message_bytes": size}));
    sink.deliver(&envelope, &ctx()).await.unwrap();
}

#[tokio::test]
async fn what_the_client_tries_again_is_stored_once() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"timeout_ms": 20_000}));
    for (stored, error) in [
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
    ]
    .into_iter()
    .enumerate()
    {
        fail(&cluster, &[error, error]);
        let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
        assert_eq!(receipt.sequence, Some(stored.to_string()), "{error:?}");
    }
    assert_eq!(cluster.stored(0, 4).len(), 4);
}

#[tokio::test]
async fn a_sequence_that_the_brokers_know_already_is_a_success() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    fail(
        &cluster,
        &[Error::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER],
    );
    let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
    // Which of the partition's messages it is they do not say.
    assert_eq!(receipt, Receipt::new());
}

#[tokio::test]
async fn brokers_that_are_down_from_the_start_store_nothing_and_are_found_when_they_are_up() {
    let cluster = Cluster::start();
    cluster.mock.broker_down(-1).unwrap();
    let sink = Arc::new(cluster.sink(&json!({"timeout_ms": 500})));
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let sink = Arc::clone(&sink);
        running.spawn(async move { sink.deliver(&envelope(), &ctx()).await.unwrap_err() });
    }
    for error in running.join_all().await {
        assert_eq!(
            parts(&error),
            ("transient", Outcome::NotStored, "ConnectFailed")
        );
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    cluster.mock.broker_up(-1).unwrap();
    deliver_within(&sink, Duration::from_secs(20)).await;
    assert_eq!(cluster.stored(0, 1).len(), 1);
}

/// Delivers one envelope as often as it takes.
async fn deliver_within(sink: &sink_kafka::KafkaSink, limit: Duration) {
    let envelope = envelope();
    let delivering = async { while sink.deliver(&envelope, &ctx()).await.is_err() {} };
    tokio::time::timeout(limit, delivering).await.unwrap();
}

#[tokio::test]
async fn brokers_that_go_down_under_a_running_sink_leave_the_outcome_unknown() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"timeout_ms": 1_000}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    cluster.mock.broker_down(-1).unwrap();
    let began = Instant::now();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
    cluster.mock.broker_up(-1).unwrap();
    deliver_within(&sink, Duration::from_secs(20)).await;
}

#[tokio::test]
async fn slow_brokers_are_waited_for_and_too_slow_ones_leave_the_outcome_unknown() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"timeout_ms": 3_000}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let delay = |millis| {
        let delay = Duration::from_millis(millis);
        cluster.mock.broker_round_trip_time(-1, delay).unwrap();
    };
    delay(500);
    let began = Instant::now();
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(500));
    delay(60_000);
    let began = Instant::now();
    let context = ctx().with_deadline(Instant::now() + Duration::from_millis(300));
    let error = sink.deliver(&envelope(), &context).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_deadline_that_is_over_sends_nothing() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    let context = ctx().with_deadline(Instant::now());
    let error = sink.deliver(&envelope(), &context).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "DeadlinePassed")
    );
    assert_eq!(cluster.stored(0, 0).len(), 0);
}

#[tokio::test]
async fn a_producer_that_lost_its_sequence_is_replaced() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    for round in 0..3 {
        sink.deliver(&envelope(), &ctx()).await.unwrap();
        fail(
            &cluster,
            &[Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
        );
        let began = Instant::now();
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("transient", Outcome::Unknown, "ProducerReplaced"),
            "round {round}"
        );
        assert!(began.elapsed() < Duration::from_secs(4));
    }
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(cluster.stored(0, 4).len(), 4);
}

#[tokio::test]
async fn idempotent_writes_that_are_not_allowed_are_the_configurations_fault_until_they_are() {
    let cluster = Cluster::start();
    cluster.mock.request_errors(
        Api::InitProducerId,
        &[Error::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED],
    );
    let sink = cluster.sink(&json!({}));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "ClusterAuthorizationFailed")
    );
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_full_queue_asks_to_wait_and_what_is_in_it_is_sent() {
    let cluster = Cluster::start();
    let sink = Arc::new(cluster.sink(&json!({
        "timeout_ms": 20_000,
        "properties": {"queue.buffering.max.messages": 2, "linger.ms": 400},
    })));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let sink = Arc::clone(&sink);
        running.spawn(async move { sink.deliver(&envelope(), &ctx()).await });
    }
    let answers = running.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(
            parts(error),
            ("retry_after", Outcome::NotStored, "QueueFull")
        );
        assert!(matches!(error.class(), ErrorClass::RetryAfter(pause) if pause.as_millis() <= 500));
    }
    assert_eq!(cluster.stored(0, 2).len(), 2);
}

#[tokio::test]
async fn properties_that_contradict_each_other_are_the_configurations_fault() {
    let more = json!({"properties": {"max.in.flight": 6}});
    let error = sink("127.0.0.1:1", &more)
        .deliver(&envelope(), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "InvalidConfiguration")
    );
}
