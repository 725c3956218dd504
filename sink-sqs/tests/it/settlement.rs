//! Both diagrams of settlement, arrow by arrow.

use std::time::Duration;

use dispatch_api::{Delivery, SettleError, Settlement};
use sink_testkit::sqs::{
    Answer, Damage, EntryFault, EntrySelector, ErrorCode, Fault, FaultRule, Operation,
};

use crate::consuming::{Consuming, SECOND, receive, receive_one, until};
use crate::log::Log;

const CHANGE: Operation = Operation::ChangeMessageVisibility;

/// The kind of a failed settlement, and its error's code.
fn failed(result: Result<(), SettleError>) -> (&'static str, String) {
    let error = result.unwrap_err();
    let code = match &error {
        SettleError::Lost(None) => String::new(),
        SettleError::Lost(Some(error))
        | SettleError::Refused(error)
        | SettleError::Unknown(error) => error.code().to_owned(),
    };
    (error.as_str(), code)
}

#[tokio::test]
async fn ack_deletes_and_the_message_is_gone() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    receive_one(&subscription).await.ack().await.unwrap();
    assert!(queue.stored().is_empty());
    assert_eq!(queue.count(Operation::DeleteMessage), 1);
    assert_eq!(queue.count(CHANGE), 0);
    queue.server.clock().advance(3_600 * SECOND);
    assert!(receive(&subscription, 10).await.is_empty());
}

#[tokio::test]
async fn retry_sets_visibility_zero_and_the_message_is_visible_now() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    receive_one(&subscription).await.retry().await.unwrap();
    assert_eq!(queue.changes(), [0]);
    assert!(queue.is_visible());
    let again = receive_one(&subscription).await;
    assert_eq!(again.received().redelivery_count(), Some(2));
}

#[tokio::test]
async fn retry_after_brings_the_message_back_after_its_delay_and_not_before() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let first = receive_one(&subscription).await;
    let id = first.received().id().to_owned();
    first.retry_after(90 * SECOND).await.unwrap();
    assert_eq!(queue.changes(), [90]);
    queue.server.clock().advance(89 * SECOND);
    assert!(receive(&subscription, 10).await.is_empty());
    queue.server.clock().advance(SECOND);
    let second = receive_one(&subscription).await;
    assert_eq!(second.received().id(), id, "the same message");
    assert_eq!(second.received().redelivery_count(), Some(2));
}

#[tokio::test]
async fn a_delay_is_counted_in_whole_seconds_rounded_up() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let delays = [
        (0, 0),
        (1, 1),
        (1_000, 1),
        (1_400, 2),
        (1_999, 2),
        (59_001, 60),
    ];
    for (millis, _) in delays {
        let delivery = receive_one(&subscription).await;
        let delay = Duration::from_millis(millis);
        delivery.retry_after(delay).await.unwrap();
        queue.server.clock().advance(61 * SECOND);
    }
    assert_eq!(queue.changes(), delays.map(|(_, seconds)| seconds));
}

#[tokio::test]
async fn a_delay_past_the_twelve_hours_is_shortened_to_end_there() {
    for delay in [12 * 3_600 * SECOND, 13 * 3_600 * SECOND, Duration::MAX] {
        let queue = Consuming::standard().await;
        queue.send("hook").await;
        let subscription = queue.open().await;
        let delivery = receive_one(&subscription).await;
        delivery.retry_after(delay).await.unwrap();
        let asked = queue.changes()[0];
        assert!((43_150..43_200).contains(&asked), "{asked}");
        assert_eq!(queue.hidden_for(), asked, "the service took it");
    }
}

#[tokio::test]
async fn drop_deletes() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    receive_one(&subscription)
        .await
        .drop_message()
        .await
        .unwrap();
    assert!(queue.stored().is_empty());
    assert_eq!(queue.count(Operation::DeleteMessage), 1);
}

