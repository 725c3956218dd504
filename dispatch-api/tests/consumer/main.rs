//! The consumer over a scripted subscription, on a paused clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod failing;
mod groups;
mod log;
mod properties;
mod stopping;
mod support;

use std::time::Duration;

use dispatch_api::{Received, Settlement};
use tokio::time::sleep;

use crate::support::{Log, SECOND, Scripted, Step, run_until_empty, settings};

#[tokio::test(start_paused = true)]
async fn the_bound_of_handlers_is_reached_and_never_passed() {
    let first = ["a", "b", "c"].map(|id| (id, None)).to_vec();
    let second = ["d", "e", "f"].map(|id| (id, None)).to_vec();
    let subscription = Scripted::unordered([Step::Brings(first), Step::Brings(second)]);
    let log = Log::default();
    let report = run_until_empty(&subscription, settings(3), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let _running = log.begin(&received);
                sleep(SECOND).await;
                Settlement::Ack
            }
        }
    })
    .await;
    assert_eq!(log.get().most_running, 3);
    assert_eq!((report.received, report.acked), (6, 6));
    assert!(report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn no_more_is_asked_for_than_there_is_room_for() {
    let subscription = Scripted::unordered([
        Step::Brings(vec![("a", None), ("b", None)]),
        Step::Brings(vec![("c", None)]),
    ]);
    run_until_empty(&subscription, settings(4), |_: Received| async {
        sleep(SECOND).await;
        Settlement::Ack
    })
    .await;
    let asked: Vec<usize> = subscription
        .record()
        .receives
        .iter()
        .map(|(_, n)| *n)
        .collect();
    assert_eq!(asked[..3], [4, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_received_while_every_handler_runs() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a", None), ("b", None)])]);
    run_until_empty(&subscription, settings(2), |_: Received| async {
        sleep(100 * SECOND).await;
        Settlement::Ack
    })
    .await;
    let record = subscription.record();
    let waited = record.receives[1].0 - record.receives[0].0;
    assert_eq!(waited, 100 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_takes_no_handlers_place() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a", None), ("b", None)])]);
    subscription.settle_in(100 * SECOND);
    let report = run_until_empty(&subscription, settings(1), |_: Received| async {
        sleep(SECOND).await;
        Settlement::Ack
    })
    .await;
    assert_eq!(report.acked, 2);
    let record = subscription.record();
    let began = record.receives[0].0;
    let second = (record.receives[1].0 - began, record.receives[1].1);
    assert_eq!(second, (SECOND, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_source_has_ten_deliveries_to_settle_for_each_handler_and_no_more() {
    let messages: Vec<(&str, Option<&str>)> = (0..30).map(|_| ("m", None)).collect();
    let subscription = Scripted::unordered([Step::Brings(messages)]);
    subscription.settle_in(100 * SECOND);
    let handler = |_: Received| async { Settlement::Ack };
    let report = run_until_empty(&subscription, settings(2), handler).await;
    assert_eq!(report.acked, 30);
    let record = subscription.record();
    let began = record.receives[0].0;
    let first = record.receives.iter().filter(|(at, _)| *at == began);
    assert_eq!(first.map(|(_, asked)| asked).sum::<usize>(), 20);
}

#[tokio::test(start_paused = true)]
async fn one_slow_handler_holds_nobody_else_up() {
    let steps = ["b", "c", "d", "e"].map(|id| Step::Brings(vec![(id, None)]));
    let first = Step::Brings(vec![("slow", None)]);
    let subscription = Scripted::unordered(std::iter::once(first).chain(steps));
    run_until_empty(
        &subscription,
        settings(2),
        |received: Received| async move {
            if received.id() == "slow" {
                sleep(100 * SECOND).await;
            }
            Settlement::Ack
        },
    )
    .await;
    let settled = subscription.settled(Settlement::Ack);
    assert_eq!(settled, ["b", "c", "d", "e", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn every_answer_of_a_handler_becomes_that_settlement() {
    let ids = ["ack", "retry", "after", "drop"].map(|id| (id, None));
    let subscription = Scripted::unordered([Step::Brings(ids.to_vec())]);
    let report = run_until_empty(
        &subscription,
        settings(4),
        |received: Received| async move {
            match received.id() {
                "ack" => Settlement::Ack,
                "retry" => Settlement::Retry,
                "after" => Settlement::RetryAfter(7 * SECOND),
                _ => Settlement::Drop,
            }
        },
    )
    .await;
    let mut settled = subscription.record().settled.clone();
    settled.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("ack", Settlement::Ack),
        ("after", Settlement::RetryAfter(7 * SECOND)),
        ("drop", Settlement::Drop),
        ("retry", Settlement::Retry),
    ];
    assert_eq!(settled, expected.map(|(id, how)| (id.to_owned(), how)));
    assert_eq!((report.acked, report.retried, report.dropped), (1, 2, 1));
    assert!(report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn until_empty_ends_after_an_empty_receive_with_nothing_in_hand() {
    let subscription = Scripted::unordered([
        Step::Brings(vec![("a", None)]),
        Step::Brings(Vec::new()),
        Step::Brings(vec![("b", None)]),
    ]);
    // The first empty receive comes while "a" is in hand.
    let report = run_until_empty(&subscription, settings(2), |_: Received| async {
        sleep(Duration::from_millis(150)).await;
        Settlement::Ack
    })
    .await;
    assert_eq!((report.received, report.acked), (2, 2));
    assert_eq!(subscription.record().closed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_answers_at_once_with_nothing_is_not_asked_all_the_time() {
    let empty = || Step::Brings(Vec::new());
    let subscription = Scripted::unordered([
        Step::Brings(vec![("a", None)]),
        empty(),
        empty(),
        empty(),
        empty(),
    ]);
    run_until_empty(&subscription, settings(2), |_: Received| async {
        sleep(Duration::from_millis(700)).await;
        Settlement::Ack
    })
    .await;
    let record = subscription.record();
    let empties = record.receives[1..].windows(2);
    for pair in empties {
        let apart = pair[1].0 - pair[0].0;
        assert!(apart >= Duration::from_millis(200), "{apart:?}");
    }
}
