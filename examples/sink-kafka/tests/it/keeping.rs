//! What a member does while nobody receives, and what it keeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Delivery, HostServices};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{Instant, timeout};

use crate::consuming::{
    OpenAlone as _, PATIENCE, built, max, next, nothing_comes, put, put_all, source, take,
};
use crate::support::{Cluster, TOPIC};

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_longer_than_a_poll_may_keeps_its_partitions() {
    let cluster = Cluster::start();
    put(&cluster, TOPIC, "quay-7", b"{}", &[]);
    let source = source(&cluster, "workers")
        .property("session.timeout.ms", "6000")
        .property("max.poll.interval.ms", "6000")
        .build(&HostServices::new())
        .unwrap();
    let subscription = source.open_alone().await;
    let delivery = next(&*subscription).await;
    // Real time: librdkafka's clock is no test's.
    tokio::time::sleep(Duration::from_millis(7_500)).await;
    assert!(!delivery.received().lease().is_lost());
    delivery.ack().await.unwrap();
    put(&cluster, TOPIC, "quay-7", b"{}", &[]);
    next(&*subscription).await.ack().await.unwrap();
}

/// The mark of a copy for `workers` that may be handed out so much later.
fn mark(delay: Duration) -> String {
    let not_before = HostServices::new().unix_ms() + u64::try_from(delay.as_millis()).unwrap();
    format!("count=2;not_before={not_before};group=workers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_more_delayed_copies_than_it_keeps_stays_one_and_settles_them_when_due() {
    const COPIES: usize = 1_010;
    let cluster = Cluster::start();
    let source = source(&cluster, "workers")
        .property("session.timeout.ms", "6000")
        .property("max.poll.interval.ms", "6000")
        .build(&HostServices::new())
        .unwrap();
    let subscription = source.open_alone().await;
    nothing_comes(&*subscription).await;
    let mark = mark(Duration::from_secs(8));
    let headers = [("dispatch_redelivery", &*mark)];
    put_all(
        &cluster,
        TOPIC,
        &[(b"quay-7".as_slice(), b"{}".as_slice()); COPIES],
        &headers,
    );
    put(&cluster, TOPIC, "quay-7", b"behind them", &[]);
    let taken = take(&*subscription, COPIES + 1).await;
    let ids = taken
        .iter()
        .map(|delivery| delivery.received().id().to_owned());
    let came: BTreeSet<String> = ids.collect();
    let all = (0..=COPIES).map(|number| format!("{TOPIC}/0/{number}"));
    assert_eq!(came, all.collect());
    for delivery in taken {
        delivery.ack().await.unwrap();
    }
    nothing_comes(&*subscription).await;
}

/// Stores records of as many keys, over all partitions, and returns their bodies.
fn put_three_hundred(cluster: &Cluster) -> BTreeSet<String> {
    let all: BTreeSet<String> = (0..300).map(|number| format!("quay-{number}")).collect();
    let records = all.iter().map(|key| (key.as_bytes(), key.as_bytes()));
    put_all(cluster, TOPIC, &records.collect::<Vec<_>>(), &[]);
    all
}

fn body(delivery: &dyn Delivery) -> String {
    String::from_utf8(delivery.received().body().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_is_paused_and_resumed_over_and_over_comes_once() {
    let cluster = Cluster::without_topic();
    cluster.create_topic(3);
    let all = put_three_hundred(&cluster);
    let subscription = built(&cluster, "workers").open_alone().await;
    let mut came = Vec::new();
    while came.len() < all.len() {
        for delivery in take(&*subscription, 100).await {
            came.push(body(&*delivery));
            delivery.ack().await.unwrap();
        }
        // Long enough for the source to keep what comes, and to pause the rest.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    nothing_comes(&*subscription).await;
    came.sort();
    assert_eq!(came, all.into_iter().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_ends_a_receive_that_waits() {
    let cluster = Cluster::start();
    let subscription = source(&cluster, "workers").wait(PATIENCE);
    let subscription = subscription.build(&HostServices::new()).unwrap();
    let subscription = subscription.open_alone().await;
    let waiting = {
        let subscription = Arc::clone(&subscription);
        tokio::spawn(async move { subscription.receive(max(1)).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    subscription.close().await;
    let received = timeout(Duration::from_secs(5), waiting).await;
    let error = received.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), "SubscriptionClosed");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_came_while_nobody_received_is_the_next_receive_s() {
    let cluster = Cluster::start();
    let subscription = built(&cluster, "workers").open_alone().await;
    nothing_comes(&*subscription).await;
    // The client tells it once, however often it is refused.
    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster
        .mock
        .request_errors(RDKafkaApiKey::Fetch, &[refusal]);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let error = subscription.receive(max(1)).await.unwrap_err();
    assert_eq!(error.code(), "TopicAuthorizationFailed");
    put(&cluster, TOPIC, "quay-7", b"{}", &[]);
    next(&*subscription).await.ack().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_wait_is_not_empty_while_a_record_is_there() {
    let cluster = Cluster::start();
    put(&cluster, TOPIC, "quay-7", b"{}", &[]);
    let source = source(&cluster, "workers").wait(Duration::ZERO);
    let source = source.build(&HostServices::new()).unwrap();
    let subscription = source.open_alone().await;
    next(&*subscription).await.give_back().await.unwrap();
    // Long enough for the source to look, now and again, for what the group wants.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        let mut received = subscription.receive(max(1)).await.unwrap();
        let delivery = received.pop().expect("what was given back is there");
        delivery.give_back().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_goes_while_it_is_paused_is_read_on_when_it_comes_back() {
    let cluster = Cluster::without_topic();
    cluster.create_topic(2);
    let all = put_three_hundred(&cluster);
    let first = built(&cluster, "workers").open_alone().await;
    // Time to join the group, and to keep as much as it does.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let second = built(&cluster, "workers").open_alone().await;
    drop(next(&*second).await);
    second.close().await;
    let mut came = BTreeSet::new();
    let receiving = async {
        while came.len() < all.len() {
            for delivery in first.receive(max(100)).await.unwrap() {
                came.insert(body(&*delivery));
                // Lost where its partition was on its way.
                let _ = delivery.ack().await;
            }
        }
    };
    let received = timeout(PATIENCE, receiving).await;
    assert!(received.is_ok(), "{} of {} came", came.len(), all.len());
}
