//! Metrics of messages.

use dispatch_api::Sink as _;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::json;

use crate::fake::{FakeServer, refusal};
use crate::support::{ctx, envelope, sink};

#[test]
fn every_message_is_counted_and_timed_under_the_template_and_its_code() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let server = FakeServer::start([refusal(404, 10059, "stream not found")]).await;
            let sink = sink(&server.address(), &json!({"subject": "hooks.{tenant_id}"}));
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
        assert_eq!(labels[..3], ["nats", "publish", "hooks.{tenant_id}"]);
        match value {
            DebugValue::Counter(count) => counted.push((labels[3].clone(), count)),
            DebugValue::Histogram(values) => assert_eq!(values.len(), 1),
            DebugValue::Gauge(_) => unreachable!("there is none"),
        }
    }
    counted.sort();
    assert_eq!(counted, [(String::new(), 1), ("NoStream".to_owned(), 1)]);
}
