//! Opening: what is found, created, and refused.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull, push};
use dispatch_api::{HostServices, Source as _, SourceError, SourceExt as _, SubscriptionPlan};
use serde_json::json;
use sink_nats::NatsSource;

use super::{ACK_WAIT, at_most, next, publish, source};
use crate::support::server::{NatsServer, server_or_skip};

async fn refused(source: &NatsSource) -> SourceError {
    source.open(&SubscriptionPlan::new()).await.unwrap_err()
}

fn parts(error: &SourceError) -> (&'static str, &str) {
    (error.class().as_str(), error.code())
}

async fn names_of_streams(server: &NatsServer) -> Vec<String> {
    use futures_util::TryStreamExt as _;
    let jetstream = server.jetstream().await;
    jetstream.stream_names().try_collect().await.unwrap()
}

#[tokio::test]
async fn a_missing_stream_is_a_config_error_and_nothing_is_created() {
    let server = server_or_skip!();
    let error = refused(&source(&server, |builder| builder)).await;
    assert_eq!(parts(&error), ("config", "StreamNotFound"));
    assert!(error.text().contains("`HOOKS`"), "{error}");
    assert!(names_of_streams(&server).await.is_empty());
}

#[tokio::test]
async fn a_missing_consumer_is_created_as_the_options_say_and_kept() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let options = json!({
        "servers": [server.address()], "stream": "HOOKS", "durable": "worker",
        "filter_subject": "hooks.acme", "ack_wait_ms": 1500, "max_ack_pending": 7,
    });
    let source = NatsSource::from_options(&options, &HostServices::new()).unwrap();
    assert_eq!((source.stream(), source.durable()), ("HOOKS", "worker"));
    for _ in 0..2 {
        source.open(&SubscriptionPlan::new()).await.unwrap();
    }
    let consumer: PullConsumer = stream.get_consumer("worker").await.unwrap();
    let config = &consumer.cached_info().config;
    assert_eq!(config.durable_name.as_deref(), Some("worker"));
    assert_eq!(config.ack_policy, AckPolicy::Explicit);
    assert_eq!(config.ack_wait, Duration::from_millis(1_500));
    assert_eq!(config.max_ack_pending, 7);
    assert_eq!(config.max_deliver, -1);
    assert_eq!(config.filter_subject, "hooks.acme");
}

#[tokio::test]
async fn a_consumer_that_is_there_is_used_as_it_is() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let config = pull::Config {
        durable_name: Some("worker".to_owned()),
        ack_wait: Duration::from_millis(700),
        max_batch: 2,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
    for body in ["a", "b", "c"] {
        publish(&server, body).await;
    }
    let builder = NatsSource::builder([server.address()], "HOOKS", "worker");
    let source = builder.build(&HostServices::new()).unwrap();
    let subscription = source.open(&SubscriptionPlan::new()).await.unwrap();
    let held = subscription.receive(at_most(10)).await.unwrap();
    assert_eq!(held.len(), 2);
    let until = held[0].received().lease().until().unwrap();
    assert!(until <= tokio::time::Instant::now() + Duration::from_millis(700));
    drop(held);
    next(&subscription).await.ack().await.unwrap();
}

#[tokio::test]
async fn a_consumer_that_differs_from_the_options_is_refused_and_unchanged() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let opened = source(&server, |builder| builder);
    opened.open(&SubscriptionPlan::new()).await.unwrap();
    for (differs, word) in [
        (
            source(&server, |builder| builder.ack_wait(ACK_WAIT * 2)),
            "ack_wait_ms",
        ),
        (
            source(&server, |builder| builder.max_ack_pending(3)),
            "max_ack_pending",
        ),
        (
            source(&server, |builder| builder.filter_subject("hooks.acme")),
            "filter_subject",
        ),
    ] {
        let error = refused(&differs).await;
        assert_eq!(parts(&error), ("config", "ConsumerDiffers"), "{word}");
        assert!(error.text().contains(word), "{error}");
    }
    let consumer: PullConsumer = stream.get_consumer("worker").await.unwrap();
    assert_eq!(consumer.cached_info().config.ack_wait, ACK_WAIT);
}

#[tokio::test]
async fn a_consumer_that_cannot_keep_the_contract_is_refused() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let durable = |name: &str| pull::Config {
        durable_name: Some(name.to_owned()),
        ..pull::Config::default()
    };
    let mut stops = durable("stops");
    stops.max_deliver = 3;
    stream.create_consumer(stops).await.unwrap();
    let mut all = durable("all");
    all.ack_policy = AckPolicy::All;
    stream.create_consumer(all).await.unwrap();
    let pushed = push::Config {
        durable_name: Some("pushed".to_owned()),
        deliver_subject: "there".to_owned(),
        ..push::Config::default()
    };
    stream.create_consumer(pushed).await.unwrap();
    for (name, word) in [
        ("stops", "max_deliver"),
        ("all", "ack_policy"),
        ("pushed", "push"),
    ] {
        let builder = NatsSource::builder([server.address()], "HOOKS", name);
        let error = refused(&builder.build(&HostServices::new()).unwrap()).await;
        assert_eq!(parts(&error), ("config", "ConsumerDiffers"), "{name}");
        assert!(error.text().contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_filter_outside_of_the_stream_is_a_config_error() {
    let server = server_or_skip!();
    server.create_stream().await;
    let outside = source(&server, |builder| builder.filter_subject("other.>"));
    let error = refused(&outside).await;
    assert_eq!(parts(&error), ("config", "ConsumerRefused"), "{error}");
}

#[tokio::test]
async fn half_a_policy_is_refused_before_anything_is_asked() {
    let nowhere = || {
        let builder = NatsSource::builder(["127.0.0.1:1"], "HOOKS", "worker");
        builder.build(&HostServices::new()).unwrap()
    };
    for (registration, code) in [
        (nowhere().max_attempts(3), "IncompleteRedrive"),
        (nowhere().dead_letter("dead"), "IncompleteRedrive"),
        (
            nowhere().max_attempts(0).dead_letter("dead"),
            "MaxAttemptsOutOfRange",
        ),
        (
            nowhere().max_attempts(3).dead_letter("dead.*"),
            "InvalidDeadLetter",
        ),
    ] {
        let error = registration.open().await.unwrap_err();
        assert_eq!(parts(&error), ("config", code));
    }
    let error = refused(&nowhere()).await;
    assert_eq!(parts(&error), ("transient", "ConnectFailed"));
}

#[test]
fn neither_a_source_nor_its_builder_shows_a_credential() {
    let builder = NatsSource::builder(["127.0.0.1"], "HOOKS", "worker").user("u", "canary");
    assert!(!format!("{builder:?}").contains("canary"));
    let source = builder.build(&HostServices::new()).unwrap();
    assert!(!format!("{source:?}").contains("canary"));
    let schema = NatsSource::options_schema();
    assert!(schema["properties"]["durable"].is_object());
}
