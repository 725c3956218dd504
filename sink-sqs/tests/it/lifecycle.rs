//! Starting, dropping, describing and draining.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Admission, DrainReport, Ordering, Outcome, Sink as _};
use sink_testkit::sqs::{Hold, Operation};
use tokio::time::Instant;

use crate::bench::{Bench, FIFO_QUEUE, QUEUE, config, ctx, envelope, parts, sink};

/// Waits for a request at the gate, and not for ever.
async fn arrived(hold: &Hold) {
    tokio::time::timeout(Duration::from_secs(10), hold.arrived())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_delivery_that_is_never_polled_sends_nothing() {
    let bench = Bench::standard().await;
    drop(bench.sink.deliver(&envelope(), &ctx()));
    tokio::task::yield_now().await;
    assert_eq!(bench.server.connections(), 0);
    assert_eq!(bench.stored().len(), 0);
}

#[tokio::test]
async fn a_delivery_dropped_on_its_way_leaves_the_sink_in_order() {
    let bench = Bench::standard().await;
    let hold = bench.server.hold(Operation::SendMessage);
    tokio::select! {
        biased;
        _ = bench.deliver() => unreachable!("the server holds the request"),
        () = arrived(&hold) => {}
    }
    drop(hold);
    bench.deliver().await.unwrap();
    let report = bench
        .sink
        .drain(Instant::now() + Duration::from_secs(5))
        .await;
    assert_eq!(report, DrainReport::new(0, 0));
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_then_the_sink_is_closed() {
    let bench = Bench::standard().await;
    let hold = bench.server.hold(Operation::SendMessage);
    let sink = Arc::new(bench.sink);
    let running = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { sink.deliver(&envelope(), &ctx()).await }
    });
    arrived(&hold).await;
    let draining = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { sink.drain(Instant::now() + Duration::from_secs(5)).await }
    });
    tokio::task::yield_now().await;
    assert!(!draining.is_finished());
    hold.release();
    assert_eq!(draining.await.unwrap(), DrainReport::new(1, 0));
    running.await.unwrap().unwrap();

    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "SinkClosed")
    );
    assert_eq!(bench.server.requests_of(Operation::SendMessage).len(), 1);
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline_and_says_what_is_missing() {
    let bench = Bench::standard().await;
    let hold = bench.server.hold(Operation::SendMessage);
    let sink = Arc::new(bench.sink);
    let running = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { sink.deliver(&envelope(), &ctx()).await }
    });
    arrived(&hold).await;
    let report = sink.drain(Instant::now() + Duration::from_millis(10)).await;
    assert_eq!(report, DrainReport::new(0, 1));
    hold.release();
    running.await.unwrap().unwrap();
}

#[test]
fn a_fifo_sink_promises_order_and_a_window_and_a_standard_one_neither() {
    let url = |queue: &str| format!("http://127.0.0.1:1/000000000000/{queue}");
    let fifo = sink(config(&url(FIFO_QUEUE)).max_message_bytes(262_144));
    let promised = fifo.guarantees();
    assert!(promised.durable && fifo.durable());
    assert_eq!(promised.ordering, Ordering::PerKey);
    assert_eq!(promised.dedup_window, Some(Duration::from_secs(300)));
    assert_eq!(promised.max_message_bytes, Some(262_144));
    assert_eq!(promised.max_attributes, Some(10));
    assert_eq!(fifo.admission(), Admission::SelfLimited);

    let standard = sink(config(&url(QUEUE)));
    let promised = standard.guarantees();
    assert!(promised.durable);
    assert_eq!(promised.ordering, Ordering::None);
    assert_eq!(promised.dedup_window, None);
    assert_eq!(promised.max_message_bytes, Some(1_048_576));
    assert_eq!(standard.inline_max_bytes().unwrap().get(), 65_536);
}

#[test]
fn a_description_names_server_queue_and_region() {
    let sink = sink(config("http://127.0.0.1:4566/000000000000/hooks.fifo"));
    let description = sink.describe().unwrap();
    assert_eq!(description.protocol, "sqs");
    assert_eq!(description.server, "http://127.0.0.1:4566");
    assert_eq!(description.address, "hooks.fifo");
    assert_eq!(description.properties["region"], "us-east-1");
    assert_eq!(description.properties["queue_type"], "fifo");
}
