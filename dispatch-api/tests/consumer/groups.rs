//! One of a group at a time and in order, groups beside each other.

use dispatch_api::{ErrorClass, Received, SettleError, Settlement, SourceError};
use tokio::time::sleep;

use crate::support::{Log, SECOND, Scripted, Step, run_until_empty, settings};

const A: Option<&str> = Some("A");
const B: Option<&str> = Some("B");

#[tokio::test(start_paused = true)]
async fn a_held_head_with_more_of_its_group_in_hand_holds_no_other_group_up() {
    let mut first = vec![("a1", A), ("a2", A), ("a3", A)];
    let others = ["B", "C", "D", "E", "F"];
    first.extend(others.map(|group| (group, Some(group))));
    let later: Vec<Step> = [
        "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T",
    ]
    .into_iter()
    .map(|group| Step::Brings(vec![(group, Some(group))]))
    .collect();
    let subscription = Scripted::ordered(std::iter::once(Step::Brings(first)).chain(later));
    run_until_empty(
        &subscription,
        settings(8),
        |received: Received| async move {
            match received.id() {
                "a1" => sleep(100 * SECOND).await,
                _ => sleep(SECOND).await,
            }
            Settlement::Ack
        },
    )
    .await;
    let settled = subscription.settled(Settlement::Ack);
    let (groups, of_a) = settled.split_at(19);
    assert_eq!(of_a, ["a1", "a2", "a3"]);
    assert_eq!(groups.len(), 19, "all of B to T were done while A was held");
}

