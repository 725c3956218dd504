//! What is received, what is refused, and what keeps a receive from ending badly.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dispatch_api::{
    Consumer, ConsumerSettings, Content, DeliveryContext, Received, Settlement, Sink as _, Stop,
    SubscriptionPlan,
};
use serde_json::json;
use sink_sqs::SqsQueue;
use sink_testkit::sqs::{Answer, Damage, ErrorCode, Fault, FaultRule, Operation};
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{config, envelope, sink};
use crate::consuming::{Consuming, SECOND, open, receive, receive_one, until};
use crate::raw::{RawServer, Then, answer};

const RECEIVE: Operation = Operation::ReceiveMessage;

#[tokio::test]
async fn a_message_comes_as_it_was_sent() {
    let queue = Consuming::fifo().await;
    queue
        .send_as(json!({
            "MessageBody": "a body ✓",
            "MessageGroupId": "quay-7",
            "MessageDeduplicationId": "d-1",
            "MessageAttributes": {
                "text": {"DataType": "String", "StringValue": "héllo"},
                "count": {"DataType": "Number", "StringValue": "42"},
                "bytes": {"DataType": "Binary.png", "BinaryValue": "AP8Q"},
            },
        }))
        .await;
    let subscription = queue.open().await;
    assert!(subscription.is_ordered());
    assert_eq!(subscription.name(), "hooks.fifo");
    let delivery = receive_one(&subscription).await;
    let received = delivery.received();
    assert_eq!(received.id(), queue.only().message_id);
    assert_eq!(received.body(), "a body ✓".as_bytes());
    assert_eq!(received.group(), Some("quay-7"));
    assert_eq!(
        received.redelivery_count(),
        Some(1),
        "the first counts as one"
    );
    let sent_at = received.sent_at().unwrap();
    let age = SystemTime::elapsed(&sent_at).unwrap_or_default();
    assert!(age < 60 * SECOND, "{age:?}");
    assert_eq!(received.attribute("text"), Some("héllo"));
    assert_eq!(received.attribute("count"), Some("42"));
    let attributes = received.attributes();
    assert_eq!(
        attributes[0],
        ("bytes".to_owned(), vec![0x00, 0xff, 0x10].into())
    );
    let left = received.lease().until().unwrap() - Instant::now();
    assert!(left > 25 * SECOND && left <= 30 * SECOND, "{left:?}");
}

#[tokio::test]
async fn what_the_sink_sends_is_decoded() {
    let queue = Consuming::standard().await;
    let sent = envelope();
    sink(config(&queue.url))
        .deliver(&sent, &DeliveryContext::direct())
        .await
        .unwrap();
    let subscription = queue.open().await;
    assert!(!subscription.is_ordered());
    let delivery = receive_one(&subscription).await;
    let message = delivery.received().message().unwrap();
    assert_eq!(message.source_id, sent.source_id());
    match message.content {
        Content::Inline(body) => assert_eq!(&*body, &**sent.body()),
        Content::Claim(claim) => unreachable!("{claim}"),
    }
    let id = delivery.received().attribute("ankusa_id");
    assert_eq!(id, Some(sent.id().to_string().as_str()));
}

