//! Connections that fail.

use std::time::Duration;

use dispatch_api::{ErrorChain, Outcome, Sink as _, SinkError};
use sink_testkit::sqs::{Fault, Operation};
use tokio::time::Instant;

use crate::bench::{Bench, QUEUE, config, ctx, envelope, parts, run_again, sink};
use crate::raw::{RawServer, Then, answer};

/// One delivery to a server that treats it so.
async fn deliver_to(then: Then) -> (SinkError, RawServer) {
    let server = RawServer::start(then).await;
    let sink = sink(config(&server.queue_url()).timeout_ms(2_000));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    (error, server)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failed_connection() {
    let bench = Bench::standard().await;
    bench.deliver().await.unwrap();
    bench.server.shutdown().await;
    let error = bench.sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
    assert!(error.text().contains("http://127.0.0.1:"), "{error}");
    let chain = ErrorChain(&error).to_string();
    assert!(chain.to_lowercase().contains("refused"), "{chain}");
}

#[tokio::test]
async fn a_host_that_has_no_address_is_a_failed_connection() {
    let sink = sink(config("http://nowhere.invalid/000000000000/hooks"));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotStored);
    // A resolver that cannot be reached is slow to say so.
    assert!(
        matches!(error.code(), "ConnectFailed" | "Timeout"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_leaves_the_outcome_unknown() {
    let (error, server) = deliver_to(Then::Close).await;
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "ConnectionLost")
    );
    assert_eq!(server.requests().len(), 1, "nothing is sent twice");

    let bench = Bench::faulty(Fault::reset()).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "ConnectionLost")
    );
    assert_eq!(bench.sends().len(), 1, "nothing is sent twice");
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_lost_connection() {
    let (error, server) = deliver_to(Then::Answer(b"220 mail.example ESMTP\r\n".to_vec())).await;
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "ConnectionLost")
    );
    assert!(!ErrorChain(&error).to_string().contains("ESMTP"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_whose_outcome_is_unknown() {
    let server = RawServer::start(Then::Silence).await;
    let sink = sink(config(&server.queue_url()).timeout_ms(200));
    let begun = Instant::now();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(190));
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_timeout_covers_the_whole_answer() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"MessageId\"".to_vec();
    let server = RawServer::start(Then::Stall(half)).await;
    let sink = sink(config(&server.queue_url()).timeout_ms(200));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_timeout_while_connecting_is_not_stored() {
    // A listener whose queue of connections is full: further ones wait in vain.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let connect = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(100), connect).await {
            Ok(stream) => waiting.push(stream),
            Err(_) => break,
        }
    }
    let sink = sink(config(&format!("http://{address}/000000000000/hooks")).timeout_ms(200));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::NotStored, "Timeout"));
    drop((waiting, listener));
}

#[tokio::test]
async fn the_deliverys_deadline_wins_where_it_is_sooner() {
    let server = RawServer::start(Then::Silence).await;
    let sink = sink(config(&server.queue_url()).timeout_ms(60_000));
    let begun = Instant::now();
    let soon = ctx().with_deadline(begun + Duration::from_millis(200));
    let error = sink.deliver(&envelope(), &soon).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_deadline_that_is_over_sends_nothing() {
    let bench = Bench::standard().await;
    let over = ctx().with_deadline(Instant::now());
    let error = bench.sink.deliver(&envelope(), &over).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "DeadlinePassed")
    );
    assert_eq!(bench.server.connections(), 0);
}

#[tokio::test]
async fn a_delivery_that_was_late_can_still_be_stored() {
    let bench = Bench::with(QUEUE, |config| config.timeout_ms(200)).await;
    let hold = bench.server.hold_answer(Operation::SendMessage);
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert_eq!(bench.stored().len(), 1);
    drop(hold);
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_is_replaced() {
    let bench = Bench::standard().await;
    bench
        .server
        .close_idle_after(Some(Duration::from_millis(20)));
    for _ in 0..3 {
        match bench.deliver().await {
            Ok(_) => {}
            // Closed while the request was being written: nobody can know.
            Err(error) => assert_eq!(
                parts(&error),
                ("transient", Outcome::Unknown, "ConnectionLost")
            ),
        }
        bench.server.all_connections_closed().await;
    }
    bench.deliver().await.unwrap();
    assert!(bench.server.connections() > 1);
}

#[tokio::test]
async fn a_connection_closed_behind_an_answer_is_replaced_or_transient() {
    let bench = Bench::faulty(Fault::close_after_answer()).await;
    bench.deliver().await.unwrap();
    bench.server.all_connections_closed().await;
    bench.deliver().await.unwrap();
    assert_eq!(bench.stored().len(), 2);
}

#[tokio::test]
async fn idle_connections_are_dropped_after_their_time() {
    let bench = Bench::with(QUEUE, |config| config.pool_idle_timeout_ms(1)).await;
    bench.deliver().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    bench.deliver().await.unwrap();
    assert_eq!(bench.server.connections(), 2);
}

#[tokio::test]
async fn requests_go_through_the_configured_proxy_and_no_other() {
    let proxy = RawServer::start(Then::Answer(answer(
        "407 Proxy Authentication Required",
        "",
        "",
    )))
    .await;
    let proxy_url = proxy.queue_url().replace("/000000000000/hooks", "");
    let sink = sink(config("http://queue.invalid/000000000000/hooks").proxy(proxy_url));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "HttpStatus"));
    assert_eq!(error.status(), Some(407));
    assert!(proxy.requests()[0].starts_with("POST http://queue.invalid/ HTTP/1.1"));
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    const PROXIED: &str = "SINK_SQS_TEST_WITH_PROXY";
    if std::env::var_os(PROXIED).is_some() {
        Bench::standard().await.deliver().await.unwrap();
        return;
    }
    // Nobody listens at the port of the discard service.
    let nowhere = "http://127.0.0.1:9";
    run_again(
        "transport::proxies_of_the_environment_are_not_used",
        &[
            (PROXIED, "1"),
            ("HTTP_PROXY", nowhere),
            ("http_proxy", nowhere),
            ("ALL_PROXY", nowhere),
            ("NO_PROXY", ""),
            ("no_proxy", ""),
        ],
    );
}
