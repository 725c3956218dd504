//! The honest source on its broker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::NonZeroUsize;
use std::time::Duration;

use dispatch_api::{Delivery, ErrorClass, SettleError, Subscription, SubscriptionPlan};
use tokio::time::{Instant, sleep};

use super::ReferenceSourceAdapter;
use crate::conformance::Destination;
use crate::conformance::source::{
    Operation, RawMessage, SourceAdapter as _, SourceFault, SourceFixture, SourceOptions,
};

type Open = (
    Box<dyn SourceFixture>,
    Destination,
    std::sync::Arc<dyn Subscription>,
);

async fn open(mode: &str, plan: &SubscriptionPlan) -> Open {
    let profile = ReferenceSourceAdapter::profile(mode);
    let fixture = ReferenceSourceAdapter::honest()
        .fixture(&profile)
        .await
        .unwrap();
    let place = fixture.create("work").await.unwrap();
    fixture.create("dead").await.unwrap();
    let mut plan = plan.clone();
    plan.out_retry = fixture.sink(&place);
    let options = SourceOptions::new(&profile);
    let source = fixture.source(&place, &options).unwrap();
    let subscription = source.open(&plan).await.unwrap();
    (fixture, place, subscription)
}

async fn put(fixture: &dyn SourceFixture, place: &Destination, count: usize) {
    let messages: Vec<RawMessage> = (0..count)
        .map(|index| RawMessage::new(format!("body {index}")).with_attribute("index", "x"))
        .collect();
    fixture.put(place, &messages).await.unwrap();
}

async fn receive(subscription: &dyn Subscription) -> Vec<Box<dyn Delivery>> {
    let ten = NonZeroUsize::new(10).unwrap();
    subscription.receive(ten).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_extended_many_in_one_request_until_twelve_hours_are_over() {
    let (fixture, place, subscription) = open("ordered-batched", &SubscriptionPlan::new()).await;
    put(&*fixture, &place, 3).await;
    let held = receive(&*subscription).await;
    let begun = Instant::now();
    sleep(Duration::from_secs(100)).await;
    let faults = fixture.faults().unwrap();
    assert_eq!(faults.calls(&place, Operation::Extend), 6);
    assert_eq!(fixture.in_hand(&place, "workers").await.unwrap(), 3);
    held[0].received().lease().lost().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(12 * 3_600));
    for delivery in held {
        let settled = delivery.ack().await;
        assert!(matches!(settled, Err(SettleError::Lost(_))), "{settled:?}");
    }
    assert_eq!(fixture.unsettled(&place, "workers").await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn gathered_settlements_share_a_request_and_each_has_its_own_answer() {
    let (fixture, place, subscription) = open("ordered-batched", &SubscriptionPlan::new()).await;
    put(&*fixture, &place, 5).await;
    let faults = fixture.faults().unwrap();
    let fault = SourceFault::Entry("body 2".to_owned());
    faults.add(&place, Operation::Ack, fault, Some(1));
    let held = receive(&*subscription).await;
    let settled = futures_util::future::join_all(held.into_iter().map(|held| held.ack())).await;
    let failed: Vec<bool> = settled.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, true, false, false]);
    assert_eq!(faults.calls(&place, Operation::Ack), 1);
    assert_eq!(faults.played(), 1);
    assert_eq!(fixture.unsettled(&place, "workers").await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_by_the_client_s_timeout_and_the_message_comes_back() {
    let (fixture, place, subscription) = open("plain-single", &SubscriptionPlan::new()).await;
    put(&*fixture, &place, 1).await;
    let faults = fixture.faults().unwrap();
    faults.add(&place, Operation::Ack, SourceFault::Silence, Some(1));
    let held = receive(&*subscription).await.remove(0);
    let begun = Instant::now();
    let settled = held.ack().await;
    assert!(
        matches!(settled, Err(SettleError::Unknown(_))),
        "{settled:?}"
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    sleep(Duration::from_secs(25)).await;
    let again = receive(&*subscription).await.remove(0);
    assert_eq!(again.received().redelivery_count(), Some(2));
    again.ack().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drop_at_the_cap_goes_to_the_dead_letter_place() {
    let mut plan = SubscriptionPlan::new();
    plan.max_attempts = Some(1);
    plan.dead_letter = Some("dead".to_owned());
    let (fixture, place, subscription) = open("plain-single", &plan).await;
    put(&*fixture, &place, 1).await;
    let held = receive(&*subscription).await.remove(0);
    held.drop_message().await.unwrap();
    let dead = fixture.stored(&Destination::new("dead")).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].attribute("index"), Some("x"));
}

#[tokio::test(start_paused = true)]
async fn a_log_retries_by_a_copy_that_keeps_body_attributes_and_count() {
    let (fixture, place, subscription) = open("log", &SubscriptionPlan::new()).await;
    put(&*fixture, &place, 1).await;
    let held = receive(&*subscription).await.remove(0);
    let begun = Instant::now();
    held.retry_after(Duration::from_millis(2_500))
        .await
        .unwrap();
    let mut again = Vec::new();
    while again.is_empty() {
        again = receive(&*subscription).await;
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    let again = again.remove(0);
    let received = again.received();
    assert_eq!(received.body(), "body 0");
    assert_eq!(received.attribute("index"), Some("x"));
    assert_eq!(received.redelivery_count(), Some(2));
    again.ack().await.unwrap();
    assert_eq!(fixture.unsettled(&place, "workers").await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_answer_held_of_a_log_comes_with_the_next_receive() {
    let (fixture, place, subscription) = open("log", &SubscriptionPlan::new()).await;
    put(&*fixture, &place, 2).await;
    let faults = fixture.faults().unwrap();
    faults.add(&place, Operation::Receive, SourceFault::LoseReply, Some(1));
    let lost = subscription.receive(NonZeroUsize::MIN).await.unwrap_err();
    assert_eq!(lost.class(), ErrorClass::Transient);
    assert_eq!(receive(&*subscription).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_be_is_refused_when_it_is_opened() {
    let profile = ReferenceSourceAdapter::profile("plain-single");
    let fixture = ReferenceSourceAdapter::honest()
        .fixture(&profile)
        .await
        .unwrap();
    let place = fixture.create("work").await.unwrap();
    fixture.create("dead").await.unwrap();
    let source = fixture
        .source(&place, &SourceOptions::new(&profile))
        .unwrap();
    for (max_attempts, dead_letter) in [
        (Some(3), None),
        (None, Some("dead")),
        (Some(0), Some("dead")),
        (Some(1_001), Some("dead")),
        (Some(3), Some("work")),
        (Some(3), Some("nobody-made-this")),
    ] {
        let mut plan = SubscriptionPlan::new();
        plan.max_attempts = max_attempts;
        plan.dead_letter = dead_letter.map(str::to_owned);
        let error = source.open(&plan).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Config, "{plan:?}: {error}");
    }
    let forbidden = fixture.forbidden(&place).unwrap();
    let error = forbidden.open(&SubscriptionPlan::new()).await.unwrap_err();
    assert_eq!(
        (error.class(), error.code()),
        (ErrorClass::Config, "AccessDenied")
    );
    for hold in [Duration::ZERO, Duration::from_secs(12 * 3_600 + 1)] {
        let options = SourceOptions::new(&profile).with_hold(hold);
        let problem = fixture.source(&place, &options).unwrap_err();
        assert!(problem.contains("12 hours"), "{problem}");
    }
}
