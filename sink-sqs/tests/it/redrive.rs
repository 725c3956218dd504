//! `max_attempts` and `dead_letter`: written when the subscription opens, or refused.

use dispatch_api::{ErrorClass, SourceError, SubscriptionPlan};
use serde_json::{Value, json};
use sink_sqs::SqsError;
use sink_testkit::sqs::{Answer, ErrorCode, Fault, Operation};

use crate::consuming::{Consuming, make, open, reason};

const SET: Operation = Operation::SetQueueAttributes;

fn plan(max_attempts: Option<u32>, dead_letter: Option<&str>) -> SubscriptionPlan {
    let mut plan = SubscriptionPlan::new();
    plan.max_attempts = max_attempts;
    plan.dead_letter = dead_letter.map(str::to_owned);
    plan
}

async fn refused(queue: &Consuming, plan: SubscriptionPlan) -> SourceError {
    let error = open(queue.queue(), &plan).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Config);
    assert_eq!(queue.count(SET), 0, "nothing is written");
    assert_eq!(queue.count(Operation::CreateQueue), 0, "nothing is made");
    error
}

async fn policy(queue: &Consuming) -> Value {
    let request = json!({"QueueUrl": queue.url, "AttributeNames": ["RedrivePolicy"]});
    let answer = queue.server.call(Operation::GetQueueAttributes, request);
    let answer = answer.await.unwrap();
    let text = answer["Attributes"]["RedrivePolicy"].as_str();
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

async fn write_policy(queue: &Consuming, policy: &str) {
    let request = json!({"QueueUrl": queue.url, "Attributes": {"RedrivePolicy": policy}});
    queue.server.call(SET, request).await.unwrap();
}

#[tokio::test]
async fn one_half_alone_is_refused_before_anything_is_asked() {
    let queue = Consuming::standard().await;
    for (plan, expected) in [
        (plan(Some(5), None), "dead_letter"),
        (plan(None, Some("dead")), "max_attempts"),
    ] {
        let error = refused(&queue, plan).await;
        assert_eq!(error.code(), "IncompleteRedrive");
        let SqsError::IncompleteRedrive { queue, missing } = reason(&error) else {
            unreachable!("{error:?}");
        };
        assert_eq!((queue.as_str(), *missing), ("hooks", expected));
    }
    assert_eq!(queue.server.connections(), 0);
}

#[tokio::test]
async fn the_policy_is_written_when_the_subscription_opens_however_the_queue_is_named() {
    for fifo in [false, true] {
        let queue = match fifo {
            true => Consuming::fifo().await,
            false => Consuming::standard().await,
        };
        let dead = queue.dead_letter_name();
        let url = make(&queue.server, dead).await;
        let arn = queue.server.queue_arn(dead);
        for (written, name) in (1..).zip([dead, &url, &arn]) {
            write_policy(&queue, "").await;
            let plan = plan(Some(5), Some(name));
            open(queue.queue(), &plan).await.unwrap();
            let expected = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 5});
            assert_eq!(policy(&queue).await, expected);
            assert_eq!(queue.count(SET), written, "{name}");
        }
        let asked = queue.server.requests_of(SET)[0].json();
        let attributes = asked["Attributes"].as_object().unwrap();
        assert_eq!(attributes.len(), 1, "no other attribute is touched");
    }
}

