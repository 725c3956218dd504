//! Stopping: in order, bounded, with an account of everything.

use std::sync::Arc;

use dispatch_api::{Consumer, ConsumerReport, Received, Settlement, Stop};
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, Scripted, Step, settings, start};

const A: Option<&str> = Some("A");

#[tokio::test(start_paused = true)]
async fn a_stop_gives_back_at_once_what_was_not_started_and_lets_handlers_finish() {
    let subscription = Scripted::ordered([Step::Brings(vec![
        ("a1", A),
        ("a2", A),
        ("a3", A),
        ("b", None),
    ])]);
    let log = Log::default();
    let (stop, running) = start(&subscription, settings(4), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let _running = log.begin(&received);
                sleep(10 * SECOND).await;
                Settlement::Ack
            }
        }
    });
    sleep(SECOND).await;
    let asked = Instant::now();
    stop.by(asked + 30 * SECOND);
    sleep(SECOND).await;
    let mut back = subscription.settled(Settlement::Retry);
    back.sort();
    assert_eq!(back, ["a2", "a3"], "they did not wait for anybody");
    let report = running.await.unwrap();
    assert_eq!(log.get().begun, ["a1", "b"]);
    assert_eq!(
        (report.acked, report.given_back, report.abandoned),
        (2, 2, 0)
    );
    assert!(report.is_complete());
    // The receive that was open was let finish.
    assert_eq!(asked.elapsed(), 19 * SECOND);
    assert_eq!(subscription.record().closed, 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_open_receive_brings_after_the_stop_goes_back_unhandled() {
    let subscription =
        Scripted::ordered([Step::BringsAfter(10 * SECOND, vec![("a", A), ("b", None)])]);
    let log = Log::default();
    let (stop, running) = start(&subscription, settings(4), {
        let log = log.clone();
        move |received: Received| {
            let _running = log.begin(&received);
            async { Settlement::Ack }
        }
    });
    sleep(SECOND).await;
    stop.by(Instant::now() + 30 * SECOND);
    let report = running.await.unwrap();
    assert!(log.get().begun.is_empty());
    assert_eq!((report.received, report.given_back), (2, 2));
    assert_eq!(
        subscription.record().receives.len(),
        1,
        "nothing more was received"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_still_runs_at_the_deadline_is_dropped_and_its_delivery_goes_back() {
    let subscription = Scripted::unordered([Step::Brings(vec![("fast", None), ("slow", None)])]);
    let log = Log::default();
    let (stop, running) = start(&subscription, settings(2), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let _running = log.begin(&received);
                match received.id() {
                    "fast" => sleep(3 * SECOND).await,
                    _ => sleep(100 * SECOND).await,
                }
                Settlement::Ack
            }
        }
    });
    sleep(SECOND).await;
    let asked = Instant::now();
    stop.by(asked + 5 * SECOND);
    let report = running.await.unwrap();
    assert_eq!(asked.elapsed(), 5 * SECOND);
    assert_eq!(log.get().running, 0);
    assert_eq!((report.acked, report.abandoned, report.retried), (1, 1, 0));
    assert_eq!(subscription.settled(Settlement::Retry), ["slow"]);
    assert!(report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn settlements_that_are_under_way_at_the_deadline_are_waited_for() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a", None)])]);
    subscription.settle_in(4 * SECOND);
    let (stop, running) = start(&subscription, settings(1), |_: Received| async {
        sleep(2 * SECOND).await;
        Settlement::Ack
    });
    sleep(SECOND).await;
    stop.by(Instant::now() + 2 * SECOND);
    let report = running.await.unwrap();
    assert_eq!((report.acked, report.abandoned), (1, 0));
    assert_eq!(subscription.settled(Settlement::Ack), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_never_ends_is_dropped_at_the_deadline() {
    let subscription = Scripted::unordered([Step::Hangs]);
    let (stop, running) = start(&subscription, settings(1), |_: Received| async {
        Settlement::Ack
    });
    sleep(SECOND).await;
    let asked = Instant::now();
    stop.by(asked + 5 * SECOND);
    assert_eq!(running.await.unwrap(), ConsumerReport::default());
    assert_eq!(asked.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_start_receives_nothing_and_closes() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a", None)])]);
    let stop = Stop::new();
    stop.by(Instant::now() + SECOND);
    let consumer = Consumer::new(settings(1));
    let handler = |_: Received| async { Settlement::Ack };
    let report = consumer
        .run(Arc::new(subscription.clone()), handler, stop)
        .await;
    assert_eq!(report, ConsumerReport::default());
    assert_eq!(subscription.record().receives.len(), 0);
    assert_eq!(subscription.record().closed, 1);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_deadline_counts_and_a_later_one_does_not() {
    let subscription = Scripted::unordered([Step::Brings(vec![("slow", None)])]);
    let (stop, running) = start(&subscription, settings(1), |_: Received| async {
        sleep(1_000 * SECOND).await;
        Settlement::Ack
    });
    sleep(SECOND).await;
    let asked = Instant::now();
    stop.by(asked + 100 * SECOND);
    sleep(SECOND).await;
    stop.by(asked + 200 * SECOND);
    stop.by(asked + 10 * SECOND);
    let report = running.await.unwrap();
    assert_eq!(asked.elapsed(), 10 * SECOND);
    assert_eq!(report.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_pause_after_a_failed_receive() {
    use dispatch_api::SourceError;
    let subscription = Scripted::unordered([Step::Fails(SourceError::config("Broken", ""))]);
    let mut settings = settings(1);
    settings.pause = 1_000 * SECOND;
    settings.max_pause = 1_000 * SECOND;
    let (stop, running) = start(&subscription, settings, |_: Received| async {
        Settlement::Ack
    });
    sleep(SECOND).await;
    let asked = Instant::now();
    stop.by(asked + 30 * SECOND);
    assert_eq!(running.await.unwrap().failed_receives, 1);
    assert_eq!(asked.elapsed(), tokio::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_may_run_again_after_its_stop() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a", None)])]);
    let consumer = Consumer::new({
        let mut settings = settings(1);
        settings.until_empty = true;
        settings
    });
    for id in ["a", "b"] {
        if id == "b" {
            subscription.push(Step::Brings(vec![("b", None)]));
        }
        let handler = |_: Received| async { Settlement::Ack };
        let report = consumer
            .run(Arc::new(subscription.clone()), handler, Stop::new())
            .await;
        assert_eq!(report.acked, 1, "{id}");
    }
}
