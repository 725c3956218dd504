//! A consumer of the queue that stops.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dispatch_api::{
    Consumer, ConsumerReport, ConsumerSettings, Handler, Received, Settlement, Stop, Subscription,
};
use sink_testkit::sqs::{Operation, Visibility};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::consuming::{Consuming, SECOND, receive, until};

fn start(
    subscription: Arc<dyn Subscription>,
    concurrency: usize,
    handler: impl Handler,
) -> (Stop, JoinHandle<ConsumerReport>) {
    let stop = Stop::new();
    let mut settings = ConsumerSettings::default();
    settings.concurrency = NonZeroUsize::new(concurrency).unwrap();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move {
            Consumer::new(settings)
                .run(subscription, handler, stop)
                .await
        }
    });
    (stop, running)
}

/// Where handlers wait until they are let acknowledge.
struct Gate {
    permits: Semaphore,
    begun: AtomicUsize,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            permits: Semaphore::new(0),
            begun: AtomicUsize::new(0),
        })
    }

    async fn begun(&self, count: usize) {
        until("handlers wait", || {
            self.begun.load(Ordering::SeqCst) == count
        })
        .await;
    }

    fn open_for(&self, handlers: usize) {
        self.permits.add_permits(handlers);
    }
}

fn gated(gate: &Arc<Gate>) -> impl Handler + use<> {
    let gate = Arc::clone(gate);
    move |_: Received| {
        let gate = Arc::clone(&gate);
        async move {
            gate.begun.fetch_add(1, Ordering::SeqCst);
            gate.permits.acquire().await.unwrap().forget();
            Settlement::Ack
        }
    }
}

#[tokio::test]
async fn a_stop_gives_back_at_once_what_was_not_started_and_lets_the_rest_finish() {
    let queue = Consuming::fifo().await;
    for number in 0..10 {
        let group = if number < 5 { "a" } else { "b" };
        queue.send_to_group(group, &number.to_string()).await;
    }
    let gate = Gate::new();
    let subscription = queue.open().await;
    let (stop, running) = start(subscription, 10, gated(&gate));
    gate.begun(2).await;
    stop.by(Instant::now() + 20 * SECOND);
    until("eight are given back", || queue.changes() == [0; 8]).await;
    gate.open_for(2);
    let report = running.await.unwrap();
    assert_eq!(
        (report.received, report.acked, report.given_back),
        (10, 2, 8)
    );
    assert!(report.is_complete());
    assert_eq!(queue.count(Operation::DeleteMessage), 2);
    let left: Vec<String> = queue.stored().into_iter().map(|m| m.body).collect();
    assert_eq!(left, ["1", "2", "3", "4", "6", "7", "8", "9"]);
    assert!(
        queue
            .stored()
            .iter()
            .all(|m| m.visibility == Visibility::Visible)
    );
}

#[tokio::test]
async fn gathered_acks_of_a_stop_are_sent_and_confirmed() {
    let queue = Consuming::standard().await;
    for number in 0..3 {
        queue.send(&number.to_string()).await;
    }
    let gate = Gate::new();
    let subscription = queue
        .open_as(|queue| queue.wait(SECOND).batch_settlement(true))
        .await;
    let (stop, running) = start(subscription, 4, gated(&gate));
    gate.begun(3).await;
    stop.by(Instant::now() + 20 * SECOND);
    gate.open_for(3);
    let report = running.await.unwrap();
    assert_eq!(report.acked, 3);
    assert!(queue.stored().is_empty());
}

#[tokio::test]
async fn messages_that_an_open_receive_brings_after_the_stop_go_back() {
    let queue = Consuming::standard().await;
    let subscription = queue.open_as(|queue| queue.wait(20 * SECOND)).await;
    let gate = Gate::new();
    let (stop, running) = start(subscription, 4, gated(&gate));
    sleep(Duration::from_millis(200)).await;
    stop.by(Instant::now() + 25 * SECOND);
    sleep(Duration::from_millis(50)).await;
    queue.send("late").await;
    let report = running.await.unwrap();
    assert_eq!((report.received, report.given_back), (1, 1));
    assert!(queue.is_visible());
    assert_eq!(queue.count(Operation::ReceiveMessage), 1);
}