#[tokio::test]
async fn a_drop_below_the_cap_deletes_and_at_the_cap_it_returns_the_message_to_be_moved() {
    for queue in [Consuming::standard().await, Consuming::fifo().await] {
        queue.send_anyhow("early").await;
        let subscription = queue.open_with_redrive(3).await;
        let early = receive_one(&subscription).await;
        early.drop_message().await.unwrap();
        assert_eq!(queue.count(Operation::DeleteMessage), 1);
        assert!(queue.changes().is_empty());

        queue.send_anyhow("late").await;
        for _ in 0..2 {
            receive_one(&subscription).await.retry().await.unwrap();
        }
        let last = receive_one(&subscription).await;
        assert_eq!(last.received().redelivery_count(), Some(3));
        last.drop_message().await.unwrap();
        assert_eq!(queue.count(Operation::DeleteMessage), 1, "nothing was lost");
        assert_eq!(queue.changes(), [0, 0, 0]);
        // The next receive is what moves it.
        assert!(receive(&subscription, 10).await.is_empty());
        assert!(queue.stored().is_empty());
        let dead = queue.server.messages(queue.dead_letter_name()).unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].body, "late");
    }
}

#[tokio::test]
async fn a_drop_of_unknown_count_deletes_only_without_a_redrive_policy() {
    for has_policy in [false, true] {
        let queue = Consuming::standard().await;
        queue.send("hook").await;
        let subscription = match has_policy {
            true => queue.open_with_redrive(3).await,
            false => queue.open().await,
        };
        let unknown = Fault::damaged(Damage::SystemAttributesMissing);
        queue.server.fault(Operation::ReceiveMessage, unknown);
        let delivery = receive_one(&subscription).await;
        assert_eq!(delivery.received().redelivery_count(), None);
        delivery.drop_message().await.unwrap();
        assert_eq!(queue.stored().len(), usize::from(has_policy));
    }
}

#[tokio::test]
async fn dropped_unsettled_makes_no_call_and_the_message_returns_when_its_timeout_lapses() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    drop(receive_one(&subscription).await);
    queue.server.clock().advance(29 * SECOND);
    assert!(receive(&subscription, 10).await.is_empty());
    queue.server.clock().advance(2 * SECOND);
    let again = receive_one(&subscription).await;
    assert_eq!(
        again.received().redelivery_count(),
        Some(2),
        "a lapse counts"
    );
    for operation in [
        Operation::DeleteMessage,
        CHANGE,
        Operation::ChangeMessageVisibilityBatch,
    ] {
        assert_eq!(queue.count(operation), 0, "{operation:?}");
    }
}

#[tokio::test]
async fn a_retry_never_leaves_the_queue_and_the_spent_message_is_moved_by_the_service() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open_with_redrive(4).await;
    let sent = queue.only().message_id;
    for count in 1..=4 {
        let delivery = receive_one(&subscription).await;
        assert_eq!(delivery.received().id(), sent);
        assert_eq!(delivery.received().redelivery_count(), Some(count));
        let delay = 60 * u64::from(count) * SECOND.as_secs();
        delivery
            .retry_after(Duration::from_secs(delay))
            .await
            .unwrap();
        assert_eq!(queue.hidden_for(), delay);
        assert!(
            receive(&subscription, 10).await.is_empty(),
            "it waits in the queue"
        );
        queue.server.clock().advance(Duration::from_secs(delay));
    }
    assert_eq!(queue.changes(), [60, 120, 180, 240]);
    assert!(receive(&subscription, 10).await.is_empty());
    let dead = queue.server.messages("dead").unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].message_id, sent);
    for operation in [Operation::SendMessage, Operation::SendMessageBatch] {
        assert_eq!(queue.count(operation), 0, "nothing is republished");
    }
}

#[tokio::test]
async fn a_waiting_retry_outlives_its_consumer() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let first = queue.open().await;
    let delivery = receive_one(&first).await;
    delivery.retry_after(60 * SECOND).await.unwrap();
    drop(first);
    let second = queue.open().await;
    assert!(receive(&second, 10).await.is_empty());
    queue.server.clock().advance(60 * SECOND);
    assert_eq!(receive(&second, 10).await.len(), 1);
}

