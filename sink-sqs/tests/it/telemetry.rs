//! The metrics of the README's table, row by row.

use std::collections::BTreeMap;
use std::time::Duration;

use dispatch_api::{DeliveryContext, Sink as _};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sink_testkit::sqs::{Answer, EntryFault, EntrySelector, ErrorCode, Fault, Operation};
use std::num::NonZeroU32;
use tokio::time::Instant;

use crate::batch_bench::{Batching, envelope as envelope_of, numbered, ten};
use crate::bench::{Bench, QUEUE, ctx, envelope};
use crate::log::Log;

/// Metrics by name and labels, as `name{label=value,…}`.
pub(crate) fn seen(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let snapshot = snapshotter.snapshot().into_vec().into_iter();
    snapshot
        .map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let mut labels: Vec<String> = key
                .labels()
                .filter(|label| label.key() != "messaging_system")
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            labels.sort_unstable();
            (format!("{}{{{}}}", key.name(), labels.join(",")), value)
        })
        .collect()
}

pub(crate) fn samples(value: &DebugValue) -> Vec<f64> {
    match value {
        DebugValue::Histogram(samples) => samples.iter().map(|sample| sample.0).collect(),
        other => panic!("not a histogram: {other:?}"),
    }
}

#[tokio::test]
async fn a_batch_tells_its_size_wait_reason_and_what_became_of_each_message() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::with(QUEUE, |config| config.batch_max_entries(2)).await;
    bench.server.fault(
        Operation::SendMessageBatch,
        Fault::entry(
            EntrySelector::index(1),
            EntryFault::failed("InternalError", false),
        ),
    );
    let (envelope, attempt) = (envelope(), DeliveryContext::attempt(NonZeroU32::MIN));
    let first = bench.sink.deliver(&envelope, &attempt);
    let second = bench.sink.deliver(&envelope, &attempt);
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_ok() && second.is_err());

    let seen = seen(&snapshotter);
    let batch = "queue=hooks,reason=entries";
    assert_eq!(
        samples(&seen[&format!("ankusa_sqs_batch_entries{{{batch}}}")]),
        [2.0]
    );
    let size = bench.sink.config().preflight(&envelope, &attempt).unwrap();
    let bytes = samples(&seen[&format!("ankusa_sqs_batch_bytes{{{batch}}}")]);
    assert_eq!(bytes, [2.0 * f64::from(u32::try_from(size).unwrap())]);
    assert!(samples(&seen[&format!("ankusa_sqs_batch_wait_seconds{{{batch}}}")])[0] < 1.0);
    let operation = "messaging_destination_name=hooks,messaging_operation_name=send_batch";
    let duration =
        format!("messaging_client_operation_duration_seconds{{error_type=,{operation}}}");
    assert_eq!(samples(&seen[&duration]).len(), 1);
    for error in ["", "InternalFailure"] {
        let sent =
            format!("messaging_client_sent_messages_total{{error_type={error},{operation}}}");
        assert_eq!(seen[&sent], DebugValue::Counter(1), "{error}");
    }
    for gauge in [
        "ankusa_sqs_unanswered_messages",
        "ankusa_sqs_requests_in_flight",
    ] {
        let gauge = &seen[&format!("{gauge}{{queue=hooks}}")];
        assert_eq!(*gauge, DebugValue::Gauge(0.0.into()), "all is answered");
    }
}

#[tokio::test]
async fn a_single_send_that_fails_tells_its_code() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::faulty(Fault::answer(Answer::error(ErrorCode::AccessDenied))).await;
    bench.sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    let seen = seen(&snapshotter);
    let labels =
        "error_type=AccessDenied,messaging_destination_name=hooks,messaging_operation_name=send";
    let sent = &seen[&format!("messaging_client_sent_messages_total{{{labels}}}")];
    assert_eq!(*sent, DebugValue::Counter(1));
    let duration = &seen[&format!("messaging_client_operation_duration_seconds{{{labels}}}")];
    assert_eq!(samples(duration).len(), 1);
}

