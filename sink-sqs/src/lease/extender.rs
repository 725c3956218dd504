//! The one task that extends the holds of a subscription.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Answer, LeaseKeeper};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Extend, Shared, half_way};
use crate::calls::is_lost;
use crate::settler::BATCH;

/// The most calls under way at once.
const MAX_CALLS: usize = 16;

/// The least time between two tries to extend the same hold.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// Starts the task on the runtime of the caller.
pub(super) fn start<E: Extend>(shared: Arc<Shared<E>>) {
    let driven = Driven {
        shared,
        has_ended: false,
    };
    tokio::spawn(async move {
        run(&driven.shared).await;
        driven.end();
    });
}

/// Lets the next hold start the task again when this one's runtime ends, or it panics.
struct Driven<E> {
    shared: Arc<Shared<E>>,
    /// It ended by itself and said so: another may run already.
    has_ended: bool,
}

impl<E> Driven<E> {
    fn end(mut self) {
        self.has_ended = true;
    }
}

impl<E> Drop for Driven<E> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.state().is_driven = false;
        }
    }
}

/// One call: what is extended, and for how long.
struct Tick {
    holds: Vec<(u64, Arc<LeaseKeeper>)>,
    request: Vec<(Arc<str>, u64)>,
    began: Instant,
    /// When the first of them would be lost.
    deadline: Instant,
    /// Tells those who wait for the call when it is dropped.
    under_way: watch::Sender<()>,
}

async fn run<E: Extend>(shared: &Shared<E>) {
    let mut calls = FuturesUnordered::new();
    loop {
        let Some((ticks, next)) = take_due(shared, calls.len()) else {
            return;
        };
        for tick in ticks {
            calls.push(carry_out(shared, tick));
        }
        tokio::select! {
            Some(()) = calls.next() => {}
            () = shared.wake.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// What is to be extended now, beside so many calls under way, and when to look again. `None`
/// ends the task: nothing is held, and nobody waits for a call.
fn take_due<E>(shared: &Shared<E>, calls: usize) -> Option<(Vec<Tick>, Instant)> {
    let now = Instant::now();
    let mut state = shared.state();
    state.held.retain(|_, held| {
        let is_over = held.until <= now;
        if is_over {
            shared.lose(&held.keeper);
        }
        !is_over
    });
    shared.telemetry.held(state.held.len());
    if state.held.is_empty() && calls == 0 {
        // Under the lock, so that the next hold finds either this task or none.
        state.is_driven = false;
        return None;
    }
    let room = MAX_CALLS.saturating_sub(calls);
    // A little ahead, so that what was received together is extended together.
    let ahead = now + shared.visibility / 10;
    let mut due: Vec<(Instant, u64)> = Vec::new();
    let mut next = now + shared.visibility;
    let mut is_due = false;
    for (number, held) in &state.held {
        next = next.min(held.until);
        if let (Some(at), None) = (held.due, &held.call) {
            if at <= ahead {
                due.push((held.until, *number));
                is_due |= at <= now;
            }
            next = next.min(at);
        }
    }
    if !is_due || room == 0 {
        let next = match is_due {
            // A call that ends makes room, and wakes.
            true => now + LEAST_PAUSE,
            false => next,
        };
        state.looks_at = Some(next);
        return Some((Vec::new(), next));
    }
    // The first to end goes first.
    due.sort_unstable();
    let mut ticks = Vec::new();
    for part in due.chunks(BATCH).take(room) {
        let (under_way, call) = watch::channel(());
        let mut tick = Tick {
            holds: Vec::with_capacity(part.len()),
            request: Vec::with_capacity(part.len()),
            began: now,
            deadline: now + shared.visibility,
            under_way,
        };
        for (until, number) in part {
            let Some(held) = state.held.get_mut(number) else {
                continue;
            };
            let left = held.end.saturating_duration_since(now).as_secs();
            let seconds = left.min(shared.visibility.as_secs());
            if now + Duration::from_secs(seconds) <= held.until {
                shared.telemetry.hold_ends();
                held.due = None;
                continue;
            }
            held.call = Some(call.clone());
            tick.holds.push((*number, Arc::clone(&held.keeper)));
            tick.request.push((Arc::clone(&held.handle), seconds));
            tick.deadline = tick.deadline.min(*until);
        }
        if !tick.holds.is_empty() {
            ticks.push(tick);
        }
    }
    // What was taken is looked at when its call ends; what was not is due.
    let next = next.max(now + LEAST_PAUSE);
    state.looks_at = Some(next);
    Some((ticks, next))
}

async fn carry_out<E: Extend>(shared: &Shared<E>, tick: Tick) {
    let answers = shared.extend.extend(&tick.request, tick.deadline).await;
    let now = Instant::now();
    let mut failed = 0;
    let mut first = None;
    {
        let mut state = shared.state();
        for (((number, keeper), (_, seconds)), answer) in
            tick.holds.iter().zip(&tick.request).zip(&answers)
        {
            // It may have been settled meanwhile: who settles it waits for what is said here.
            let held = state.held.get_mut(number);
            shared.telemetry.extended(code(answer));
            match answer {
                Ok(_) => {
                    let until = tick.began + Duration::from_secs(*seconds);
                    keeper.extend_to(until);
                    if let Some(held) = held {
                        held.call = None;
                        held.until = until;
                        held.due = Some(half_way(now, until));
                    }
                }
                Err(error) if is_lost(error) => {
                    shared.lose(keeper);
                    state.held.remove(number);
                }
                Err(error) => {
                    failed += 1;
                    first.get_or_insert_with(|| error.clone());
                    if let Some(held) = held {
                        held.call = None;
                        held.due = Some(half_way(now, held.until).max(now + LEAST_PAUSE));
                    }
                }
            }
        }
        shared.telemetry.held(state.held.len());
    }
    if let Some(error) = first {
        shared.telemetry.not_extended(failed, &error);
    }
    drop(tick.under_way);
}

fn code(answer: &Answer) -> &str {
    answer.as_ref().map_or_else(|error| error.code(), |_| "")
}
