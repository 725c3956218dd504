//! Building, dropping, describing and draining.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Admission, DrainReport, Ordering, Outcome, Sink as _};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Cluster, ctx, envelope, parts, sink};

fn within(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

#[tokio::test]
async fn a_delivery_that_is_never_polled_sends_nothing() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    drop(sink.deliver(&envelope(), &ctx()));
    assert_eq!(sink.drain(within(5_000)).await, DrainReport::new(0, 0));
    assert_eq!(cluster.stored(0, 0).len(), 0);
}

#[tokio::test]
async fn a_delivery_dropped_on_its_way_counts_as_sent_and_a_drain_hands_it_out() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({"timeout_ms": 20_000, "properties": {"linger.ms": 300}}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let context = ctx();
    let envelope = envelope();
    let mut delivery = sink.deliver(&envelope, &context);
    tokio::select! {
        biased;
        answer = &mut delivery => unreachable!("it lingers: {answer:?}"),
        // One poll hands the record to the client.
        () = std::future::ready(()) => {}
    }
    drop(delivery);
    assert_eq!(sink.drain(within(10_000)).await, DrainReport::new(0, 0));
    assert_eq!(cluster.stored(0, 2).len(), 2);
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_then_the_sink_is_closed() {
    let cluster = Cluster::start();
    let sink = Arc::new(cluster.sink(&json!({"timeout_ms": 20_000})));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    cluster
        .mock
        .broker_round_trip_time(-1, Duration::from_millis(700))
        .unwrap();
    let running = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { sink.deliver(&envelope(), &ctx()).await }
    });
    tokio::task::yield_now().await;
    let report = sink.drain(within(50)).await;
    assert_eq!(report, DrainReport::new(0, 1));
    let report = sink.drain(within(15_000)).await;
    assert_eq!(report, DrainReport::new(1, 0));
    running.await.unwrap().unwrap();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "SinkClosed")
    );
}

#[test]
fn a_sink_outlives_the_runtime_that_it_connected_in() {
    let cluster = Cluster::start();
    let sink = cluster.sink(&json!({}));
    for _ in 0..2 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime
            .block_on(async { sink.deliver(&envelope(), &ctx()).await })
            .unwrap();
    }
    assert_eq!(cluster.stored(0, 2).len(), 2);
}

#[test]
fn the_guarantees_promise_order_within_a_key_and_a_size_and_no_window() {
    let sink = sink("127.0.0.1:1", &json!({"max_message_bytes": 262_144}));
    let promised = sink.guarantees();
    assert!(promised.durable);
    assert_eq!(promised.ordering, Ordering::PerKeyWhenAwaited);
    assert_eq!(promised.dedup_window, None);
    assert_eq!(promised.max_message_bytes, Some(262_144));
    assert_eq!(sink.admission(), Admission::SelfLimited);
    assert_eq!(sink.inline_max_bytes().unwrap().get(), 65_536);
}

#[test]
fn a_description_names_brokers_and_topic_and_no_property() {
    let more = json!({"properties": {"sasl.password": "canary"}});
    let description = sink("a:1,b:2", &more).describe().unwrap();
    assert_eq!(description.protocol, "kafka");
    assert_eq!(description.server, "a:1,b:2");
    assert_eq!(description.address, "hooks");
    assert!(!format!("{description:?}").contains("canary"));
}
