//! Holds on received messages, extended until they are settled.

mod extender;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::{Answer, Lease, LeaseKeeper};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::telemetry::ConsumerTelemetry;

/// How long after its receive a message can be held at most, by the service's rule.
const MAX_HOLD: Duration = Duration::from_secs(12 * 3_600);

/// What is kept from the end of the twelve hours: the service counts from a moment that is
/// known here only roughly, and refuses what ends later.
const END_MARGIN: Duration = Duration::from_secs(10);

/// Extends holds: the call behind a tick.
pub(crate) trait Extend: Send + Sync + 'static {
    /// Hides up to ten messages for so many seconds from now on, and answers each, by
    /// position.
    fn extend(
        &self,
        holds: &[(Arc<str>, u64)],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Answer>> + Send;
}

/// The holds of one subscription. Each is extended from its beginning on at half of the time
/// that is left, and is lost when the service says so or its time is over.
///
/// One task extends them all. It starts with the first hold, on that one's runtime, and ends
/// with the last.
pub(crate) struct Leases<E> {
    shared: Arc<Shared<E>>,
}

struct Shared<E> {
    extend: Arc<E>,
    /// For how long a message is hidden at a time.
    visibility: Duration,
    telemetry: ConsumerTelemetry,
    state: Mutex<State>,
    /// The task has something to look at.
    wake: Notify,
}

#[derive(Default)]
struct State {
    held: HashMap<u64, Held>,
    /// How many holds there were: the number of the latest.
    begun: u64,
    is_driven: bool,
    /// When the task looks again by itself; none while it has not looked yet.
    looks_at: Option<Instant>,
}

struct Held {
    handle: Arc<str>,
    keeper: Arc<LeaseKeeper>,
    until: Instant,
    /// When it is extended; `None` when it cannot be any more.
    due: Option<Instant>,
    /// When the service lets nobody hold it any more.
    end: Instant,
    /// Ends when the call ends that extends it.
    call: Option<watch::Receiver<()>>,
}

/// A hold as its delivery has it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    pub(crate) end: Instant,
}

impl<E: Extend> Leases<E> {
    pub(crate) fn new(extend: Arc<E>, visibility: Duration, telemetry: ConsumerTelemetry) -> Self {
        Self {
            shared: Arc::new(Shared {
                extend,
                visibility,
                telemetry,
                state: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    /// Begins a hold on a message that was asked for at `asked` and came now.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn begin(&self, handle: Arc<str>, asked: Instant) -> Hold {
        let now = Instant::now();
        let until = now + self.shared.visibility;
        let end = asked + MAX_HOLD - END_MARGIN;
        let (keeper, lease) = LeaseKeeper::new(Some(until));
        let mut state = self.shared.state();
        state.begun += 1;
        let number = state.begun;
        let held = Held {
            handle,
            keeper: Arc::new(keeper),
            until,
            due: Some(half_way(now, until)),
            end,
            call: None,
        };
        let due = held.due.unwrap_or(until);
        state.held.insert(number, held);
        self.shared.telemetry.held(state.held.len());
        if state.is_driven {
            if state.looks_at.is_some_and(|looks_at| due < looks_at) {
                self.shared.wake.notify_one();
            }
        } else {
            state.is_driven = true;
            state.looks_at = None;
            extender::start(Arc::clone(&self.shared));
        }
        Hold { number, lease, end }
    }

    /// Extends a hold no more, and returns when no call that extends it is under way: what
    /// comes next is the last word. Whether the hold still stands.
    pub(crate) async fn end(&self, number: u64) -> bool {
        let Some(mut held) = self.remove(number) else {
            return false;
        };
        if let Some(call) = &mut held.call {
            // Nothing is ever sent: it ends with the call, or with its runtime.
            let _ = call.changed().await;
        }
        if !held.keeper.is_lost() && held.keeper_until() <= Instant::now() {
            self.shared.lose(&held.keeper);
        }
        !held.keeper.is_lost()
    }

    /// Extends a hold no more.
    pub(crate) fn forget(&self, number: u64) {
        self.remove(number);
    }

    fn remove(&self, number: u64) -> Option<Held> {
        let mut state = self.shared.state();
        let held = state.held.remove(&number)?;
        self.shared.telemetry.held(state.held.len());
        Some(held)
    }

    /// How many holds are extended.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.shared.state().held.len()
    }
}

impl Held {
    fn keeper_until(&self) -> Instant {
        // A call that was waited for can have extended it after it was removed.
        self.keeper.until().unwrap_or(self.until)
    }
}

impl<E> Shared<E> {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete or none.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, keeper: &LeaseKeeper) {
        keeper.lose();
        self.telemetry.hold_lost();
    }
}

/// When a hold is extended: early enough for a call that fails to be repeated.
fn half_way(now: Instant, until: Instant) -> Instant {
    now + until.saturating_duration_since(now) / 2
}

impl<E> fmt::Debug for Leases<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("held", &self.shared.state().held.len())
            .finish_non_exhaustive()
    }
}
