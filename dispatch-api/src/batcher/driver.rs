//! The one task of a batcher.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::queue::{Batch, Held, Next};
use super::{Answer, BatchSender, Flush, Shared, Slot};
use crate::error::{Outcome, SinkError};
use crate::runtime::{now, sleep_until, spawn};
use crate::sink::tell_contained;

/// Starts the task on the runtime of the caller.
pub(super) fn start<S: BatchSender>(shared: Arc<Shared<S>>) {
    let stopped = Stopped(shared);
    spawn(async move { run(&stopped.0).await });
}

async fn run<S: BatchSender>(shared: &Shared<S>) {
    let mut in_flight = FuturesUnordered::new();
    loop {
        let until = loop {
            let next = shared.state().queue.next(now());
            match next {
                Next::Send(batch) => {
                    in_flight.push(request(shared, batch));
                    tell_load(shared);
                }
                Next::Wait(until) => break until,
            }
        };
        if in_flight.is_empty() && until.is_none() {
            let state = shared.state();
            if state.closed && state.queue.unanswered().entries == 0 {
                return;
            }
        }
        let due = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(held) = in_flight.next() => {
                {
                    let mut state = shared.state();
                    state.queue.answered(held);
                    shared.tell_if_idle(&state);
                }
                tell_load(shared);
            }
            () = shared.wake.notified() => tell_load(shared),
            () = due => {}
        }
    }
}

fn tell_load<S: BatchSender>(shared: &Shared<S>) {
    let (entries, requests) = {
        let state = shared.state();
        (state.queue.unanswered().entries, state.queue.requests())
    };
    tell_contained(|| shared.sender.load_changed(entries, requests));
}

/// Sends one request and hands out its answers, one to each entry.
async fn request<S: BatchSender>(shared: &Shared<S>, batch: Batch<Slot<S::Entry>>) -> Held {
    let flush = Flush {
        reason: batch.reason,
        bytes: batch.bytes,
        waited: now() - batch.oldest,
    };
    let (entries, replies): (Vec<_>, Vec<_>) = batch
        .entries
        .into_iter()
        .map(|slot| (slot.entry, slot.reply))
        .unzip();
    // The sender is shared with later requests, which see what a panic left of it with or
    // without this boundary.
    let sending = AssertUnwindSafe(async { shared.sender.send(entries, flush).await });
    let (answers, otherwise): (Vec<Answer>, fn() -> SinkError) = match sending.catch_unwind().await
    {
        Ok(answers) => (answers, missing),
        Err(_) => (Vec::new(), panicked),
    };
    let mut answers = answers.into_iter();
    for reply in replies {
        let answer = answers.next().unwrap_or_else(|| Err(otherwise()));
        // A caller that went away wants no answer.
        let _ = reply.send(answer);
    }
    batch.held
}

fn missing() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "BatchEntryMissing",
        "the answer to the batch does not mention this entry",
    )
}

fn panicked() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "SinkPanicked",
        "the sink panicked while it sent this batch",
    )
}

/// Leaves a clean state behind when the task ends, also when its runtime drops it.
struct Stopped<S: BatchSender>(Arc<Shared<S>>);

impl<S: BatchSender> Drop for Stopped<S> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state();
            state.driven = false;
            // Requests in flight are gone, and with them what they held.
            let waiting = state.queue.start_over();
            self.0.idle.notify_waiters();
            waiting
        };
        for slot in waiting {
            let _ = slot.reply.send(Err(SinkError::transient(
                Outcome::NotStored,
                "BatcherStopped",
                "the runtime that sends the batches ended before this entry left",
            )));
        }
    }
}
