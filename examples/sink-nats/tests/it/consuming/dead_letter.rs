//! `max_attempts` and `dead_letter`.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream;
use dispatch_api::{SettleError, SourceError, SourceExt as _, Subscription};

use super::{at_most, count, left, next, publish, source};
use crate::support::server::{NatsServer, server_or_skip};

async fn create_dead_stream(server: &NatsServer) -> stream::Stream {
    let config = stream::Config {
        name: "DEAD".to_owned(),
        subjects: vec!["dead.>".to_owned()],
        ..stream::Config::default()
    };
    server
        .jetstream()
        .await
        .create_stream(config)
        .await
        .unwrap()
}

async fn open(
    server: &NatsServer,
    max_attempts: u32,
    dead_letter: &str,
) -> Result<Arc<dyn Subscription>, SourceError> {
    let source = source(server, |builder| builder.wait(Duration::from_millis(300)));
    let registration = source.max_attempts(max_attempts).dead_letter(dead_letter);
    registration.open().await
}

#[tokio::test]
async fn a_message_that_comes_back_too_often_is_moved_with_its_headers_and_body() {
    let server = server_or_skip!();
    server.create_stream().await;
    let mut dead = create_dead_stream(&server).await;
    let mut headers = HeaderMap::new();
    headers.insert("X-Tag", "a");
    headers.insert("Nats-Expected-Stream", "HOOKS");
    let jetstream = server.jetstream().await;
    let stored = jetstream.publish_with_headers("hooks.acme", headers, "hello".into());
    stored.await.unwrap().await.unwrap();
    let subscription = open(&server, 2, "dead.hooks").await.unwrap();
    for expected in [1, 2] {
        let delivery = next(&subscription).await;
        assert_eq!(count(&*delivery), Some(expected));
        delivery.retry().await.unwrap();
    }
    assert_eq!(dead.info().await.unwrap().state.messages, 0);
    assert!(subscription.receive(at_most(5)).await.unwrap().is_empty());
    let moved = dead.get_raw_message(1).await.unwrap();
    assert_eq!(moved.subject.as_str(), "dead.hooks");
    assert_eq!(&moved.payload[..], b"hello");
    assert_eq!(moved.headers.get("X-Tag").unwrap().as_str(), "a");
    assert!(moved.headers.get("Nats-Expected-Stream").is_none());
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_drop_moves_a_message_on_its_last_attempt_and_only_then() {
    let server = server_or_skip!();
    server.create_stream().await;
    let mut dead = create_dead_stream(&server).await;
    publish(&server, "a").await;
    publish(&server, "b").await;
    let subscription = open(&server, 2, "dead.hooks").await.unwrap();
    next(&subscription).await.drop_message().await.unwrap();
    assert_eq!(dead.info().await.unwrap().state.messages, 0);
    next(&subscription).await.retry().await.unwrap();
    next(&subscription).await.drop_message().await.unwrap();
    let moved = dead.get_raw_message(1).await.unwrap();
    assert_eq!(&moved.payload[..], b"b");
    assert_eq!(dead.info().await.unwrap().state.messages, 1);
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_message_that_cannot_be_moved_stays() {
    let server = server_or_skip!();
    server.create_stream().await;
    create_dead_stream(&server).await;
    publish(&server, "a").await;
    let subscription = open(&server, 1, "dead.hooks").await.unwrap();
    let jetstream = server.jetstream().await;
    jetstream.delete_stream("DEAD").await.unwrap();
    let error = next(&subscription).await.drop_message().await.unwrap_err();
    let SettleError::Refused(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.code(), "NoStream");
    assert_eq!(left(&server).await, (0, 1));
    // It comes back, and is moved once that can be done.
    let mut dead = create_dead_stream(&server).await;
    crate::support::soon(async {
        while dead.info().await.unwrap().state.messages == 0 {
            assert!(subscription.receive(at_most(5)).await.unwrap().is_empty());
        }
    })
    .await;
    assert_eq!(left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_dead_letter_subject_without_a_stream_or_of_the_consumer_itself_is_a_config_error() {
    let server = server_or_skip!();
    server.create_stream().await;
    for (subject, code) in [
        ("dead.hooks", "DeadLetterMissing"),
        ("hooks.dead", "DeadLetterIsSource"),
    ] {
        let error = open(&server, 2, subject).await.unwrap_err();
        assert_eq!((error.class().as_str(), error.code()), ("config", code));
        assert!(error.text().contains(subject), "{error}");
    }
}

#[tokio::test]
async fn a_dead_letter_subject_of_the_same_stream_is_taken_where_the_filter_leaves_it_out() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let mut headers = HeaderMap::new();
    // The stream would take a copy with the same id for a repeat, and not store it.
    headers.insert("Nats-Msg-Id", "m-1");
    let jetstream = server.jetstream().await;
    let stored = jetstream.publish_with_headers("hooks.acme", headers, "hello".into());
    stored.await.unwrap().await.unwrap();
    let source = source(&server, |builder| builder.filter_subject("hooks.acme"));
    let registration = source.max_attempts(1).dead_letter("hooks.dead");
    let subscription = registration.open().await.unwrap();
    next(&subscription).await.drop_message().await.unwrap();
    let moved = stream.get_raw_message(2).await.unwrap();
    assert_eq!(moved.subject.as_str(), "hooks.dead");
    assert_eq!(&moved.payload[..], b"hello");
}
