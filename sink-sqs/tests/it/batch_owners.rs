//! Batchers that several sinks share, and sinks that are drained or swapped out.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    DeliveryContext, DrainReport, HeaderForwarding, HostServices, NamedSink, Outcome, Registry,
    RouteTable, Sink as _, TenantRoutes,
};
use serde_json::json;
use sink_sqs::{SqsSink, SqsSinkConfigBuilder};
use sink_testkit::sqs::{Operation, SqsServer};
use tokio::time::Instant;

use crate::batch_bench::{LINGER_MS, attempt, body_of, names, numbered};
use crate::bench::{FIFO_QUEUE, QUEUE, config, parts, sink_of};

#[tokio::test]
async fn sinks_of_one_host_with_one_queue_and_keys_share_batches_and_others_do_not() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let other_url = server.create_queue("other", []).await.unwrap();
    let services = HostServices::new();
    let sink =
        |url: &str, services| Arc::new(sink_of(config(url).batch_linger_ms(LINGER_MS), services));
    let sinks = [
        sink(&queue_url, &services),
        sink(&queue_url, &services),
        sink(&other_url, &services),
        sink(&queue_url, &HostServices::new()),
    ];
    let mut started = Vec::new();
    for sink in &sinks {
        let sink = Arc::clone(sink);
        started.push(tokio::spawn(async move {
            sink.deliver(&numbered(0), &attempt(1)).await
        }));
    }
    for delivery in started {
        delivery.await.unwrap().unwrap();
    }
    let requests = server.requests_of(Operation::SendMessageBatch);
    let mut sizes: Vec<_> = requests
        .iter()
        .map(|request| request.json()["Entries"].as_array().unwrap().len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 2]);
}

#[tokio::test]
async fn a_drain_sends_what_waits_at_once_and_leaves_the_other_sink_of_the_batcher_working() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let services = HostServices::new();
    let minute = Duration::from_secs(60);
    let sink = || sink_of(config(&queue_url).batch_linger_ms(60_000), &services);
    let (drained, other) = (Arc::new(sink()), sink());
    let waiting = {
        let drained = Arc::clone(&drained);
        tokio::spawn(async move { drained.deliver(&numbered(0), &attempt(1)).await })
    };
    tokio::task::yield_now().await;
    let report = drained.drain(Instant::now() + minute).await;
    assert_eq!(report, DrainReport::new(1, 0));
    waiting.await.unwrap().unwrap();
    let late = drained
        .deliver(&numbered(1), &attempt(1))
        .await
        .unwrap_err();
    assert_eq!(late.code(), "SinkClosed");
    other
        .deliver(&numbered(2), &DeliveryContext::direct())
        .await
        .unwrap();
    let mut along = Vec::new();
    let other = Arc::new(other);
    for number in 10..20 {
        let other = Arc::clone(&other);
        along.push(tokio::spawn(async move {
            other.deliver(&numbered(number), &attempt(1)).await
        }));
    }
    for delivery in along {
        delivery.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn sinks_of_one_fifo_queue_that_are_set_otherwise_keep_the_order_of_a_group() {
    let server = SqsServer::start().await.unwrap();
    let fifo = [("FifoQueue", "true")];
    let queue_url = server.create_queue(FIFO_QUEUE, fifo).await.unwrap();
    let services = HostServices::new();
    let sink = |change: fn(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder| {
        let config = change(config(&queue_url).batch_linger_ms(LINGER_MS));
        Arc::new(sink_of(config, &services))
    };
    let sinks = [
        sink(|config| config),
        sink(|config| config.timeout_ms(60_000)),
        sink(|config| config.pool_max_idle_per_host(1)),
    ];
    let hold = server.hold(Operation::SendMessageBatch);
    let mut started = Vec::new();
    for number in 0..15 {
        // Two of each sink in turn.
        let sink = Arc::clone(&sinks[number / 2 % sinks.len()]);
        started.push(tokio::spawn(async move {
            sink.deliver(&numbered(number), &attempt(1)).await
        }));
        tokio::task::yield_now().await;
    }
    hold.arrived().await;
    for sink in &sinks {
        sink.flush();
    }
    assert_eq!(server.requests_of(Operation::SendMessageBatch).len(), 1);
    hold.release();
    for delivery in started {
        delivery.await.unwrap().unwrap();
    }
    let stored = server.messages(FIFO_QUEUE).unwrap();
    let stored: Vec<_> = stored.iter().map(|stored| body_of(&stored.body)).collect();
    assert_eq!(stored, names(0..15));
}

#[tokio::test]
async fn what_waits_at_the_deadline_of_a_drain_is_answered_and_the_other_sinks_messages_are_sent() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let services = HostServices::new();
    let sink = || {
        let config = config(&queue_url).batch_linger_ms(60_000);
        Arc::new(sink_of(config.batch_max_inflight(1), &services))
    };
    let (drained, other) = (sink(), sink());
    let start = |sink: &Arc<SqsSink>, number| {
        let sink = Arc::clone(sink);
        tokio::spawn(async move { sink.deliver(&numbered(number), &attempt(1)).await })
    };
    let hold = server.hold(Operation::SendMessageBatch);
    let under_way = start(&drained, 0);
    tokio::task::yield_now().await;
    drained.flush();
    hold.arrived().await;
    let waiting = [start(&drained, 1), start(&other, 2), start(&drained, 3)];
    tokio::task::yield_now().await;

    let report = drained.drain(Instant::now()).await;

    assert_eq!(report, DrainReport::new(0, 3));
    let [one, others, three] = waiting;
    for refused in [one, three] {
        let refused = refused.await.unwrap().unwrap_err();
        assert_eq!(
            parts(&refused),
            ("transient", Outcome::NotStored, "SinkClosed")
        );
    }
    hold.release();
    under_way.await.unwrap().unwrap();
    others.await.unwrap().unwrap();
    let stored = server.messages(QUEUE).unwrap();
    let stored: Vec<_> = stored.iter().map(|stored| body_of(&stored.body)).collect();
    assert_eq!(stored, ["0", "2"]);
}

#[tokio::test]
async fn a_swap_sends_what_lingers_and_its_report_is_complete() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let services = HostServices::new();
    let options = json!({
        "queue_url": queue_url, "region": "us-east-1", "access_key_id": "test",
        "secret_access_key": "test", "batch_linger_ms": 60_000,
    });
    let registry = Registry::with([&sink_sqs::PLUGIN]).unwrap();
    let old = NamedSink::new("old", registry.build("sqs", &options, &services).unwrap());
    let headers = HeaderForwarding::Default;
    let routes = TenantRoutes::new(RouteTable::new().with_source("harbor", [old], headers));
    let mut started = Vec::new();
    for number in 0..3 {
        let lease = routes.select("harbor", None).unwrap().leases.remove(0);
        started.push(tokio::spawn(async move {
            lease.deliver(&numbered(number), &attempt(1)).await
        }));
    }
    tokio::task::yield_now().await;

    let deadline = Instant::now() + Duration::from_secs(5);
    let report = routes.swap(RouteTable::new(), deadline).await;

    assert_eq!(report.total(), DrainReport::new(3, 0));
    assert!(Instant::now() < deadline);
    for delivery in started {
        delivery.await.unwrap().unwrap();
    }
    assert_eq!(server.requests_of(Operation::SendMessageBatch).len(), 1);
}