#[tokio::test]
async fn a_policy_that_means_the_same_is_not_written_again() {
    let queue = Consuming::standard().await;
    make(&queue.server, "dead").await;
    make(&queue.server, "other").await;
    let arn = queue.server.queue_arn("dead");
    let plan = plan(Some(5), Some("dead"));
    for same in [
        format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":5}}"#),
        format!(r#"{{"maxReceiveCount":"5","deadLetterTargetArn":"{arn}"}}"#),
    ] {
        write_policy(&queue, &same).await;
        open(queue.queue(), &plan).await.unwrap();
        assert_eq!(queue.count(SET), 0, "{same}");
    }
    let other = queue.server.queue_arn("other");
    for (written, different) in (1..).zip([
        format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":6}}"#),
        format!(r#"{{"deadLetterTargetArn":"{other}","maxReceiveCount":5}}"#),
    ]) {
        write_policy(&queue, &different).await;
        open(queue.queue(), &plan).await.unwrap();
        assert_eq!(queue.count(SET), written, "{different}");
    }
}

#[tokio::test]
async fn without_a_plan_the_queue_s_own_policy_stays() {
    let queue = Consuming::standard().await;
    make(&queue.server, "dead").await;
    let arn = queue.server.queue_arn("dead");
    let own = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":7}}"#);
    write_policy(&queue, &own).await;
    queue.open().await;
    assert_eq!(queue.count(SET), 0);
    assert_eq!(policy(&queue).await["maxReceiveCount"], 7);
}

#[tokio::test]
async fn a_dead_letter_queue_that_does_not_exist_is_refused_however_it_is_named() {
    let queue = Consuming::standard().await;
    let names = [
        "missing".to_owned(),
        queue.server.queue_url("missing"),
        queue.server.queue_arn("missing"),
    ];
    for name in names {
        let error = refused(&queue, plan(Some(5), Some(&name))).await;
        assert_eq!(error.code(), "DeadLetterMissing", "{name}");
        assert!(reason(&error).to_string().contains("missing"));
    }
}

#[tokio::test]
async fn a_dead_letter_queue_of_the_wrong_type_is_refused() {
    for (queue, dead, expected) in [
        (Consuming::standard().await, "dead.fifo", "a standard"),
        (Consuming::fifo().await, "dead", "a FIFO"),
    ] {
        make(&queue.server, dead).await;
        let error = refused(&queue, plan(Some(5), Some(dead))).await;
        assert_eq!(error.code(), "DeadLetterType");
        let text = reason(&error).to_string();
        assert!(
            text.contains(&format!("expected {expected} queue")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_queue_is_not_its_own_dead_letter_queue_however_it_is_named() {
    let queue = Consuming::standard().await;
    let names = [
        "hooks".to_owned(),
        queue.url.clone(),
        queue.server.queue_arn("hooks"),
    ];
    for name in names {
        let error = refused(&queue, plan(Some(5), Some(&name))).await;
        assert_eq!(error.code(), "DeadLetterIsSource", "{name}");
    }
}

#[tokio::test]
async fn a_dead_letter_queue_of_another_account_or_region_is_refused() {
    let queue = Consuming::standard().await;
    for arn in [
        "arn:aws:sqs:eu-west-1:000000000000:dead",
        "arn:aws:sqs:us-east-1:999999999999:dead",
    ] {
        let error = refused(&queue, plan(Some(5), Some(arn))).await;
        assert_eq!(error.code(), "DeadLetterElsewhere", "{arn}");
    }
}

#[tokio::test]
async fn a_count_outside_of_one_to_a_thousand_is_refused() {
    let queue = Consuming::standard().await;
    make(&queue.server, "dead").await;
    for count in [0, 1_001, u32::MAX] {
        let error = refused(&queue, plan(Some(count), Some("dead"))).await;
        assert_eq!(error.code(), "MaxAttemptsOutOfRange");
        assert!(reason(&error).to_string().contains("expected 1 to 1000"));
    }
    for count in [1, 1_000] {
        let plan = plan(Some(count), Some("dead"));
        open(queue.queue(), &plan).await.unwrap();
    }
}

#[tokio::test]
async fn what_names_no_queue_is_refused() {
    let queue = Consuming::standard().await;
    for name in ["", "a b", "arn:aws:sns:us-east-1:000000000000:topic"] {
        let error = refused(&queue, plan(Some(5), Some(name))).await;
        assert_eq!(error.code(), "InvalidDeadLetter", "{name}");
    }
}

#[tokio::test]
async fn a_sink_for_copies_is_refused_also_where_no_type_forbids_it() {
    let queue = Consuming::standard().await;
    let mut plan = SubscriptionPlan::new();
    plan.out_retry = Some(std::sync::Arc::new(crate::bench::sink(
        crate::bench::config(&queue.url),
    )));
    let error = refused(&queue, plan).await;
    assert_eq!(error.code(), "OutRetry");
}

#[tokio::test]
async fn a_policy_that_may_not_be_written_keeps_the_subscription_from_opening() {
    let queue = Consuming::standard().await;
    make(&queue.server, "dead").await;
    let denied = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    queue.server.fault(SET, denied);
    let plan = plan(Some(5), Some("dead"));
    let error = open(queue.queue(), &plan).await.unwrap_err();
    assert_eq!(error.code(), "AccessDenied");
    assert_eq!(error.class(), ErrorClass::Config);
}
