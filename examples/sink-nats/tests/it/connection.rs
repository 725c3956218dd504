//! Connecting, losing a connection, and what was on its way then.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Outcome, Sink as _};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::fake::{FakeServer, NONCE, Then, ack};
use crate::support::server::server_or_skip;
use crate::support::{ctx, envelope, envelope_of, parts, sink, soon};

/// A port on which nothing listens.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_sink_delivers_again_by_itself_after_its_server_was_killed_and_restarted() {
    let mut server = server_or_skip!();
    let mut stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    server.kill();
    let began = Instant::now();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert!(
        matches!(error.code(), "ConnectFailed" | "ConnectionLost"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(6));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
    server.restart();
    let receipt = sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(receipt.provider_id.as_deref(), Some("HOOKS/2"));
    // Neither of the two that failed came later.
    assert_eq!(stream.info().await.unwrap().state.messages, 2);
}

#[tokio::test]
async fn a_server_that_answers_too_late_leaves_the_outcome_unknown() {
    let server = server_or_skip!();
    let mut stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({"timeout_ms": 1_000}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    server.freeze();
    let began = Instant::now();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    let took = began.elapsed();
    server.thaw();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(6),
        "{took:?}"
    );
    let last = envelope();
    soon(async { while sink.deliver(&last, &ctx()).await.is_err() {} }).await;
    // It was on its way, and arrived.
    assert_eq!(stream.info().await.unwrap().state.messages, 3);
}

#[tokio::test]
async fn the_deadline_of_the_context_bounds_a_delivery() {
    let server = FakeServer::start([Then::Silence]).await;
    let sink = sink(&server.address(), &json!({"timeout_ms": 60_000}));
    let began = Instant::now();
    let context = ctx().with_deadline(Instant::now() + Duration::from_millis(200));
    let error = sink.deliver(&envelope(), &context).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert!(began.elapsed() < Duration::from_secs(10));
    let context = ctx().with_deadline(Instant::now());
    let error = sink.deliver(&envelope(), &context).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "DeadlinePassed")
    );
    assert_eq!(server.published().len(), 1);
}

#[tokio::test]
async fn a_server_that_refuses_connections_stores_nothing() {
    let sink = sink(&free_address().await, &json!({}));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
}

#[tokio::test]
async fn a_server_that_accepts_and_never_greets_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for options in [
        json!({"connect_timeout_ms": 1_000, "timeout_ms": 60_000}),
        json!({"timeout_ms": 200}),
    ] {
        let sink = Arc::new(sink(&address, &options));
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let sink = Arc::clone(&sink);
            running.spawn(async move { sink.deliver(&envelope(), &ctx()).await.unwrap_err() });
        }
        for error in soon(running.join_all()).await {
            assert_eq!(
                parts(&error),
                ("transient", Outcome::NotStored, "ConnectFailed")
            );
        }
        // Those who waited share the failure instead of trying one after the other.
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn the_next_server_of_the_list_is_tried_when_one_is_down() {
    let server = FakeServer::start([]).await;
    let servers = json!({"servers": [free_address().await, server.address()]});
    let sink = sink("", &servers);
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(server.published().len(), 1);
}

#[tokio::test]
async fn a_connection_that_ends_under_a_message_is_told_at_once_and_the_message_never_repeated() {
    let server = FakeServer::start([Then::Close, ack(2)]).await;
    let sink = sink(&server.address(), &json!({"timeout_ms": 60_000}));
    let began = Instant::now();
    let (first, second) = (envelope(), envelope());
    let error = sink.deliver(&first, &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "ConnectionLost")
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    sink.deliver(&second, &ctx()).await.unwrap();
    let published = server.published();
    assert_eq!(published.len(), 2);
    assert!(published[0].headers.contains(&first.id().to_string()));
    assert!(published[1].headers.contains(&second.id().to_string()));
}

#[tokio::test]
async fn what_was_told_to_be_late_is_not_sent_by_a_later_connection() {
    let server = FakeServer::start([]).await;
    let sink = Arc::new(sink(
        &server.address(),
        &json!({"timeout_ms": 500, "inline_max_bytes": 500_000}),
    ));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    server.stall(true);
    // Far more than the sockets between the two hold.
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let sink = Arc::clone(&sink);
        running.spawn(async move {
            let envelope = envelope_of(vec![b'x'; 400_000]);
            sink.deliver(&envelope, &ctx()).await.unwrap_err()
        });
    }
    for error in soon(running.join_all()).await {
        assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    }
    server.close_all();
    server.stall(false);
    let last = envelope();
    // The loss may be noticed only now.
    soon(async { while sink.deliver(&last, &ctx()).await.is_err() {} }).await;
    let published = server.published();
    let of_later_connections: Vec<_> = published
        .iter()
        .filter(|message| message.connection > 0)
        .collect();
    let last = last.id().to_string();
    assert!(!of_later_connections.is_empty());
    assert!(
        of_later_connections
            .iter()
            .all(|message| message.headers.contains(&last))
    );
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_no_delivery() {
    let server = FakeServer::start([]).await;
    let sink = sink(&server.address(), &json!({}));
    for round in 1..=5 {
        sink.deliver(&envelope(), &ctx()).await.unwrap();
        server.close_all();
        // The client knows of the loss when it knocks again, before it gives up.
        server.accepted_are(2 * round).await;
    }
    assert_eq!(server.published().len(), 5);
}

#[test]
fn a_sink_outlives_the_runtime_that_it_connected_in() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let of_server = runtime();
    let server = of_server.block_on(FakeServer::start([]));
    let sink = sink(&server.address(), &json!({}));
    for _ in 0..2 {
        runtime()
            .block_on(async { sink.deliver(&envelope(), &ctx()).await })
            .unwrap();
    }
    let _inside = of_server.enter();
    assert_eq!(server.published().len(), 2);
}

#[tokio::test]
async fn a_credentials_file_answers_the_challenge_of_every_connection() {
    let key = nkeys::KeyPair::new_user();
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |jwt: &str| {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            key.seed().unwrap()
        );
        std::fs::write(file.path(), text).unwrap();
    };
    write("first.jwt");
    let server = FakeServer::start([]).await;
    let sink = sink(&server.address(), &json!({"credentials_file": file.path()}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    write("second.jwt");
    server.close_all();
    soon(async { while sink.deliver(&envelope(), &ctx()).await.is_err() {} }).await;
    let connects = server.connects();
    assert_eq!(connects[0]["jwt"], "first.jwt");
    assert_eq!(connects.last().unwrap()["jwt"], "second.jwt");
    use base64::Engine as _;
    let signature = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(connects[0]["sig"].as_str().unwrap())
        .unwrap();
    key.verify(NONCE.as_bytes(), &signature).unwrap();
}
