//! Messages through every fault of the consuming side at random: each is handled at least
//! once, the queue ends empty, and the dead-letter queue holds the poison and nothing else.
//!
//! `SOAK_MESSAGES` sets how many; 3,000 where it is not set.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{Consumer, ConsumerSettings, Received, Settlement, Stop};
use serde_json::json;
use sink_testkit::sqs::{Answer, Damage, EntryFault, EntrySelector, ErrorCode, Fault, Operation};
use tokio::time::{Instant, sleep, timeout};

use crate::consuming::{Consuming, SECOND};

/// One in so many is poison: it fails whenever it is handled.
const POISON: usize = 500;

/// Faults count as receives too, so that the cap is far above what they can use up.
const MAX_ATTEMPTS: u32 = 60;

fn operation(random: &mut fastrand::Rng) -> Operation {
    let operations = [
        Operation::ReceiveMessage,
        Operation::ReceiveMessage,
        Operation::DeleteMessage,
        Operation::DeleteMessageBatch,
        Operation::ChangeMessageVisibility,
        Operation::ChangeMessageVisibilityBatch,
    ];
    operations[random.usize(..operations.len())]
}

fn fault(operation: Operation, random: &mut fastrand::Rng) -> Fault {
    let is_batch = matches!(
        operation,
        Operation::DeleteMessageBatch | Operation::ChangeMessageVisibilityBatch
    );
    let codes = [
        ErrorCode::InternalFailure,
        ErrorCode::RequestThrottled,
        ErrorCode::AccessDenied,
        ErrorCode::QueueDoesNotExist,
    ];
    match random.u32(..8) {
        0 => Fault::reset(),
        1 => Fault::reset().after_storing(),
        2 => Fault::truncated(),
        3 => Fault::delay_after_storing(Duration::from_millis(random.u64(..300))),
        4 if operation == Operation::ReceiveMessage => Fault::damaged(
            [Damage::BodyDigestWrong, Damage::SystemAttributesMissing][random.usize(..2)],
        ),
        5 if is_batch => Fault::entry(
            EntrySelector::index(random.usize(..3)),
            EntryFault::failed("InternalError", false),
        ),
        6 if is_batch => Fault::entry(
            EntrySelector::index(random.usize(..3)),
            EntryFault::missing_after_storing(),
        ),
        _ => Fault::answer(Answer::error(codes[random.usize(..codes.len())])),
    }
}

/// Consumes until nothing is left but what waits in the dead-letter queue.
async fn soak(queue: Consuming, messages: usize, gathers: bool, seed: u64) {
    let dead = queue.dead_letter_name();
    let warm = queue.open_with_redrive(MAX_ATTEMPTS).await;
    drop(warm);
    for number in 0..messages {
        let request = json!({"MessageBody": number.to_string()});
        match dead.ends_with(".fifo") {
            true => {
                queue
                    .send_to_group(&format!("g{}", number % 97), &number.to_string())
                    .await;
            }
            false => queue.send_as(request).await,
        }
    }
    let registration = {
        use dispatch_api::SourceExt as _;
        let services = dispatch_api::HostServices::new();
        queue
            .queue()
            .wait(SECOND)
            .visibility(2 * SECOND)
            .batch_settlement(gathers)
            .build(&services)
            .unwrap()
            .max_attempts(MAX_ATTEMPTS)
            .dead_letter(dead)
    };
    let subscription = registration.open().await.unwrap();
    let handled = Arc::new(Mutex::new(HashMap::<usize, u32>::new()));
    let handler = {
        let handled = Arc::clone(&handled);
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        move |received: Received| {
            let number: usize = std::str::from_utf8(received.body())
                .unwrap()
                .parse()
                .unwrap();
            *handled.lock().unwrap().entry(number).or_default() += 1;
            let draw = random.lock().unwrap().u32(..1_000);
            async move {
                if number.is_multiple_of(POISON) {
                    return Settlement::Retry;
                }
                match draw {
                    0 => sleep(3 * SECOND).await,
                    1..30 => return Settlement::Retry,
                    30..50 => return Settlement::RetryAfter(SECOND),
                    50..60 => unreachable!("a handler that panics"),
                    _ => {}
                }
                Settlement::Ack
            }
        }
    };
    let mut settings = ConsumerSettings::default();
    settings.concurrency = NonZeroUsize::new(50).unwrap();
    settings.pause = Duration::from_millis(2);
    settings.max_pause = Duration::from_millis(50);
    let stop = Stop::new();
    let consumer = Consumer::new(settings);
    let run = consumer.run(subscription, handler, stop.clone());
    let disturb = async {
        let mut random = fastrand::Rng::with_seed(seed);
        while !queue.stored().is_empty() {
            // Looking at all that is stored takes its time.
            for _ in 0..25 {
                let operation = operation(&mut random);
                if queue.server.pending_faults() < 20 {
                    queue.server.fault(operation, fault(operation, &mut random));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        queue.server.clear_faults();
        stop.by(Instant::now() + 10 * SECOND);
    };
    let limit =
        Duration::from_secs(200) + Duration::from_millis(10) * u32::try_from(messages).unwrap();
    let (report, ()) = timeout(limit, async { tokio::join!(run, disturb) })
        .await
        .unwrap();
    assert!(
        report.failed_receives > 0 && report.unsettled > 0,
        "{report:?}"
    );
    let handled = handled.lock().unwrap();
    let missing = (0..messages).filter(|number| !handled.contains_key(number));
    assert_eq!(missing.count(), 0, "each was handled at least once");
    let mut spent: Vec<usize> = queue
        .server
        .messages(dead)
        .unwrap()
        .iter()
        .map(|message| message.body.parse().unwrap())
        .collect();
    spent.sort_unstable();
    let poison: Vec<usize> = (0..messages).step_by(POISON).collect();
    assert_eq!(spent, poison, "{report:?}");
}

fn messages() -> usize {
    let set = std::env::var("SOAK_MESSAGES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_under_random_faults_ends_empty_with_the_poison_in_its_dead_letter_queue() {
    soak(Consuming::standard().await, messages(), false, 7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_one_whose_settlements_are_gathered() {
    soak(Consuming::standard().await, messages(), true, 11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_a_fifo_queue() {
    soak(Consuming::fifo().await, messages() / 3, true, 13).await;
}
