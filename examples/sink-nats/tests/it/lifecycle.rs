//! Building, dropping, describing and draining.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Admission, DrainReport, Ordering, Outcome, Sink as _};
use serde_json::json;
use tokio::time::Instant;

use crate::fake::{FakeServer, Then, ack};
use crate::support::{ctx, envelope, parts, sink};

#[tokio::test]
async fn a_delivery_that_is_never_polled_connects_nowhere() {
    let server = FakeServer::start([]).await;
    let sink = sink(&server.address(), &json!({}));
    drop(sink.deliver(&envelope(), &ctx()));
    tokio::task::yield_now().await;
    assert_eq!(server.connects().len(), 0);
}

#[tokio::test]
async fn a_delivery_dropped_on_its_way_leaves_the_sink_in_order() {
    let server = FakeServer::start([Then::Silence, ack(2)]).await;
    let sink = sink(&server.address(), &json!({}));
    tokio::select! {
        biased;
        _ = async { sink.deliver(&envelope(), &ctx()).await } => unreachable!("the server is silent"),
        () = server.published_are(1) => {}
    }
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let report = sink.drain(Instant::now() + Duration::from_secs(5)).await;
    assert_eq!(report, DrainReport::new(0, 0));
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_then_the_sink_is_closed() {
    let server = FakeServer::start([Then::Silence]).await;
    let sink = Arc::new(sink(&server.address(), &json!({"timeout_ms": 500})));
    let running = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { sink.deliver(&envelope(), &ctx()).await }
    });
    server.published_are(1).await;
    let report = sink.drain(Instant::now() + Duration::from_millis(10)).await;
    assert_eq!(report, DrainReport::new(0, 1));
    let report = sink.drain(Instant::now() + Duration::from_secs(10)).await;
    assert_eq!(report, DrainReport::new(1, 0));
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "Timeout");

    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "SinkClosed")
    );
    assert_eq!(server.published().len(), 1);
}

#[test]
fn the_guarantees_promise_a_window_and_a_size_only_where_they_are_set() {
    let promised = sink("127.0.0.1", &json!({})).guarantees();
    assert!(promised.durable);
    assert_eq!(promised.ordering, Ordering::PerKeyWhenAwaited);
    assert_eq!(promised.dedup_window, None);
    assert_eq!(promised.max_message_bytes, None);
    let sized = sink("127.0.0.1", &json!({"max_message_bytes": 262_144}));
    assert_eq!(sized.guarantees().max_message_bytes, Some(262_144));
    for (millis, window) in [(120_000, Some(Duration::from_secs(120))), (0, None)] {
        let stated = sink("127.0.0.1", &json!({"duplicate_window_ms": millis}));
        assert_eq!(stated.guarantees().dedup_window, window);
    }
    assert_eq!(sized.admission(), Admission::HostLimited);
    assert_eq!(sized.inline_max_bytes().unwrap().get(), 65_536);
}

#[test]
fn a_description_names_servers_and_subject_and_no_credential() {
    let options = json!({
        "servers": ["127.0.0.1", "tls://broker.internal:4443"],
        "subject": "hooks.{tenant_id}", "user": "u", "password": "canary",
    });
    let description = sink("", &options).describe().unwrap();
    assert_eq!(description.protocol, "nats");
    assert_eq!(
        description.server,
        "nats://127.0.0.1:4222,tls://broker.internal:4443"
    );
    assert_eq!(description.address, "hooks.{tenant_id}");
    assert!(!format!("{description:?}").contains("canary"));
}
