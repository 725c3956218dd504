//! Nothing shows a credential or a payload.

use std::error::Error;

use dispatch_api::{Sink as _, SinkError};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;
use sink_kafka::KafkaSinkConfig;

use crate::support::{Cluster, ctx, envelope_of, sink};

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
    let cluster = Cluster::start();
    let secrets = json!({"sasl.username": "u", "sasl.password": SECRET});
    let working = cluster.sink(&json!({"properties": secrets}));
    for error in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    ] {
        cluster
            .mock
            .request_errors(RDKafkaApiKey::Produce, &[error]);
        let error = working
            .deliver(&envelope_of(PAYLOAD), &ctx())
            .await
            .unwrap_err();
        assert_clean(&everything(&error));
    }
    for properties in [
        json!({"sasl.password": SECRET, "max.in.flight": 6}),
        json!({"sasl.password": SECRET}),
    ] {
        let more = json!({"timeout_ms": 300, "properties": properties});
        let failing = sink("127.0.0.1:1", &more);
        let error = failing
            .deliver(&envelope_of(PAYLOAD), &ctx())
            .await
            .unwrap_err();
        assert_clean(&everything(&error));
    }
}

#[test]
fn no_public_type_shows_a_credential() {
    let more = json!({"properties": {
        "sasl.password": SECRET, "sasl.username": SECRET, "client.id": SECRET,
    }});
    let sink = sink("127.0.0.1:1", &more);
    let shown = format!(
        "{sink:?} {sink:#?} {:?} {:#?} {:?} {:?}",
        sink.config(),
        sink.config(),
        sink.describe(),
        sink_kafka::PLUGIN,
    );
    assert!(shown.contains("sasl.password"), "{shown}");
    assert_clean(&shown);
}

#[test]
fn no_problem_shows_a_credential() {
    let problems = KafkaSinkConfig::from_options(&json!({
        "brokers": [format!("u:{SECRET}@host")], "topic": format!("{SECRET} "),
        "timeout_ms": SECRET,
        "properties": {"acks": SECRET, "linger.ms": SECRET, "no.such": SECRET, "debug": {"a": SECRET}},
    }))
    .unwrap_err();
    assert!(problems.iter().count() >= 4, "{problems}");
    assert_clean(&format!("{problems} {problems:?}"));
}
