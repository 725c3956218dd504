//! Moments between two steps of the driver, played by hand.

use std::future::pending;

use tokio::time::sleep_until;

use super::queue::{Batch, Next};
use super::*;

/// Never asked: these tests form the batches themselves.
struct Nobody;

impl BatchSender for Nobody {
    type Entry = &'static str;

    async fn send(&self, _: Vec<&'static str>, _: Flush) -> Vec<Answer> {
        pending().await
    }
}

/// A batcher whose driver does nothing on its own.
fn driven_by_hand() -> Arc<Batcher<Nobody>> {
    let batcher = Batcher::new(Nobody, BatchSettings::default());
    batcher.shared.state().driven = true;
    Arc::new(batcher)
}

fn next_batch(batcher: &Batcher<Nobody>) -> Option<Batch<Slot<&'static str>>> {
    match batcher.shared.state().queue.next(Instant::now()) {
        Next::Send(batch) => Some(batch),
        Next::Wait(_) => None,
    }
}

async fn submit(
    batcher: &Arc<Batcher<Nobody>>,
    deadline: Instant,
) -> tokio::task::JoinHandle<Answer> {
    let batcher = Arc::clone(batcher);
    let submitted = tokio::spawn(async move {
        let entry = BatchEntry::new("t", 1, "entry").with_deadline(deadline);
        let full = |full: QueueFull| full.into_error(Duration::ZERO);
        batcher.submit(entry, full).await
    });
    tokio::task::yield_now().await;
    submitted
}

fn timeout(outcome: Outcome, answer: &Answer) -> bool {
    let error = answer.as_ref().expect_err("nobody sends");
    (error.code(), error.outcome()) == ("Timeout", outcome)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_between_the_forming_of_a_batch_and_its_request_leaves_the_outcome_unknown() {
    let batcher = driven_by_hand();
    let deadline = Instant::now() + Duration::from_millis(30);
    let submitted = submit(&batcher, deadline).await;
    sleep_until(deadline - Duration::from_millis(1)).await;
    let batch = next_batch(&batcher).expect("the linger is over");
    let answer = submitted.await.expect("no panic");
    assert!(timeout(Outcome::Unknown, &answer), "{answer:?}");
    assert_eq!(batch.entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_forming_of_a_batch_takes_the_entry_out_of_it() {
    let batcher = driven_by_hand();
    let deadline = Instant::now() + Duration::from_millis(30);
    let submitted = submit(&batcher, deadline).await;
    let answer = submitted.await.expect("no panic");
    assert!(timeout(Outcome::NotStored, &answer), "{answer:?}");
    assert!(next_batch(&batcher).is_none());
    assert_eq!(batcher.load(), (0, 0));
}
