//! The metrics of the consuming side, row by row.

use dispatch_api::SettleError;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sink_testkit::sqs::{Answer, Damage, EntryFault, EntrySelector, ErrorCode, Fault, Operation};
use std::num::NonZeroUsize;

use crate::consuming::{Consuming, SECOND, receive, receive_one, until};
use crate::telemetry::{samples, seen};

#[tokio::test]
async fn a_subscription_tells_what_it_receives_extends_settles_and_loses() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let queue = Consuming::standard().await;
    for number in 0..4 {
        queue.send(&number.to_string()).await;
    }
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    queue.server.fault(
        Operation::ChangeMessageVisibilityBatch,
        Fault::entry(
            EntrySelector::index(0),
            EntryFault::failed("ReceiptHandleIsInvalid", true),
        ),
    );
    let mut deliveries = receive(&subscription, 3).await;
    until("one is lost", || {
        deliveries.iter().any(|d| d.received().lease().is_lost())
    })
    .await;
    let lost = deliveries
        .iter()
        .position(|delivery| delivery.received().lease().is_lost())
        .unwrap();
    let lost = deliveries.remove(lost).ack().await;
    assert!(matches!(lost, Err(SettleError::Lost(None))));
    deliveries.pop().unwrap().ack().await.unwrap();
    let denied = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    queue
        .server
        .fault(Operation::ChangeMessageVisibility, denied);
    let refused = deliveries.pop().unwrap().retry_after(5 * SECOND).await;
    assert!(refused.is_err());
    let receives = Operation::ReceiveMessage;
    queue
        .server
        .fault(receives, Fault::damaged(Damage::BodyDigestWrong));
    assert!(receive(&subscription, 1).await.is_empty());
    queue.server.fault(receives, Fault::reset());
    subscription.receive(NonZeroUsize::MIN).await.unwrap_err();

    let seen = seen(&snapshotter);
    let readme = include_str!("../../README.md");
    for key in seen.keys() {
        let (name, _) = key.split_once('{').unwrap();
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "{name} in the README"
        );
    }
    let consumed = |code: &str| {
        format!(
            "messaging_client_consumed_messages_total{{error_type={code},\
             messaging_destination_name=hooks,messaging_operation_name=receive}}"
        )
    };
    assert_eq!(seen[&consumed("")], DebugValue::Counter(3));
    assert_eq!(seen[&consumed("Md5Mismatch")], DebugValue::Counter(1));
    for (metric, count) in [
        (
            "settlements_total{error_type=,queue=hooks,settlement=ack}",
            1,
        ),
        (
            "settlements_total{error_type=HoldLost,queue=hooks,settlement=ack}",
            1,
        ),
        (
            "settlements_total{error_type=AccessDenied,queue=hooks,settlement=retry_after}",
            1,
        ),
        ("extensions_total{error_type=,queue=hooks}", 2),
        (
            "extensions_total{error_type=ReceiptHandleIsInvalid,queue=hooks}",
            1,
        ),
        ("lost_holds_total{queue=hooks}", 1),
        (
            "receive_errors_total{error_type=ConnectionLost,queue=hooks}",
            1,
        ),
    ] {
        let found = seen.get(&format!("ankusa_sqs_{metric}"));
        assert_eq!(
            found,
            Some(&DebugValue::Counter(count)),
            "{metric} in {seen:?}"
        );
    }
    let held = &seen["ankusa_sqs_held_messages{queue=hooks}"];
    assert_eq!(*held, DebugValue::Gauge(0.0.into()));
    for operation in [
        "receive",
        "delete",
        "change_visibility_batch",
        "get_queue_attributes",
    ] {
        let duration = format!(
            "messaging_client_operation_duration_seconds{{error_type=,\
             messaging_destination_name=hooks,messaging_operation_name={operation}}}"
        );
        assert!(!samples(&seen[&duration]).is_empty(), "{operation}");
    }
}

#[tokio::test]
async fn a_held_message_counts_until_it_is_settled() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let delivery = receive_one(&subscription).await;
    let held = "ankusa_sqs_held_messages{queue=hooks}";
    assert_eq!(seen(&snapshotter)[held], DebugValue::Gauge(1.0.into()));
    delivery.ack().await.unwrap();
    assert_eq!(seen(&snapshotter)[held], DebugValue::Gauge(0.0.into()));
}