#[tokio::test]
async fn the_gauges_show_what_waits_and_what_is_in_flight_while_a_server_answers_nobody() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = Batching::with(QUEUE, |config| config.batch_max_inflight(1)).await;
    let hold = bench.server.hold(Operation::SendMessageBatch);
    let mut started: Vec<_> = ten().into_iter().map(|hook| bench.start(hook)).collect();
    hold.arrived().await;
    assert_eq!(load(&snapshotter), (10.0, 1.0));

    for number in 10..42 {
        started.push(bench.start(numbered(number)));
    }
    // What waits is told of though no request leaves.
    all_wait().await;
    assert_eq!(load(&snapshotter), (42.0, 1.0));
    for waiting in started.drain(40..) {
        waiting.abort();
    }
    all_wait().await;
    assert_eq!(load(&snapshotter), (40.0, 1.0));

    hold.release();
    for delivery in started {
        delivery.await.unwrap().unwrap();
    }
    all_wait().await;
    assert_eq!(load(&snapshotter), (0.0, 0.0));
}

/// Unanswered messages and requests in flight, as they were told since this was asked last.
fn load(snapshotter: &Snapshotter) -> (f64, f64) {
    let seen = seen(snapshotter);
    let gauge = |name: &str| match seen[&format!("{name}{{queue=hooks}}")] {
        DebugValue::Gauge(value) => value.0,
        ref other => panic!("not a gauge: {other:?}"),
    };
    (
        gauge("ankusa_sqs_unanswered_messages"),
        gauge("ankusa_sqs_requests_in_flight"),
    )
}

/// Lets every task go on until it waits for the server.
async fn all_wait() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_message_whose_request_was_signed_again_is_counted_once() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::standard().await;
    bench.server.clock().advance(Duration::from_secs(1_200));
    bench.deliver().await.unwrap();
    assert_eq!(bench.sends().len(), 2, "signed again by the server's clock");
    let labels = "messaging_destination_name=hooks,messaging_operation_name=send";
    let sent: Vec<_> = seen(&snapshotter)
        .into_iter()
        .filter(|(key, _)| key.starts_with("messaging_client_sent_messages_total"))
        .collect();
    let once = format!("messaging_client_sent_messages_total{{error_type=,{labels}}}");
    assert_eq!(sent, [(once, DebugValue::Counter(1))]);
}

/// The sizes of the batches that left for this reason.
fn batches(snapshotter: &Snapshotter, reason: &str) -> Vec<f64> {
    let key = format!("ankusa_sqs_batch_entries{{queue=hooks,reason={reason}}}");
    samples(&seen(snapshotter)[&key])
}

#[tokio::test]
async fn a_batch_tells_why_it_left() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let lone = Batching::with(QUEUE, |config| config.batch_linger_ms(1)).await;
    lone.deliver(vec![numbered(0)]).await.remove(0).unwrap();
    assert_eq!(batches(&snapshotter, "linger"), [1.0]);

    // 60,000 bytes are 80,000 in base64: three fit into 262,144 bytes, and a fourth does not.
    let patient = Batching::with(QUEUE, |config| config.batch_linger_ms(60_000)).await;
    let large = (0..4).map(|number| envelope_of(number, vec![b'x'; 60_000]));
    let started: Vec<_> = large.map(|hook| patient.start(hook)).collect();
    let mut started = started.into_iter();
    for delivery in started.by_ref().take(3) {
        delivery.await.unwrap().unwrap();
    }
    assert_eq!(batches(&snapshotter, "bytes"), [3.0]);

    let soon = Instant::now() + Duration::from_secs(30);
    patient.sink.drain(soon).await;
    started.next().unwrap().await.unwrap().unwrap();
    assert_eq!(batches(&snapshotter, "requested"), [1.0]);
}

#[tokio::test]
async fn a_span_has_the_names_of_opentelemetry_and_the_error_of_a_request_that_failed() {
    let log = Log::of(tracing::Level::DEBUG);
    let bench = Batching::with(QUEUE, |config| config.batch_max_entries(2)).await;
    bench.fault(Fault::answer(Answer::error(ErrorCode::AccessDenied)));
    bench.deliver(vec![numbered(0), numbered(1)]).await;
    let shown = log.text();
    let closed = shown
        .lines()
        .find(|line| line.contains("send{") && line.contains("close"))
        .unwrap();
    for field in [
        "otel.kind=\"client\"",
        "messaging.system=\"aws_sqs\"",
        "messaging.operation.name=\"send_batch\"",
        "messaging.operation.type=\"send\"",
        "messaging.destination.name=\"hooks\"",
        "messaging.batch.message_count=2",
        "error.type=\"AccessDenied\"",
    ] {
        assert!(closed.contains(field), "no {field} in {closed}");
    }
}
