//! The metrics of the README's table, row by row.

use std::collections::BTreeMap;

use dispatch_api::{DeliveryContext, Sink as _};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sink_testkit::sqs::{Answer, EntryFault, EntrySelector, ErrorCode, Fault, Operation};
use std::num::NonZeroU32;

use crate::bench::{Bench, QUEUE, ctx, envelope};

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
