//! Holds on messages, from their receive to their settlement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dispatch_api::{Lease, LeaseKeeper};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::client::Client;
use super::extender;
use super::place::MAX_HOLD;

/// The holds of one subscription. One task extends them; it starts with the first and ends
/// with the last.
pub(super) struct Leases {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) client: Arc<Client>,
    state: Mutex<State>,
    /// There is another hold to look at.
    pub(super) wake: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) held: HashMap<u64, Held>,
    begun: u64,
    pub(super) is_driven: bool,
}

pub(super) struct Held {
    pub(super) handle: String,
    pub(super) keeper: Arc<LeaseKeeper>,
    pub(super) until: Instant,
    /// When it is extended; `None` when it is not.
    pub(super) due: Option<Instant>,
    /// When nothing extends it any more.
    pub(super) end: Instant,
    /// Ends with the call that extends it now.
    pub(super) call: Option<watch::Receiver<()>>,
}

/// A hold as its delivery has it.
pub(super) struct Hold {
    /// `None` where holds have no end.
    number: Option<u64>,
    pub(super) lease: Lease,
    pub(super) end: Option<Instant>,
}

impl Leases {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                state: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    /// A hold without an end.
    pub(super) fn unlimited() -> Hold {
        Hold {
            number: None,
            lease: Lease::unlimited(),
            end: None,
        }
    }

    /// Begins a hold on a message that was handed out no sooner than `since`; `None` if it is
    /// over already.
    pub(super) fn begin(&self, handle: &str, since: Instant) -> Option<Hold> {
        let settings = &self.shared.client.settings;
        let until = since + settings.hold;
        let now = Instant::now();
        if until <= now {
            return None;
        }
        let end = since + MAX_HOLD;
        let (keeper, lease) = LeaseKeeper::new(Some(until));
        let mut state = self.shared.state();
        state.begun += 1;
        let number = state.begun;
        let held = Held {
            handle: handle.to_owned(),
            keeper: Arc::new(keeper),
            until,
            due: settings.extends.then(|| half_way(now, until)),
            end,
            call: None,
        };
        state.held.insert(number, held);
        match state.is_driven {
            true => self.shared.wake.notify_one(),
            false => {
                state.is_driven = true;
                extender::start(Arc::clone(&self.shared));
            }
        }
        Some(Hold {
            number: Some(number),
            lease,
            end: Some(end),
        })
    }

    /// Extends a hold no more, and returns when no call that extends it is under way. Whether
    /// the message is still held.
    pub(super) async fn end(&self, hold: &Hold) -> bool {
        let Some(number) = hold.number else {
            return true;
        };
        let removed = self.shared.state().held.remove(&number);
        let Some(mut held) = removed else {
            return false;
        };
        if let Some(call) = &mut held.call {
            // Nothing is ever sent: it ends with the call.
            let _ = call.changed().await;
        }
        let until = held.keeper.until().unwrap_or(held.until);
        if until <= Instant::now() {
            held.keeper.lose();
        }
        !held.keeper.is_lost()
    }

    /// Extends a hold no more.
    pub(super) fn forget(&self, hold: &Hold) {
        if let Some(number) = hold.number {
            self.shared.state().held.remove(&number);
        }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a hold is extended: early enough for a call that fails to be repeated.
pub(super) fn half_way(now: Instant, until: Instant) -> Instant {
    now + until.saturating_duration_since(now) / 2
}