#[tokio::test]
async fn a_redelivery_that_comes_before_the_answer_to_visibility_zero_is_a_delivery_of_its_own() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let first = receive_one(&subscription).await;
    let hold = queue.server.hold_answer(CHANGE);
    let retrying = tokio::spawn(first.retry());
    hold.arrived().await;
    let second = receive_one(&subscription).await;
    assert_eq!(second.received().redelivery_count(), Some(2));
    hold.release();
    retrying.await.unwrap().unwrap();
    assert!(!second.received().lease().is_lost());
    second.ack().await.unwrap();
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn every_wording_of_an_expired_handle_says_that_the_hold_is_lost() {
    let wordings = [
        Answer::error(ErrorCode::ReceiptHandleIsInvalid),
        Answer::error(ErrorCode::MessageNotInflight),
    ];
    for wording in wordings {
        for settlement in [Settlement::Ack, Settlement::Retry] {
            let queue = Consuming::standard().await;
            queue.send("hook").await;
            let subscription = queue.open().await;
            let delivery = receive_one(&subscription).await;
            for operation in [Operation::DeleteMessage, CHANGE] {
                queue
                    .server
                    .fault(operation, Fault::answer(wording.clone()));
            }
            assert_eq!(failed(delivery.settle(settlement).await).0, "lost");
        }
    }
    // As the service itself words it: of a FIFO queue whose time is over, and of a message
    // that is deleted.
    let queue = Consuming::fifo().await;
    queue.send_to_group("g", "hook").await;
    let subscription = queue.open().await;
    let delivery = receive_one(&subscription).await;
    queue.server.clock().advance(31 * SECOND);
    let expired = ("lost", "ReceiptHandleExpired".to_owned());
    assert_eq!(failed(delivery.ack().await), expired);
    assert_eq!(queue.stored().len(), 1);

    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let first = receive_one(&subscription).await;
    queue.server.clock().advance(31 * SECOND);
    receive_one(&subscription).await.ack().await.unwrap();
    assert_eq!(failed(first.retry().await), expired);
}

#[tokio::test]
async fn a_settlement_that_is_refused_or_not_answered_says_so_and_the_message_comes_back() {
    let cases = [
        (
            Fault::answer(Answer::error(ErrorCode::AccessDenied)),
            ("refused", "AccessDenied"),
        ),
        (
            Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
            ("refused", "RequestThrottled"),
        ),
        (
            Fault::answer(Answer::error(ErrorCode::InternalFailure)),
            ("unknown", "InternalFailure"),
        ),
        (Fault::reset(), ("unknown", "ConnectionLost")),
    ];
    for (fault, (kind, code)) in cases {
        let queue = Consuming::standard().await;
        queue.send("hook").await;
        let subscription = queue.open().await;
        for (operation, settlement) in [
            (Operation::DeleteMessage, Settlement::Ack),
            (CHANGE, Settlement::Retry),
        ] {
            let delivery = receive_one(&subscription).await;
            queue.server.fault(operation, fault.clone());
            let result = delivery.settle(settlement).await;
            assert_eq!(failed(result), (kind, code.to_owned()));
            assert_eq!(queue.count(operation), 1, "one call, and no hidden repeat");
            queue.server.clock().advance(31 * SECOND);
        }
        receive_one(&subscription).await.ack().await.unwrap();
    }
}

#[tokio::test]
async fn an_ack_whose_answer_is_lost_is_unknown_and_the_message_is_gone() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let delivery = receive_one(&subscription).await;
    let lost = Fault::reset().after_storing();
    queue.server.fault(Operation::DeleteMessage, lost);
    assert_eq!(failed(delivery.ack().await).0, "unknown");
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn a_success_that_is_not_the_service_s_is_no_confirmation() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let delivery = receive_one(&subscription).await;
    let page = Answer::html("200".parse().unwrap());
    queue
        .server
        .fault(Operation::DeleteMessage, Fault::answer(page));
    let unexpected = ("unknown", "UnexpectedReply".to_owned());
    assert_eq!(failed(delivery.ack().await), unexpected);
}

#[test]
fn a_delivery_is_settled_on_another_runtime_than_it_was_received_on() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let queue = servers.block_on(async {
        let queue = Consuming::standard().await;
        queue.send("hook").await;
        queue
    });
    let delivery = first.block_on(async {
        let subscription = queue.open().await;
        receive_one(&subscription).await
    });
    drop(first);
    second.block_on(async { delivery.ack().await }).unwrap();
    assert!(queue.stored().is_empty());
}

/// Ten deliveries of a queue whose settlements are gathered.
async fn gathered(queue: &Consuming) -> Vec<Box<dyn Delivery>> {
    for number in 0..10 {
        queue.send(&number.to_string()).await;
    }
    let subscription = queue.open_as(|queue| queue.batch_settlement(true)).await;
    receive(&subscription, 10).await
}

/// Settles all at once, and says how each ended.
async fn settle_all(
    deliveries: Vec<Box<dyn Delivery>>,
    settlement: Settlement,
) -> Vec<Result<(), SettleError>> {
    let mut settling = Vec::new();
    for delivery in deliveries {
        settling.push(tokio::spawn(delivery.settle(settlement)));
    }
    let mut results = Vec::new();
    for settled in settling {
        results.push(settled.await.unwrap());
    }
    results
}

