//! Handlers that fail, receives that fail, observers that panic.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Consumer, ErrorClass, Observer, Received, SettleError, Settlement, SourceError, Stop,
};
use tokio::time::sleep;

use crate::support::{SECOND, Scripted, Step, run_until_empty, settings};

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_call_or_in_its_future_is_a_retry_and_harms_nobody() {
    let ids = ["call", "future", "fine"].map(|id| (id, None)).to_vec();
    let subscription = Scripted::unordered([Step::Brings(ids)]);
    let report = run_until_empty(&subscription, settings(3), |received: Received| {
        assert!(received.id() != "call", "a panic in the call");
        async move {
            assert!(received.id() != "future", "a panic in the future");
            Settlement::Ack
        }
    })
    .await;
    let mut retried = subscription.settled(Settlement::Retry);
    retried.sort();
    assert_eq!(retried, ["call", "future"]);
    assert_eq!((report.retried, report.acked), (2, 1));
    let told = subscription.record().told.clone();
    assert!(told.contains(&"call panicked".to_owned()), "{told:?}");
    assert!(told.contains(&"future panicked".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_dropped_costs_one_delivery_and_no_room() {
    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a panic in the end of a handler");
        }
    }
    let steps = ["fragile", "a", "b"].map(|id| Step::Brings(vec![(id, None)]));
    let subscription = Scripted::unordered(steps);
    let mut settings = settings(1);
    settings.handler_timeout = SECOND;
    let report = run_until_empty(&subscription, settings, |received: Received| async move {
        if received.id() == "fragile" {
            let _fragile = Fragile;
            std::future::pending::<()>().await;
        }
        Settlement::Ack
    })
    .await;
    assert_eq!((report.received, report.acked, report.unsettled), (3, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_is_dropped_and_its_delivery_is_a_retry() {
    let subscription = Scripted::unordered([Step::Brings(vec![("slow", None)])]);
    let mut settings = settings(1);
    settings.handler_timeout = 3 * SECOND;
    let report = run_until_empty(&subscription, settings, |_: Received| async {
        sleep(100 * SECOND).await;
        Settlement::Ack
    })
    .await;
    assert_eq!((report.retried, report.acked), (1, 0));
    let record = subscription.record();
    assert_eq!(record.told, ["slow timed out", "slow retry ok"]);
    assert_eq!(record.receives[1].0 - record.receives[0].0, 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn receives_that_fail_are_repeated_after_a_pause_that_grows_up_to_its_bound() {
    let cases = [
        (
            ErrorClass::Transient,
            vec![200, 400, 800, 1_600, 3_200, 5_000, 5_000],
        ),
        (
            ErrorClass::Permanent,
            vec![1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000],
        ),
        (
            ErrorClass::Config,
            vec![1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000],
        ),
        // A pause that the broker asks for counts, and beyond it one's own grows.
        (
            ErrorClass::RetryAfter(Duration::from_millis(1_500)),
            vec![1_500, 1_500, 1_500, 1_600, 3_200, 5_000, 5_000],
        ),
    ];
    for (class, pauses) in cases {
        let failures = (0..7).map(|_| Step::Fails(SourceError::new(class, "Broken", "")));
        let subscription = Scripted::unordered(failures.chain([Step::Brings(vec![("a", None)])]));
        let mut settings = settings(1);
        settings.max_pause = 5 * SECOND;
        let report = run_until_empty(&subscription, settings, |_: Received| async {
            Settlement::Ack
        })
        .await;
        assert_eq!((report.failed_receives, report.acked), (7, 1), "{class:?}");
        let record = subscription.record();
        let apart: Vec<u128> = record
            .receives
            .windows(2)
            .take(7)
            .map(|pair| (pair[1].0 - pair[0].0).as_millis())
            .collect();
        assert_eq!(apart, pauses, "{class:?}");
        let mut told: Vec<String> = (1..=7)
            .zip(pauses)
            .map(|(in_a_row, pause)| format!("Broken {in_a_row} {pause}"))
            .collect();
        told.push("recovered after 7".to_owned());
        told.push("a ack ok".to_owned());
        assert_eq!(record.told, told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_succeeds_starts_the_pauses_anew() {
    let fails = || Step::Fails(SourceError::transient("Broken", ""));
    let subscription = Scripted::unordered([
        fails(),
        fails(),
        Step::Brings(vec![("a", None)]),
        fails(),
        Step::Brings(vec![("b", None)]),
    ]);
    run_until_empty(&subscription, settings(1), |_: Received| async {
        Settlement::Ack
    })
    .await;
    let told = subscription.record().told.clone();
    assert!(told.contains(&"Broken 1 200".to_owned()));
    assert!(told.contains(&"Broken 2 400".to_owned()));
    assert_eq!(
        told.iter().filter(|line| *line == "Broken 1 200").count(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn running_handlers_are_settled_while_receives_fail() {
    let subscription = Scripted::unordered([
        Step::Brings(vec![("a", None)]),
        Step::Fails(SourceError::config("Broken", "")),
        Step::Fails(SourceError::config("Broken", "")),
    ]);
    let report = run_until_empty(&subscription, settings(2), |_: Received| async {
        sleep(Duration::from_millis(100)).await;
        Settlement::Ack
    })
    .await;
    assert_eq!((report.acked, report.failed_receives), (1, 2));
    assert_eq!(
        subscription.record().told[1],
        "a ack ok",
        "before the second failure"
    );
}

/// Panics whatever it is told.
struct Panicking;

impl Observer for Panicking {
    fn settled(&self, _: &Received, _: Settlement, _: Result<(), &SettleError>) {
        unreachable!("an observer that panics");
    }

    fn handler_panicked(&self, _: &Received) {
        unreachable!("an observer that panics");
    }

    fn handler_timed_out(&self, _: &Received) {
        unreachable!("an observer that panics");
    }

    fn receive_failed(&self, _: &SourceError, _: u64, _: Duration) {
        unreachable!("an observer that panics");
    }

    fn receive_recovered(&self, _: u64) {
        unreachable!("an observer that panics");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_changes_nothing() {
    let ids = ["fine", "panics", "slow"].map(|id| (id, None)).to_vec();
    let subscription = Scripted::unordered([
        Step::Fails(SourceError::transient("Broken", "")),
        Step::Brings(ids),
    ]);
    let mut settings = settings(3);
    settings.until_empty = true;
    settings.handler_timeout = SECOND;
    let consumer = Consumer::new(settings).with_observer(Arc::new(Panicking));
    let handler = |received: Received| async move {
        assert!(received.id() != "panics");
        if received.id() == "slow" {
            sleep(100 * SECOND).await;
        }
        Settlement::Ack
    };
    let report = consumer
        .run(Arc::new(subscription.clone()), handler, Stop::new())
        .await;
    assert_eq!((report.received, report.acked, report.retried), (3, 1, 2));
    assert!(report.is_complete());
}
