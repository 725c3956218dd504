//! Holds that outlast the visibility timeout.

use std::time::Duration;

use dispatch_api::{Delivery, SettleError};
use sink_testkit::sqs::{
    Answer, EntryFault, EntrySelector, ErrorCode, Fault, FaultRule, Operation,
};
use tokio::time::{Instant, sleep, timeout};

use crate::consuming::{Consuming, SECOND, receive, receive_one, until};

const EXTEND: Operation = Operation::ChangeMessageVisibilityBatch;

#[tokio::test]
async fn two_hundred_deliveries_held_three_times_their_timeout_are_delivered_once() {
    let queue = Consuming::standard().await;
    for number in 0..200 {
        queue.send(&number.to_string()).await;
    }
    let holder = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let rival = queue
        .open_as(|queue| queue.visibility(2 * SECOND).wait(SECOND))
        .await;
    let mut held: Vec<Box<dyn Delivery>> = Vec::new();
    while held.len() < 200 {
        held.extend(receive(&holder, 10).await);
    }
    let until = Instant::now() + Duration::from_millis(6_200);
    while Instant::now() < until {
        assert!(receive(&rival, 10).await.is_empty(), "one was redelivered");
    }
    let counts: Vec<u32> = queue.stored().iter().map(|m| m.receive_count).collect();
    assert_eq!(counts, vec![1; 200]);
    for request in queue.server.requests_of(EXTEND) {
        assert!(request.json()["Entries"].as_array().unwrap().len() <= 10);
    }
    for delivery in held {
        assert!(!delivery.received().lease().is_lost());
        delivery.ack().await.unwrap();
    }
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn an_extension_uses_the_configured_visibility_and_comes_at_half_of_it() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let received = Instant::now();
    let delivery = receive_one(&subscription).await;
    let asked = &queue.server.requests_of(Operation::ReceiveMessage)[0];
    assert_eq!(asked.json()["VisibilityTimeout"], 2);
    until("an extension", || queue.count(EXTEND) == 1).await;
    assert!((900..1_700).contains(&received.elapsed().as_millis()));
    let entry = queue.server.requests_of(EXTEND)[0].json()["Entries"][0].clone();
    assert_eq!(
        (&entry["Id"], &entry["VisibilityTimeout"]),
        (&"0".into(), &2.into())
    );
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn the_last_value_at_the_server_is_the_settlement_s_though_an_extension_is_on_the_wire() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let delivery = receive_one(&subscription).await;
    let hold = queue.server.hold(EXTEND);
    hold.arrived().await;
    let settling = tokio::spawn(delivery.retry_after(100 * SECOND));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(queue.changes(), [0; 0], "it waits for the extension");
    hold.release();
    settling.await.unwrap().unwrap();
    assert_eq!(queue.changes(), [100]);
    assert_eq!(queue.hidden_for(), 100);
    let extensions = queue.count(EXTEND);
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!(queue.count(EXTEND), extensions, "nothing comes after it");
    assert!(queue.hidden_for() > 90);
}

#[tokio::test]
async fn extension_stops_with_the_settlement_and_with_a_delivery_that_is_dropped() {
    let queue = Consuming::standard().await;
    for body in ["acked", "dropped"] {
        queue.send(body).await;
    }
    let subscription = queue.open_as(|queue| queue.visibility(SECOND)).await;
    let mut deliveries = receive(&subscription, 10).await;
    until("an extension", || queue.count(EXTEND) > 0).await;
    deliveries.pop().unwrap().ack().await.unwrap();
    drop(deliveries);
    // What is on the wire arrives.
    sleep(Duration::from_millis(100)).await;
    let extensions = queue.count(EXTEND);
    until("it comes back", || queue.is_visible()).await;
    assert_eq!(queue.count(EXTEND), extensions);
}

#[tokio::test]
async fn a_hold_that_the_service_calls_expired_fires_and_a_later_settlement_says_so() {
    let queue = Consuming::fifo().await;
    queue.send_to_group("g", "hook").await;
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let delivery = receive_one(&subscription).await;
    let lease = delivery.received().lease().clone();
    assert!(!lease.is_lost());
    queue.server.clock().advance(3 * SECOND);
    timeout(5 * SECOND, lease.lost()).await.unwrap();
    let error = delivery.ack().await.unwrap_err();
    assert!(matches!(error, SettleError::Lost(None)), "{error:?}");
    assert_eq!(queue.count(Operation::DeleteMessage), 0);
    assert_eq!(queue.stored().len(), 1);
}

#[tokio::test]
async fn a_part_of_an_extension_that_fails_is_lost_or_repeated_and_the_rest_goes_on() {
    let queue = Consuming::standard().await;
    for number in 0..10 {
        queue.send(&number.to_string()).await;
    }
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let index = EntrySelector::index;
    queue.server.fault(
        EXTEND,
        Fault::entry(index(1), EntryFault::failed("ReceiptHandleIsInvalid", true))
            .and_entry(index(4), EntryFault::failed("MessageNotInflight", true))
            .and_entry(index(7), EntryFault::failed("InternalError", false)),
    );
    let deliveries = receive(&subscription, 10).await;
    sleep(Duration::from_millis(3_500)).await;
    let lost = deliveries.iter().filter(|d| d.received().lease().is_lost());
    assert_eq!(lost.count(), 2);
    let mut settled = 0;
    for delivery in deliveries {
        settled += usize::from(delivery.ack().await.is_ok());
    }
    assert_eq!(settled, 8);
}

#[tokio::test]
async fn an_extension_that_fails_is_repeated_while_the_hold_lasts() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open_as(|queue| queue.visibility(2 * SECOND)).await;
    let failing = Fault::answer(Answer::error(ErrorCode::InternalFailure));
    queue
        .server
        .add_fault(FaultRule::on(EXTEND, failing).times(2));
    let delivery = receive_one(&subscription).await;
    sleep(Duration::from_millis(2_500)).await;
    assert!(!delivery.received().lease().is_lost());
    assert_eq!(queue.only().receive_count, 1);
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_cannot_be_extended_is_lost_when_its_time_is_over() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open_as(|queue| queue.visibility(SECOND)).await;
    let failing = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    queue
        .server
        .add_fault(FaultRule::on(EXTEND, failing).always());
    let delivery = receive_one(&subscription).await;
    let lease = delivery.received().lease().clone();
    timeout(5 * SECOND, lease.lost()).await.unwrap();
    assert!(matches!(
        delivery.retry().await,
        Err(SettleError::Lost(None))
    ));
    assert!(queue.changes().is_empty());
}