#[tokio::test]
async fn gathered_settlements_are_one_call_of_ten_with_one_answer_each() {
    let kinds = [
        (Settlement::Ack, Operation::DeleteMessageBatch, 0),
        (
            Settlement::RetryAfter(60 * SECOND),
            Operation::ChangeMessageVisibilityBatch,
            10,
        ),
    ];
    for (settlement, operation, left) in kinds {
        let queue = Consuming::standard().await;
        let deliveries = gathered(&queue).await;
        let results = settle_all(deliveries, settlement).await;
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(queue.count(operation), 1);
        assert_eq!(
            queue.count(Operation::DeleteMessage) + queue.count(CHANGE),
            0
        );
        assert_eq!(queue.stored().len(), left);
    }
}

#[tokio::test]
async fn each_gathered_settlement_has_its_own_answer() {
    let queue = Consuming::standard().await;
    let deliveries = gathered(&queue).await;
    let index = EntrySelector::index;
    queue.server.fault(
        Operation::DeleteMessageBatch,
        Fault::entry(index(2), EntryFault::failed("InternalError", false))
            .and_entry(index(3), EntryFault::failed("ReceiptHandleIsInvalid", true))
            .and_entry(index(4), EntryFault::failed("InvalidParameterValue", true))
            .and_entry(index(5), EntryFault::missing()),
    );
    let results = settle_all(deliveries, Settlement::Ack).await;
    let kinds: Vec<&str> = results
        .iter()
        .map(|result| result.as_ref().map_or_else(SettleError::as_str, |()| "ok"))
        .collect();
    let expected = [
        "ok", "ok", "unknown", "lost", "refused", "unknown", "ok", "ok", "ok", "ok",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(queue.stored().len(), 4);
}

#[tokio::test]
async fn a_gathered_call_that_fails_as_a_whole_fails_each_of_its_settlements() {
    let queue = Consuming::standard().await;
    let deliveries = gathered(&queue).await;
    let always = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    queue
        .server
        .add_fault(FaultRule::on(Operation::DeleteMessageBatch, always).always());
    let results = settle_all(deliveries, Settlement::Ack).await;
    assert_eq!(results.len(), 10);
    for result in results {
        assert_eq!(failed(result), ("refused", "AccessDenied".to_owned()));
    }
    assert_eq!(queue.stored().len(), 10);
}

#[tokio::test]
async fn two_deliveries_of_one_message_are_two_entries_of_a_batch() {
    let queue = Consuming::standard().await;
    queue.send("twice").await;
    queue.send("other").await;
    let subscription = queue.open_as(|queue| queue.batch_settlement(true)).await;
    let mut deliveries = receive(&subscription, 10).await;
    // The first lapses at the service, and nobody noticed here.
    queue.server.clock().advance(31 * SECOND);
    deliveries.extend(receive(&subscription, 10).await);
    assert_eq!(deliveries.len(), 4);
    let results = settle_all(deliveries, Settlement::Ack).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let batches = queue.server.requests_of(Operation::DeleteMessageBatch);
    assert_eq!(batches.len(), 1);
    let entries = batches[0].json()["Entries"].as_array().unwrap().clone();
    let ids: Vec<&str> = entries.iter().map(|e| e["Id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["0", "1", "2", "3"]);
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn a_lone_gathered_settlement_does_not_wait_long() {
    let queue = Consuming::standard().await;
    let mut deliveries = gathered(&queue).await;
    let began = tokio::time::Instant::now();
    deliveries.remove(0).ack().await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    until("one is gone", || queue.stored().len() == 9).await;
}

#[tokio::test]
async fn the_warning_of_a_shortened_delay_names_the_queue() {
    let log = Log::of(tracing::Level::WARN);
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let shown = || log.text();
    let first = receive_one(&subscription).await;
    first.retry_after(11 * 3_600 * SECOND).await.unwrap();
    assert!(!shown().contains("twelve hours"), "{}", shown());
    queue.server.clock().advance(11 * 3_600 * SECOND);
    let second = receive_one(&subscription).await;
    second.retry_after(13 * 3_600 * SECOND).await.unwrap();
    assert!(
        shown().contains("twelve hours") && shown().contains("hooks"),
        "{}",
        shown()
    );
}