#[tokio::test(start_paused = true)]
async fn one_of_a_group_is_handled_at_a_time_and_in_order_over_receives() {
    let subscription = Scripted::ordered([
        Step::Brings(vec![("a1", A), ("b1", B), ("a2", A)]),
        Step::Brings(vec![("a3", A)]),
        Step::Brings(vec![("b2", B)]),
    ]);
    let (of_a, of_b) = (Log::default(), Log::default());
    run_until_empty(&subscription, settings(4), {
        let (of_a, of_b) = (of_a.clone(), of_b.clone());
        move |received: Received| {
            let log = match received.group() {
                Some("A") => of_a.clone(),
                _ => of_b.clone(),
            };
            async move {
                let _running = log.begin(&received);
                sleep(SECOND).await;
                Settlement::Ack
            }
        }
    })
    .await;
    assert_eq!(of_a.get().begun, ["a1", "a2", "a3"]);
    assert_eq!(of_b.get().begun, ["b1", "b2"]);
    assert_eq!((of_a.get().most_running, of_b.get().most_running), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_next_of_a_group_begins_after_the_settlement_and_within_the_bound_of_handlers() {
    let first = vec![("a1", Some("a")), ("a2", Some("a"))];
    let second = vec![("b1", Some("b")), ("c1", Some("c"))];
    let subscription = Scripted::ordered([Step::Brings(first), Step::Brings(second)]);
    subscription.settle_in(SECOND);
    let log = Log::default();
    let report = run_until_empty(&subscription, settings(2), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let _running = log.begin(&received);
                sleep(3 * SECOND).await;
                Settlement::Ack
            }
        }
    })
    .await;
    assert_eq!((report.acked, log.get().most_running), (4, 2));
    assert_eq!(log.get().begun, ["a1", "b1", "a2", "c1"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_not_ordered_handles_a_group_in_parallel() {
    let subscription = Scripted::unordered([Step::Brings(vec![("a1", A), ("a2", A)])]);
    let log = Log::default();
    run_until_empty(&subscription, settings(2), {
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
    assert_eq!(log.get().most_running, 2);
}

#[tokio::test(start_paused = true)]
async fn on_a_retry_the_rest_of_the_group_goes_back_unhandled_and_other_groups_do_not() {
    for answer in [Settlement::Retry, Settlement::RetryAfter(SECOND)] {
        let subscription = Scripted::ordered([Step::Brings(vec![
            ("a1", A),
            ("a2", A),
            ("b1", B),
            ("a3", A),
            ("b2", B),
        ])]);
        let log = Log::default();
        let report = run_until_empty(&subscription, settings(5), {
            let log = log.clone();
            move |received: Received| {
                let _running = log.begin(&received);
                async move {
                    match received.id() {
                        "a1" => answer,
                        _ => Settlement::Ack,
                    }
                }
            }
        })
        .await;
        assert_eq!(log.get().begun, ["a1", "b1", "b2"]);
        let settled = subscription.record().settled.clone();
        assert_eq!(settled[0], ("a1".to_owned(), answer), "the head goes first");
        let back = subscription.settled(Settlement::Retry);
        assert!(
            back.ends_with(&["a2".to_owned(), "a3".to_owned()]),
            "{back:?}"
        );
        assert_eq!((report.acked, report.retried, report.given_back), (2, 1, 2));
        assert!(report.is_complete());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_back_before_its_answer_is_a_new_beginning_of_its_group() {
    let subscription = Scripted::ordered([
        Step::Brings(vec![("a1", A), ("a2", A)]),
        // The retry of the head is at the broker before its answer is here.
        Step::Brings(vec![("a1", A), ("a2", A)]),
    ]);
    let log = Log::default();
    let report = run_until_empty(&subscription, settings(4), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let is_first = log.get().begun.is_empty();
                let _running = log.begin(&received);
                sleep(SECOND).await;
                match is_first {
                    true => Settlement::Retry,
                    false => Settlement::Ack,
                }
            }
        }
    })
    .await;
    assert_eq!(log.get().begun, ["a1", "a1", "a2"]);
    assert_eq!((report.acked, report.retried, report.given_back), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_later_receive_brings_of_a_locked_group_is_a_new_beginning() {
    // The head was spent: its retry took it out, and the broker went on with the group.
    let subscription = Scripted::ordered([
        Step::Brings(vec![("a1", A), ("a2", A)]),
        Step::Brings(vec![("a3", A)]),
    ]);
    let (begun, report) = retry_a1_once(&subscription).await;
    assert_eq!(begun, ["a1", "a3"]);
    assert_eq!((report.acked, report.retried, report.given_back), (1, 1, 1));
}

/// Retries what is called `a1` the first time.
async fn retry_a1_once(subscription: &Scripted) -> (Vec<String>, dispatch_api::ConsumerReport) {
    let log = Log::default();
    let report = run_until_empty(subscription, settings(4), {
        let log = log.clone();
        move |received: Received| {
            let log = log.clone();
            async move {
                let is_new = !log.get().begun.contains(&received.id().to_owned());
                let _running = log.begin(&received);
                sleep(SECOND).await;
                match received.id() == "a1" && is_new {
                    true => Settlement::Retry,
                    false => Settlement::Ack,
                }
            }
        }
    })
    .await;
    let begun = log.get().begun.clone();
    (begun, report)
}

#[tokio::test(start_paused = true)]
async fn what_later_receives_brought_of_a_group_goes_back_with_the_rest_of_it() {
    let subscription = Scripted::log([
        Step::Brings(vec![("a1", A), ("a2", A)]),
        Step::Brings(vec![("a3", A), ("b1", B)]),
        Step::BringsAfter(3 * SECOND, vec![("a1", A), ("a2", A), ("a3", A)]),
    ]);
    let (begun, report) = retry_a1_once(&subscription).await;
    let of_a: Vec<&String> = begun.iter().filter(|id| *id != "b1").collect();
    // The third receive began before they went back, and begins with the first of them.
    assert_eq!(of_a, ["a1", "a1", "a2", "a3"]);
    assert_eq!((report.acked, report.retried, report.given_back), (4, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_group_before_all_of_it_is_back_goes_back_too() {
    let subscription = Scripted::log([
        Step::Brings(vec![("a1", A), ("a2", A)]),
        // Under way while they go back: it brings what is behind them.
        Step::BringsAfter(2 * SECOND, vec![("a3", A), ("a4", A)]),
        Step::Brings(vec![("a1", A), ("a2", A)]),
        Step::Brings(vec![("a3", A), ("a4", A)]),
    ]);
    subscription.settle_in(SECOND / 4);
    let (begun, report) = retry_a1_once(&subscription).await;
    assert_eq!(begun, ["a1", "a1", "a2", "a3", "a4"]);
    assert_eq!((report.acked, report.retried, report.given_back), (4, 1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_back_begins_with_whatever_the_next_receive_brings() {
    // A retry can be a copy, with an id of its own.
    let subscription = Scripted::log([
        Step::Brings(vec![("a1", A), ("a2", A)]),
        Step::BringsAfter(2 * SECOND, vec![("b1", B)]),
        Step::Brings(vec![("a2", A), ("a1 as a copy", A)]),
    ]);
    let (begun, report) = retry_a1_once(&subscription).await;
    let of_a: Vec<&String> = begun.iter().filter(|id| *id != "b1").collect();
    assert_eq!(of_a, ["a1", "a2", "a1 as a copy"]);
    assert_eq!((report.acked, report.retried, report.given_back), (3, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_head_whose_settlement_fails_takes_the_rest_of_its_group_back() {
    let error = || SourceError::new(ErrorClass::Transient, "Timeout", "no answer");
    for failure in [SettleError::Lost(None), SettleError::Unknown(error())] {
        let subscription = Scripted::ordered([Step::Brings(vec![("a1", A), ("a2", A), ("b1", B)])]);
        subscription.fail_settling("a1", failure);
        let log = Log::default();
        let report = run_until_empty(&subscription, settings(3), {
            let log = log.clone();
            move |received: Received| {
                let _running = log.begin(&received);
                async { Settlement::Ack }
            }
        })
        .await;
        assert_eq!(log.get().begun, ["a1", "b1"]);
        assert_eq!(subscription.settled(Settlement::Retry), ["a2"]);
        assert_eq!(
            (report.acked, report.given_back, report.unsettled),
            (1, 1, 1)
        );
        assert!(!report.is_complete());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_drop_the_group_goes_on() {
    let subscription = Scripted::ordered([Step::Brings(vec![("a1", A), ("a2", A)])]);
    let report = run_until_empty(
        &subscription,
        settings(2),
        |received: Received| async move {
            match received.id() {
                "a1" => Settlement::Drop,
                _ => Settlement::Ack,
            }
        },
    )
    .await;
    assert_eq!((report.dropped, report.acked), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_goes_on_with_a_held_group_is_bounded() {
    let steps = (0..200).map(|_| Step::Brings(vec![("a", A)]));
    let subscription = Scripted::ordered(steps);
    let (stop, running) = crate::support::start(&subscription, settings(2), |_: Received| async {
        sleep(250 * SECOND).await;
        Settlement::Ack
    });
    sleep(200 * SECOND).await;
    assert_eq!(
        subscription.record().receives.len(),
        20,
        "ten for each handler"
    );
    stop.by(tokio::time::Instant::now() + 100 * SECOND);
    let report = running.await.unwrap();
    assert_eq!(
        (report.received, report.given_back, report.acked),
        (20, 19, 1)
    );
}
