//! Metrics of messages.

use dispatch_api::Sink as _;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;

use crate::support::{Cluster, ctx, envelope};

#[test]
fn every_message_is_counted_and_timed_under_the_topic_and_its_code() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let cluster = Cluster::start();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let sink = cluster.sink(&json!({}));
            let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD;
            cluster
                .mock
                .request_errors(RDKafkaApiKey::Produce, &[error]);
            sink.deliver(&envelope(), &ctx()).await.unwrap_err();
            sink.deliver(&envelope(), &ctx()).await.unwrap();
        });
    });
    let mut counted = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key
            .key()
            .labels()
            .map(|label| label.value().to_owned())
            .collect();
        assert_eq!(labels[..3], ["kafka", "send", "hooks"]);
        match value {
            DebugValue::Counter(count) => counted.push((labels[3].clone(), count)),
            DebugValue::Histogram(values) => assert_eq!(values.len(), 1),
            DebugValue::Gauge(_) => unreachable!("there is none"),
        }
    }
    counted.sort();
    assert_eq!(
        counted,
        [(String::new(), 1), ("InvalidRecord".to_owned(), 1)]
    );
}
