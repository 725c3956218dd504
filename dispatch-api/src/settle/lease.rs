//! For how long a delivery is one's own.

use std::fmt;

use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone, Copy)]
struct State {
    until: Option<Instant>,
    is_lost: bool,
}

/// The holder's view of a hold on a delivery. Cheap to clone.
///
/// While it is held, the broker gives the message to nobody else. It is extended by the
/// source, and can be lost all the same: the broker said so, or nobody could extend it in
/// time, or the broker's own limit was reached. Then somebody else may have the message,
/// and what the handler still does can be done twice.
#[derive(Clone)]
pub struct Lease {
    state: watch::Receiver<State>,
}

impl Lease {
    /// A hold without an end that cannot be lost, for brokers that have none.
    #[must_use]
    pub fn unlimited() -> Self {
        LeaseKeeper::new(None).1
    }

    /// When it ends unless it is extended; `None` where it has no end of its own.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.state.borrow().until
    }

    /// Whether it was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state.borrow().is_lost
    }

    /// Returns once it is lost; never, where that does not happen.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| state.is_lost).await.is_err() {
            // Nobody can say any more that it was lost: it was settled.
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("until", &self.until())
            .field("is_lost", &self.is_lost())
            .finish()
    }
}

/// The source's side of a [`Lease`].
///
/// Only [`lose`](LeaseKeeper::lose) makes a hold lost: an end that has passed does not by
/// itself. A keeper that is dropped leaves the lease as it is, and [`Lease::lost`] of a hold
/// that was not lost then never returns. Times are those of tokio's clock.
pub struct LeaseKeeper {
    state: watch::Sender<State>,
}

impl LeaseKeeper {
    /// A hold that ends at `until`, and its holder's view.
    #[must_use]
    pub fn new(until: Option<Instant>) -> (Self, Lease) {
        let (sender, receiver) = watch::channel(State {
            until,
            is_lost: false,
        });
        (Self { state: sender }, Lease { state: receiver })
    }

    /// The hold now ends at `until`, sooner or later than before. Has no effect once it is
    /// lost.
    pub fn extend_to(&self, until: Instant) {
        self.state.send_if_modified(|state| {
            if state.is_lost {
                return false;
            }
            state.until = Some(until);
            true
        });
    }

    /// The hold is lost.
    pub fn lose(&self) {
        self.state.send_modify(|state| state.is_lost = true);
    }

    /// When it ends unless it is extended.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.state.borrow().until
    }

    /// Whether it is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state.borrow().is_lost
    }
}

impl fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = *self.state.borrow();
        f.debug_struct("LeaseKeeper")
            .field("until", &state.until)
            .field("is_lost", &state.is_lost)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_lost_hold_tells_all_who_wait_and_is_not_extended_any_more() {
        let begun = Instant::now();
        let (keeper, lease) = LeaseKeeper::new(Some(begun));
        keeper.extend_to(begun + Duration::from_secs(30));
        assert_eq!(lease.until(), Some(begun + Duration::from_secs(30)));
        let waiting = tokio::spawn({
            let lease = lease.clone();
            async move { lease.lost().await }
        });
        keeper.lose();
        waiting.await.unwrap();
        keeper.extend_to(begun + Duration::from_secs(60));
        assert!(lease.is_lost());
        assert_eq!(lease.until(), Some(begun + Duration::from_secs(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_settled_hold_is_never_lost() {
        let (keeper, lease) = LeaseKeeper::new(None);
        drop(keeper);
        let lost = tokio::time::timeout(Duration::from_secs(3_600), lease.lost()).await;
        assert!(lost.is_err());
    }
}