#[tokio::test]
async fn a_handler_that_runs_past_the_deadline_is_given_up_and_its_message_comes_back() {
    let queue = Consuming::standard().await;
    queue.send("stuck").await;
    let gate = Gate::new();
    let subscription = queue.open().await;
    let (stop, running) = start(subscription, 1, gated(&gate));
    gate.begun(1).await;
    stop.by(Instant::now() + Duration::from_millis(100));
    let report = running.await.unwrap();
    assert_eq!((report.abandoned, report.acked), (1, 0));
    gate.open_for(1);
    assert!(queue.is_visible(), "and no orphan acknowledges it later");
}

#[tokio::test]
async fn the_rest_of_a_failed_group_is_back_within_a_second_of_a_timeout_of_fifteen_minutes() {
    let queue = Consuming::fifo().await;
    for number in 0..9 {
        queue.send_to_group("a", &format!("a{number}")).await;
    }
    queue.send_to_group("b", "b0").await;
    let subscription = queue
        .open_as(|queue| queue.visibility(900 * SECOND).wait(SECOND))
        .await;
    let (stop, running) = start(subscription, 10, |received: Received| async move {
        match received.group() {
            Some("a") => Settlement::RetryAfter(100 * SECOND),
            _ => Settlement::Ack,
        }
    });
    until("b is gone and a is back", || {
        let stored = queue.stored();
        let visible = stored
            .iter()
            .filter(|m| m.visibility == Visibility::Visible);
        stored.len() == 9 && visible.count() == 8
    })
    .await;
    stop.by(Instant::now() + 5 * SECOND);
    let report = running.await.unwrap();
    assert_eq!((report.retried, report.given_back, report.acked), (1, 8, 1));
    // In order, behind the one that waits.
    queue.server.clock().advance(100 * SECOND);
    let next = queue.open().await;
    let bodies: Vec<Vec<u8>> = receive(&next, 10)
        .await
        .iter()
        .map(|delivery| delivery.received().body().to_vec())
        .collect();
    let expected: Vec<Vec<u8>> = (0..9).map(|n| format!("a{n}").into_bytes()).collect();
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn a_fifo_queue_is_consumed_in_order_per_group_whatever_comes_back() {
    let queue = Consuming::fifo().await;
    for number in 0..60 {
        let group = format!("g{}", number % 3);
        queue.send_to_group(&group, &number.to_string()).await;
    }
    let log = Arc::new(std::sync::Mutex::new(Vec::<(String, u32)>::new()));
    let subscription = queue.open().await;
    let mut settings = ConsumerSettings::default();
    settings.until_empty = true;
    let handler = {
        let log = Arc::clone(&log);
        move |received: Received| {
            let log = Arc::clone(&log);
            async move {
                let number: u32 = std::str::from_utf8(received.body())
                    .unwrap()
                    .parse()
                    .unwrap();
                // Every seventh fails on its first delivery.
                if number.is_multiple_of(7) && received.redelivery_count() == Some(1) {
                    return Settlement::Retry;
                }
                let group = received.group().unwrap().to_owned();
                log.lock().unwrap().push((group, number));
                Settlement::Ack
            }
        }
    };
    let consumer = Consumer::new(settings);
    let report = consumer.run(subscription, handler, Stop::new()).await;
    assert_eq!(report.acked, 60);
    assert!(report.retried >= 1 && report.is_complete());
    for group in ["g0", "g1", "g2"] {
        let log = log.lock().unwrap();
        let handled = log.iter().filter(|(of, _)| of == group);
        let numbers: Vec<u32> = handled.map(|(_, number)| *number).collect();
        assert!(
            numbers.is_sorted() && numbers.len() == 20,
            "{group}: {numbers:?}"
        );
    }
}