#[tokio::test]
async fn a_foreign_producer_s_message_is_handled_raw() {
    let queue = Consuming::standard().await;
    queue.send("not of the wire format").await;
    let subscription = queue.open().await;
    let delivery = receive_one(&subscription).await;
    assert!(delivery.received().message().is_err());
    assert_eq!(&delivery.received().body()[..], b"not of the wire format");
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn a_receive_asks_for_no_more_than_the_service_gives() {
    let queue = Consuming::standard().await;
    for number in 0..25 {
        queue.send(&number.to_string()).await;
    }
    let subscription = queue.open().await;
    let mut sizes = Vec::new();
    for max in [64, 3, 10] {
        sizes.push(receive(&subscription, max).await.len());
    }
    assert_eq!(sizes, [10, 3, 10]);
    let requests = queue.server.requests_of(RECEIVE);
    let asked: Vec<u64> = requests
        .iter()
        .map(|request| request.json()["MaxNumberOfMessages"].as_u64().unwrap())
        .collect();
    assert_eq!(asked, [10, 3, 10]);
}

#[tokio::test]
async fn ten_messages_that_are_together_longer_than_one_may_be_are_received() {
    let queue = Consuming::standard().await;
    let body = "\u{1F4E6}".repeat(65_000);
    for _ in 0..10 {
        queue.send(&body).await;
    }
    let subscription = queue.open().await;
    let deliveries = receive(&subscription, 10).await;
    assert_eq!(deliveries.len(), 10);
    for delivery in deliveries {
        assert_eq!(delivery.received().body(), body.as_bytes());
    }
}

#[tokio::test]
async fn a_message_whose_digest_does_not_fit_is_left_unsettled() {
    for damage in [Damage::BodyDigestWrong, Damage::AttributeDigestWrong] {
        let queue = Consuming::standard().await;
        queue
            .send_as(json!({
                "MessageBody": "hook",
                "MessageAttributes": {"a": {"DataType": "String", "StringValue": "b"}},
            }))
            .await;
        let subscription = queue.open_as(|queue| queue.visibility(SECOND)).await;
        queue.server.fault(RECEIVE, Fault::damaged(damage));
        assert!(receive(&subscription, 10).await.is_empty(), "{damage:?}");
        sleep(Duration::from_millis(700)).await;
        let calls = [
            Operation::DeleteMessage,
            Operation::ChangeMessageVisibility,
            Operation::ChangeMessageVisibilityBatch,
        ];
        assert_eq!(calls.map(|operation| queue.count(operation)), [0; 3]);
        // It comes back when its timeout is over.
        until("it is visible", || queue.is_visible()).await;
        assert_eq!(receive(&subscription, 10).await.len(), 1);
    }
}

#[tokio::test]
async fn digests_and_counts_that_an_emulator_leaves_out_are_not_missed() {
    let queue = Consuming::standard().await;
    let subscription = queue.open().await;
    for damage in [
        Damage::BodyDigestMissing,
        Damage::AttributeDigestMissing,
        Damage::SystemAttributesMissing,
        Damage::UnknownMembers,
    ] {
        queue.send("hook").await;
        queue.server.fault(RECEIVE, Fault::damaged(damage));
        let delivery = receive_one(&subscription).await;
        let count = delivery.received().redelivery_count();
        let expected = (damage != Damage::SystemAttributesMissing).then_some(1);
        assert_eq!(count, expected, "absent is unknown, and not zero");
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_nobody_could_settle_is_left() {
    let queue = Consuming::standard().await;
    queue.send("hook").await;
    let subscription = queue.open().await;
    let damage = Fault::damaged(Damage::ReceiptHandleMissing);
    queue.server.fault(RECEIVE, damage);
    assert!(receive(&subscription, 10).await.is_empty());
    assert_eq!(queue.only().receive_count, 1);
}

/// A server that opens as a queue and answers receives with this body.
async fn answering(body: &'static str) -> RawServer {
    RawServer::answering(move |request| {
        let attributes = r#"{"Attributes":{"VisibilityTimeout":"30","QueueArn":"a:hooks"}}"#;
        let is_receive = request.contains("AmazonSQS.ReceiveMessage");
        let body = if is_receive { body } else { attributes };
        Then::Answer(answer("200 OK", "", body))
    })
    .await
}

#[tokio::test]
async fn a_reply_without_a_list_is_an_empty_one_and_values_are_read_as_text() {
    for (body, expected) in [
        ("{}", None),
        (r#"{"Messages":null}"#, None),
        (
            r#"{"Messages":[{"ReceiptHandle":"h","Body":"b"}]}"#,
            Some(None),
        ),
        (
            r#"{"Messages":[{"ReceiptHandle":"h","Body":"b",
                "Attributes":{"ApproximateReceiveCount":"3"}}]}"#,
            Some(Some(3)),
        ),
    ] {
        let server = answering(body).await;
        let queue = SqsQueue::builder(server.queue_url(), "us-east-1").credentials("a", "b");
        let subscription = open(queue, &SubscriptionPlan::new()).await.unwrap();
        let deliveries = receive(&subscription, 10).await;
        let counts: Vec<_> = deliveries
            .iter()
            .map(|delivery| delivery.received().redelivery_count())
            .collect();
        assert_eq!(counts, Vec::from_iter(expected), "{body}");
    }
}

#[tokio::test]
async fn a_receive_has_its_waiting_time_beside_the_limit_of_other_requests() {
    let queue = Consuming::standard().await;
    let subscription = queue
        .open_as(|queue| queue.wait(2 * SECOND).timeout_ms(500))
        .await;
    let began = Instant::now();
    assert!(receive(&subscription, 10).await.is_empty());
    assert!(began.elapsed() >= 2 * SECOND);
}

#[tokio::test]
async fn a_receive_without_an_answer_ends_ten_seconds_after_its_waiting_time() {
    let queue = Consuming::standard().await;
    let subscription = queue.open().await;
    queue.server.fault(RECEIVE, Fault::silence());
    let began = Instant::now();
    let receiving = subscription.receive(NonZeroUsize::MIN);
    let error = timeout(15 * SECOND, receiving).await.unwrap().unwrap_err();
    assert_eq!(error.code(), "Timeout");
    assert!(error.text().contains("a receive has 10 s"), "{error}");
    assert!((9..13).contains(&began.elapsed().as_secs()));
}

#[tokio::test]
async fn a_fifo_receive_whose_reply_is_lost_is_asked_for_again_and_loses_no_time() {
    let queue = Consuming::fifo().await;
    queue.send_to_group("quay-7", "hook").await;
    let subscription = queue.open().await;
    queue.server.fault(RECEIVE, Fault::truncated());
    let ten = NonZeroUsize::new(10).unwrap();
    subscription.receive(ten).await.unwrap_err();
    // One that may bring less is another attempt: the group is closed to it.
    assert!(receive(&subscription, 1).await.is_empty());
    let again = receive(&subscription, 10).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].received().redelivery_count(), Some(1));
    let attempts: Vec<String> = queue
        .server
        .requests_of(RECEIVE)
        .iter()
        .map(|request| {
            let attempt = request.json()["ReceiveRequestAttemptId"].clone();
            attempt.as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(attempts.len(), 3);
    assert_eq!(attempts[0], attempts[2]);
    assert_ne!(attempts[0], attempts[1]);
}

#[tokio::test]
async fn messages_that_come_when_nobody_waits_any_more_go_back_at_once() {
    let queue = Consuming::standard().await;
    let subscription = queue.open_as(|queue| queue.wait(20 * SECOND)).await;
    let abandoned = timeout(
        Duration::from_millis(200),
        subscription.receive(NonZeroUsize::MIN),
    );
    assert!(abandoned.await.is_err());
    queue.send("hook").await;
    until("it is visible again", || {
        queue.only().receive_count == 1 && queue.is_visible()
    })
    .await;
    assert_eq!(queue.changes(), [0]);
}

fn settings() -> ConsumerSettings {
    let mut settings = ConsumerSettings::default();
    settings.concurrency = NonZeroUsize::new(2).unwrap();
    settings
}

#[tokio::test]
async fn access_denied_for_three_seconds_is_asked_about_a_few_times_only() {
    let queue = Consuming::standard().await;
    let subscription = queue.open().await;
    let denied = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    queue
        .server
        .add_fault(FaultRule::on(RECEIVE, denied).always());
    let stop = Stop::new();
    let consumer = Consumer::new(settings());
    let handler = |_: Received| async { Settlement::Ack };
    let run = consumer.run(subscription, handler, stop.clone());
    let ending = async {
        sleep(3 * SECOND).await;
        stop.by(Instant::now());
    };
    let (report, ()) = tokio::join!(run, ending);
    let requests = queue.count(RECEIVE);
    assert!((2..=5).contains(&requests), "{requests}");
    assert_eq!(report.failed_receives, requests as u64);
}

#[tokio::test]
async fn no_fault_of_a_receive_ends_the_consumer() {
    let queue = Consuming::standard().await;
    // The answer that is cut off takes the message with it, for a second.
    let subscription = queue
        .open_as(|queue| queue.wait(SECOND).visibility(SECOND))
        .await;
    let faults = [
        Fault::reset(),
        Fault::truncated(),
        Fault::answer(Answer::error(ErrorCode::InternalFailure)),
        Fault::answer(Answer::error(ErrorCode::QueueDoesNotExist)),
        Fault::answer(Answer::error(ErrorCode::OverLimit)),
        Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
        Fault::answer(Answer::error_named("BrandNew", "418".parse().unwrap())),
        Fault::answer(Answer::html("200".parse().unwrap())),
    ];
    let expected = faults.len() as u64;
    for fault in faults {
        queue.server.fault(RECEIVE, fault);
    }
    let mut settings = settings();
    settings.pause = Duration::from_millis(1);
    settings.max_pause = Duration::from_millis(20);
    let stop = Stop::new();
    let handler = {
        let stop = stop.clone();
        move |_: Received| {
            let stop = stop.clone();
            async move {
                stop.by(Instant::now() + 5 * SECOND);
                Settlement::Ack
            }
        }
    };
    queue.send("after all of them").await;
    let consumer = Consumer::new(settings);
    let run = consumer.run(subscription, handler, stop);
    let report = timeout(30 * SECOND, run).await.unwrap();
    assert_eq!((report.acked, report.failed_receives), (1, expected));
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn no_more_is_in_flight_at_the_queue_than_is_handled() {
    let queue = Consuming::standard().await;
    for number in 0..40 {
        queue.send(&number.to_string()).await;
    }
    let queue = Arc::new(queue);
    let subscription = queue.open().await;
    let stop = Stop::new();
    let mut settings = settings();
    settings.until_empty = true;
    let handler = {
        let queue = Arc::clone(&queue);
        move |received: Received| {
            let queue = Arc::clone(&queue);
            async move {
                // One slow handler, and the others flow.
                let slow = &received.body()[..] == b"0";
                sleep(Duration::from_millis(if slow { 500 } else { 5 })).await;
                let stored = queue.stored();
                let in_flight = stored.iter().filter(|message| {
                    message.visibility == sink_testkit::sqs::Visibility::InFlight
                });
                assert!(in_flight.count() <= 2);
                Settlement::Ack
            }
        }
    };
    let report = Consumer::new(settings)
        .run(subscription, handler, stop)
        .await;
    assert_eq!((report.acked, report.retried), (40, 0));
}
