//! The options of a queue.

use std::time::Duration;

use dispatch_api::{HostServices, Source as _, SourceExt as _, SubscriptionPlan};
use serde_json::{Value, json};
use sink_sqs::SqsQueue;
use sink_testkit::sqs::{Operation, SqsServer};

use crate::consuming::{Consuming, SECOND, make, open, reason, receive};

const URL: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks";

fn problems(options: Value) -> Vec<String> {
    match SqsQueue::from_options(&options, &HostServices::new()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_least_options_have_the_documented_defaults() {
    let options = json!({"queue": URL, "region": "us-east-1"});
    let queue = SqsQueue::from_options(&options, &HostServices::new()).unwrap();
    assert_eq!(queue.name(), "hooks");
    assert!(!queue.is_fifo());
    assert_eq!(queue.wait(), 20 * SECOND);
    assert_eq!(queue.visibility(), None);
}

#[test]
fn every_problem_is_reported_at_once_with_its_key() {
    let found = problems(json!({
        "queue": "no queue at all",
        "regio": "us-east-1",
        "wait_ms": 30_000,
        "visibility_ms": 43_200_001_u64,
        "timeout_ms": 0,
        "access_key_id": "only half",
        "batch_settlement": "yes",
    }));
    let keys: Vec<&str> = found.iter().map(|p| p.split(':').next().unwrap()).collect();
    for key in [
        "queue",
        "regio",
        "wait_ms",
        "visibility_ms",
        "timeout_ms",
        "access_key_id",
        "secret_access_key",
        "batch_settlement",
        "region",
    ] {
        assert!(keys.contains(&key), "{key} in {found:?}");
    }
}

#[test]
fn times_outside_of_what_the_service_takes_are_refused() {
    for (key, value, expected) in [
        ("wait_ms", 20_001_u64, "wait_ms: expected 0 to 20000"),
        ("wait_ms", 60_000, "wait_ms: expected 0 to 20000"),
        (
            "visibility_ms",
            0,
            "visibility_ms: expected 1000 to 43200000",
        ),
        (
            "visibility_ms",
            500,
            "visibility_ms: expected 1000 to 43200000",
        ),
        (
            "visibility_ms",
            43_200_001,
            "visibility_ms: expected 1000 to 43200000",
        ),
    ] {
        let mut options = json!({"queue": URL, "region": "us-east-1"});
        options[key] = value.into();
        assert_eq!(problems(options), [expected], "{key} {value}");
    }
}

#[test]
fn fractions_of_a_second_are_rounded_up() {
    for (millis, seconds) in [(1_000, 1), (1_001, 2), (1_999, 2), (43_200_000, 43_200)] {
        let options = json!({"queue": URL, "region": "us-east-1", "visibility_ms": millis});
        let queue = SqsQueue::from_options(&options, &HostServices::new()).unwrap();
        assert_eq!(queue.visibility(), Some(Duration::from_secs(seconds)));
    }
    for (wait, seconds) in [
        (Duration::ZERO, 0),
        (Duration::from_nanos(1), 1),
        (Duration::from_millis(1_500), 2),
        (Duration::from_secs(20), 20),
    ] {
        let queue = SqsQueue::builder(URL, "us-east-1").wait(wait);
        let queue = queue.build(&HostServices::new()).unwrap();
        assert_eq!(queue.wait(), Duration::from_secs(seconds), "{wait:?}");
    }
}

#[test]
fn a_queue_is_named_by_its_url_or_its_name() {
    for (queue, endpoint, expected) in [
        ("hooks.fifo", None, ""),
        ("hooks", Some("http://127.0.0.1:9324"), ""),
        ("hooks", None, ""),
        ("", None, "queue: missing"),
        ("hooks/more", None, "queue: expected a URL"),
    ] {
        let mut options = json!({"queue": queue, "region": "eu-west-1"});
        if let Some(endpoint) = endpoint {
            options["endpoint"] = endpoint.into();
        }
        let found = problems(options).join("\n");
        assert!(
            found.starts_with(expected) && found.is_empty() == expected.is_empty(),
            "{found}"
        );
    }
    let unknown = problems(json!({"queue": "hooks", "region": "moon-1"}));
    assert!(unknown[0].starts_with("endpoint: missing"), "{unknown:?}");
}

#[test]
fn the_schema_describes_every_option() {
    let schema = SqsQueue::options_schema();
    let properties = schema["properties"].as_object().unwrap();
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    let expected = [
        "access_key_id",
        "assume_role",
        "batch_settlement",
        "endpoint",
        "http",
        "profile",
        "queue",
        "region",
        "secret_access_key",
        "session_token",
        "timeout_ms",
        "visibility_ms",
        "wait_ms",
    ];
    assert_eq!(names, expected);
    let readme = include_str!("../../README.md");
    for (name, property) in properties {
        assert!(property["description"].is_string(), "{name}");
        assert!(readme.contains(&format!("`{name}")), "{name} in the README");
    }
}

#[tokio::test]
async fn secrets_are_in_no_debug_output() {
    let server = SqsServer::builder()
        .credentials([sink_testkit::sqs::Credentials::new("AKID", "canarySecret")
            .with_session_token("canaryToken")])
        .start()
        .await
        .unwrap();
    let url = make(&server, "hooks").await;
    let builder = SqsQueue::builder(&url, "us-east-1")
        .credentials("AKID", "canarySecret")
        .session_token("canaryToken")
        .wait(Duration::ZERO)
        .external_id("canaryExternal");
    let mut shown = format!("{builder:?}");
    let queue = SqsQueue::builder(&url, "us-east-1")
        .credentials("AKID", "canarySecret")
        .session_token("canaryToken")
        .wait(Duration::ZERO)
        .build(&HostServices::new())
        .unwrap();
    shown += &format!("{queue:?}");
    let subscription = queue.open(&SubscriptionPlan::new()).await.unwrap();
    shown += &format!("{subscription:?}");
    let request = json!({"QueueUrl": url, "MessageBody": "canaryPayload"});
    server.call(Operation::SendMessage, request).await.unwrap();
    for delivery in receive(&subscription, 10).await {
        shown += &format!("{delivery:?}");
    }
    shown += &format!("{:?}", queue.max_attempts(3));
    assert!(shown.contains("SqsDelivery") && shown.contains("SqsSubscription"));
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn a_name_is_resolved_when_the_queue_is_opened() {
    let queue = Consuming::fifo().await;
    queue.send_to_group("g", "hook").await;
    let named = SqsQueue::builder("hooks.fifo", "us-east-1")
        .endpoint(queue.server.endpoint())
        .credentials("test", "test")
        .wait(Duration::ZERO);
    let subscription = open(named, &SubscriptionPlan::new()).await.unwrap();
    assert_eq!(receive(&subscription, 10).await.len(), 1);
    assert_eq!(queue.count(Operation::GetQueueUrl), 1);
}

#[tokio::test]
async fn a_missing_queue_is_said_at_the_start_and_is_not_made() {
    let server = SqsServer::start().await.unwrap();
    let by_url = SqsQueue::builder(server.queue_url("hooks"), "us-east-1");
    let by_name = SqsQueue::builder("hooks", "us-east-1").endpoint(server.endpoint());
    for queue in [by_url, by_name] {
        let queue = queue.credentials("test", "test");
        let error = open(queue, &SubscriptionPlan::new()).await.unwrap_err();
        assert_eq!(error.code(), "QueueDoesNotExist");
        assert_eq!(error.class().as_str(), "config");
        assert!(error.text().contains("correct queue"), "{error}");
    }
    assert!(server.messages("hooks").is_err());
}

#[tokio::test]
async fn without_a_visibility_the_queue_s_own_is_read_once_and_asked_for() {
    let server = SqsServer::start().await.unwrap();
    let own = [("VisibilityTimeout", "77")];
    let url = server.create_queue("hooks", own).await.unwrap();
    let queue = || {
        SqsQueue::builder(&url, "us-east-1")
            .credentials("test", "test")
            .wait(Duration::ZERO)
    };
    let subscription = open(queue(), &SubscriptionPlan::new()).await.unwrap();
    for _ in 0..2 {
        receive(&subscription, 1).await;
    }
    assert_eq!(server.requests_of(Operation::GetQueueAttributes).len(), 1);
    for request in server.requests_of(Operation::ReceiveMessage) {
        assert_eq!(request.json()["VisibilityTimeout"], 77);
    }
    let request = json!({"QueueUrl": url, "Attributes": {"VisibilityTimeout": "0"}});
    server
        .call(Operation::SetQueueAttributes, request)
        .await
        .unwrap();
    let error = open(queue(), &SubscriptionPlan::new()).await.unwrap_err();
    assert_eq!(error.code(), "NoVisibility");
    assert!(reason(&error).to_string().contains("set visibility_ms"));
}

/// A queue takes no sink for copies: were it a source that republishes, this could mean two
/// traits and would not compile. What the compiler says to `out_retry` is a test of the API.
const _: fn() = {
    trait Republishes<T> {
        fn check() {}
    }
    impl<S: ?Sized> Republishes<()> for S {}
    impl<S: ?Sized + dispatch_api::RepublishesRetries> Republishes<bool> for S {}
    <SqsQueue as Republishes<_>>::check
};
