//! The task that extends the holds of a subscription.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::LeaseKeeper;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::client::GONE;
use super::lease::{Shared, half_way};
use super::queue::MAX_ENTRIES;
use super::wire::{HoldChange, QueueCall};

/// The least time between two tries to extend a hold.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// Starts the task. It ends when nothing is held.
pub(super) fn start(shared: Arc<Shared>) {
    tokio::spawn(async move {
        let mut calls = FuturesUnordered::new();
        while let Some((ticks, next)) = due(&shared, calls.is_empty()) {
            for tick in ticks {
                calls.push(extend(&shared, tick));
            }
            tokio::select! {
                Some(()) = calls.next() => {}
                () = shared.wake.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    });
}

/// One request.
struct Tick {
    holds: Vec<(u64, Arc<LeaseKeeper>)>,
    changes: Vec<HoldChange>,
    began: Instant,
    /// When the first of them is over.
    deadline: Instant,
    /// Ends the wait of those who settle meanwhile.
    under_way: watch::Sender<()>,
}

/// What is to be extended now, and when to look again. `None`: nothing is held.
fn due(shared: &Shared, is_idle: bool) -> Option<(Vec<Tick>, Instant)> {
    let hold = shared.client.settings.hold;
    let now = Instant::now();
    let mut state = shared.state();
    state.held.retain(|_, held| {
        let is_over = held.until <= now;
        if is_over {
            held.keeper.lose();
        }
        !is_over
    });
    if state.held.is_empty() && is_idle {
        // Under the lock, so that the next hold finds either this task or none.
        state.is_driven = false;
        return None;
    }
    // A little ahead, so that what was received together is extended together.
    let ahead = now + hold / 10;
    let is_due = state
        .held
        .values()
        .any(|held| held.call.is_none() && held.due.is_some_and(|due| due <= now));
    let mut numbers: Vec<u64> = Vec::new();
    if is_due {
        let held = state.held.iter();
        numbers.extend(held.filter_map(|(number, held)| {
            let is_near = held.call.is_none() && held.due.is_some_and(|due| due <= ahead);
            is_near.then_some(*number)
        }));
        numbers.sort_unstable();
    }
    let mut ticks = Vec::new();
    for part in numbers.chunks(MAX_ENTRIES) {
        let (under_way, call) = watch::channel(());
        let mut tick = Tick {
            holds: Vec::new(),
            changes: Vec::new(),
            began: now,
            deadline: now + hold,
            under_way,
        };
        for number in part {
            let Some(held) = state.held.get_mut(number) else {
                continue;
            };
            let time = hold.min(held.end.saturating_duration_since(now));
            if now + time <= held.until {
                // It ends when it ends.
                held.due = None;
                continue;
            }
            held.call = Some(call.clone());
            tick.holds.push((*number, Arc::clone(&held.keeper)));
            tick.changes.push(HoldChange {
                handle: held.handle.clone(),
                time,
            });
            tick.deadline = tick.deadline.min(held.until);
        }
        if !tick.holds.is_empty() {
            ticks.push(tick);
        }
    }
    let next = state.held.values().fold(now + hold, |next, held| {
        let due = held.due.filter(|_| held.call.is_none());
        next.min(held.until).min(due.unwrap_or(held.until))
    });
    Some((ticks, next))
}

async fn extend(shared: &Shared, tick: Tick) {
    let deadline = tick.deadline.min(shared.client.deadline());
    let times: Vec<Duration> = tick.changes.iter().map(|change| change.time).collect();
    let call = QueueCall::Extend(tick.changes);
    let answers = shared.client.change(call, deadline).await;
    let now = Instant::now();
    let mut state = shared.state();
    for (((number, keeper), time), answer) in tick.holds.iter().zip(times).zip(answers) {
        // It may be settled meanwhile: who settles it waits for this.
        let held = state.held.get_mut(number);
        match answer {
            Ok(_) => {
                let until = tick.began + time;
                keeper.extend_to(until);
                if let Some(held) = held {
                    held.call = None;
                    held.until = until;
                    held.due = Some(half_way(now, until));
                }
            }
            Err(error) if error.code() == GONE => {
                keeper.lose();
                state.held.remove(number);
            }
            Err(_) => {
                // Tried again while the hold lasts.
                if let Some(held) = held {
                    held.call = None;
                    held.due = Some(half_way(now, held.until).max(now + LEAST_PAUSE));
                }
            }
        }
    }
    drop(state);
    drop(tick.under_way);
}
