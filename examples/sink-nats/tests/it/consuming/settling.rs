//! Receiving, every outcome, and how long a delivery is one's own.

use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use async_nats::HeaderMap;
use dispatch_api::{
    Consumer, ConsumerSettings, Envelope, Received, SettleError, Settlement, Sink as _,
    Source as _, Stop, SubscriptionPlan,
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{ACK_WAIT, at_most, count, left, next, open, publish, source};
use crate::support::server::server_or_skip;
use crate::support::{ctx, envelope_of, sink, soon};

#[tokio::test]
async fn a_delivery_is_the_stored_message_with_its_id_headers_and_count() {
    let server = server_or_skip!();
    server.create_stream().await;
    let jetstream = server.jetstream().await;
    let mut headers = HeaderMap::new();
    headers.append("X-Tag", "a");
    headers.append("X-Tag", "b é");
    headers.insert("Nats-Msg-Id", "m-1");
    let stored = jetstream.publish_with_headers("hooks.acme", headers, "hello".into());
    stored.await.unwrap().await.unwrap();

    let subscription = open(&server).await;
    assert_eq!(subscription.name(), "HOOKS/worker");
    assert!(!subscription.is_ordered());
    let delivery = next(&subscription).await;
    let received = delivery.received();
    assert_eq!(received.id(), "HOOKS/1");
    assert_eq!(&received.body()[..], b"hello");
    assert_eq!(received.redelivery_count(), Some(1));
    assert_eq!(received.group(), None);
    assert_eq!(received.attribute("Nats-Msg-Id"), Some("m-1"));
    let tags = received.attributes().iter();
    let tags: Vec<_> = tags
        .filter(|(name, _)| name == "X-Tag")
        .map(|(_, value)| std::str::from_utf8(value).unwrap())
        .collect();
    assert_eq!(tags, ["a", "b é"]);
    let age = received.sent_at().unwrap().duration_since(UNIX_EPOCH);
    assert!(age.unwrap() > Duration::from_secs(1_700_000_000));
    assert!(received.lease().until().is_some());
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn what_the_sink_stores_the_source_reads_as_the_same_message() {
    let server = server_or_skip!();
    server.create_stream().await;
    let sent: Envelope = envelope_of("hello").with_dedupe_key("d1");
    let sink = sink(&server.address(), &json!({}));
    let receipt = sink.deliver(&sent, &ctx()).await.unwrap();
    let delivery = next(&open(&server).await).await;
    let received = delivery.received();
    assert_eq!(receipt.provider_id.as_deref(), Some(received.id()));
    assert_eq!(received.attribute("ankusa_tenant_id"), Some("acme"));
    let message = received.message().unwrap();
    assert_eq!(message.id, sent.id().to_string());
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn a_receive_brings_what_is_there_at_once_and_no_more_than_was_asked_for() {
    let server = server_or_skip!();
    server.create_stream().await;
    for body in ["a", "b", "c", "d", "e"] {
        publish(&server, body).await;
    }
    let subscription = open(&server).await;
    let began = Instant::now();
    let first = subscription.receive(at_most(3)).await.unwrap();
    assert_eq!(first.len(), 3);
    let second = subscription.receive(at_most(10)).await.unwrap();
    assert_eq!(second.len(), 2);
    // A receive waits for 5 s where nothing is there.
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let mut bodies = Vec::new();
    for delivery in first.into_iter().chain(second) {
        bodies.extend_from_slice(delivery.received().body());
        delivery.ack().await.unwrap();
    }
    assert_eq!(bodies, b"abcde");
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn an_empty_receive_waits_its_time_and_a_message_ends_it() {
    let server = server_or_skip!();
    server.create_stream().await;
    let plan = SubscriptionPlan::new();
    let wait = Duration::from_millis(400);
    let short = source(&server, |builder| builder.wait(wait));
    let short = short.open(&plan).await.unwrap();
    let began = Instant::now();
    assert!(short.receive(at_most(5)).await.unwrap().is_empty());
    assert!(
        (wait..wait * 4).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    let none = source(&server, |builder| builder.wait(Duration::ZERO));
    let none = none.open(&plan).await.unwrap();
    let began = Instant::now();
    assert!(none.receive(at_most(5)).await.unwrap().is_empty());
    assert!(began.elapsed() < wait, "{:?}", began.elapsed());

    let long = open(&server).await;
    let waiting = tokio::spawn(async move { long.receive(at_most(5)).await });
    sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    publish(&server, "a").await;
    let received = soon(waiting).await.unwrap().unwrap();
    assert_eq!(received.len(), 1);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_acked_and_a_dropped_message_are_gone() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    publish(&server, "b").await;
    let subscription = open(&server).await;
    next(&subscription).await.ack().await.unwrap();
    next(&subscription).await.drop_message().await.unwrap();
    assert_eq!(left(&server).await, (0, 0));
    let none = source(&server, |builder| builder.wait(ACK_WAIT * 2));
    let none = none.open(&SubscriptionPlan::new()).await.unwrap();
    assert!(none.receive(at_most(5)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_retry_comes_back_at_once_as_the_same_message_and_is_counted() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let subscription = open(&server).await;
    let began = Instant::now();
    for expected in 1..=3 {
        let delivery = next(&subscription).await;
        assert_eq!(delivery.received().id(), "HOOKS/1");
        assert_eq!(count(&*delivery), Some(expected));
        delivery.retry().await.unwrap();
    }
    assert!(began.elapsed() < ACK_WAIT, "{:?}", began.elapsed());
    next(&subscription)
        .await
        .retry_after(Duration::ZERO)
        .await
        .unwrap();
    let last = next(&subscription).await;
    assert_eq!(count(&*last), Some(5));
    last.ack().await.unwrap();
}

#[tokio::test]
async fn a_delayed_retry_comes_back_after_its_time_and_never_before() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let subscription = open(&server).await;
    // One shorter than the hold, one longer, one that is no whole number of milliseconds.
    for delay in [
        Duration::from_millis(300),
        Duration::from_millis(1_500),
        Duration::from_nanos(250_999_999),
    ] {
        let delivery = next(&subscription).await;
        let began = Instant::now();
        delivery.retry_after(delay).await.unwrap();
        let back = next(&subscription).await;
        let after = began.elapsed();
        assert!(after >= delay, "{after:?} of {delay:?}");
        assert!(
            after < delay + Duration::from_secs(2),
            "{after:?} of {delay:?}"
        );
        back.retry().await.unwrap();
    }
}

#[tokio::test]
async fn a_hold_three_times_as_long_as_ack_wait_is_kept_for_every_delivery_in_hand() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    publish(&server, "b").await;
    let subscription = open(&server).await;
    let held = subscription.receive(at_most(5)).await.unwrap();
    assert_eq!(held.len(), 2);
    let other = timeout(ACK_WAIT * 3, subscription.receive(at_most(5))).await;
    assert!(
        other.is_err(),
        "a held message was delivered to somebody else"
    );
    for delivery in held {
        assert!(!delivery.received().lease().is_lost());
        assert!(delivery.received().lease().until().unwrap() > Instant::now());
        delivery.ack().await.unwrap();
    }
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_delivery_dropped_unsettled_comes_back_when_its_hold_is_over() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let subscription = open(&server).await;
    let delivery = next(&subscription).await;
    // Held for longer than its first hold, so that the extension has begun.
    sleep(ACK_WAIT * 3 / 4).await;
    let began = Instant::now();
    drop(delivery);
    let back = next(&subscription).await;
    assert!(began.elapsed() < ACK_WAIT * 3, "{:?}", began.elapsed());
    assert!(began.elapsed() > ACK_WAIT / 4, "{:?}", began.elapsed());
    assert_eq!(count(&*back), Some(2));
    back.ack().await.unwrap();
}

#[tokio::test]
async fn what_comes_to_a_receive_that_was_dropped_goes_back() {
    let server = server_or_skip!();
    server.create_stream().await;
    let subscription = open(&server).await;
    let dropped = timeout(Duration::from_millis(200), subscription.receive(at_most(5))).await;
    assert!(dropped.is_err());
    publish(&server, "a").await;
    let began = Instant::now();
    let back = next(&subscription).await;
    assert!(began.elapsed() < ACK_WAIT, "{:?}", began.elapsed());
    assert_eq!(count(&*back), Some(2));
    back.ack().await.unwrap();
}

#[tokio::test]
async fn a_filter_leaves_other_subjects_alone() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let jetstream = server.jetstream().await;
    let stored = jetstream.publish("hooks.globex", "b".into()).await.unwrap();
    stored.await.unwrap();
    let filtered = source(&server, |builder| builder.filter_subject("hooks.globex"));
    let subscription = filtered.open(&SubscriptionPlan::new()).await.unwrap();
    let delivery = next(&subscription).await;
    assert_eq!(&delivery.received().body()[..], b"b");
    delivery.ack().await.unwrap();
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_settlement_after_the_hold_was_lost_changes_nothing() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let first = open(&server).await;
    let late = next(&first).await;
    server.freeze();
    soon(late.received().lease().lost()).await;
    server.thaw();
    let error = late.ack().await.unwrap_err();
    assert!(matches!(error, SettleError::Lost(None)), "{error:?}");
    // An acknowledgement would have taken the message away from whoever has it now.
    let back = next(&open(&server).await).await;
    assert!(count(&*back).unwrap() >= 2);
    back.ack().await.unwrap();
}

#[tokio::test]
async fn a_consumer_handles_everything_once_until_it_is_empty() {
    static SEEN: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
    let server = server_or_skip!();
    server.create_stream().await;
    for body in ["ack", "retry", "drop"] {
        publish(&server, body).await;
    }
    let source = source(&server, |builder| builder.wait(Duration::from_millis(300)));
    let subscription = source.open(&SubscriptionPlan::new()).await.unwrap();
    let mut settings = ConsumerSettings::default();
    settings.until_empty = true;
    let handle = |received: Received| async move {
        let count = received.redelivery_count().unwrap();
        let body = String::from_utf8(received.body().to_vec()).unwrap();
        let settlement = match (&*body, count) {
            ("retry", 1) => Settlement::Retry,
            ("drop", _) => Settlement::Drop,
            _ => Settlement::Ack,
        };
        SEEN.lock().unwrap().push((body, count));
        settlement
    };
    let report = soon(Consumer::new(settings).run(subscription, handle, Stop::new())).await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.acked, report.retried, report.dropped), (2, 1, 1));
    let mut seen = SEEN.lock().unwrap().clone();
    seen.sort();
    let seen: Vec<_> = seen.iter().map(|(body, count)| (&**body, *count)).collect();
    assert_eq!(seen, [("ack", 1), ("drop", 1), ("retry", 1), ("retry", 2)]);
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_receive_ends_where_max_ack_pending_lets_no_more_out() {
    let server = server_or_skip!();
    server.create_stream().await;
    for body in ["a", "b", "c"] {
        publish(&server, body).await;
    }
    let bounded = source(&server, |builder| builder.max_ack_pending(2));
    let subscription = bounded.open(&SubscriptionPlan::new()).await.unwrap();
    let began = Instant::now();
    let held = subscription.receive(at_most(10)).await.unwrap();
    assert_eq!(held.len(), 2);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    for delivery in held {
        delivery.ack().await.unwrap();
    }
    next(&subscription).await.ack().await.unwrap();
    assert_eq!(left(&server).await, (0, 0));
}
