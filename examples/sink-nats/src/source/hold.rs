//! The hold on one received message, extended until it is settled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dispatch_api::{ErrorChain, Lease, LeaseKeeper};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::calls::Calls;

/// The least time between two tries to extend a hold.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// What extends a hold.
const PROGRESS: Bytes = Bytes::from_static(b"+WPI");

/// A hold: a task extends it at half of the time that is left, until it is ended or dropped.
/// It is lost when its time is over before the server confirmed an extension.
#[derive(Debug)]
pub(super) struct Hold {
    keeper: Arc<LeaseKeeper>,
    lease: Lease,
    extending: AbortHandle,
    /// Ends with the task.
    ended: watch::Receiver<()>,
}

impl Hold {
    /// Begins a hold on a message that came now.
    ///
    /// Must be called within a tokio runtime.
    pub(super) fn begin(calls: Arc<Calls>, reply: Arc<str>, ack_wait: Duration) -> Self {
        let until = Instant::now() + ack_wait;
        let (keeper, lease) = LeaseKeeper::new(Some(until));
        let keeper = Arc::new(keeper);
        let (running, ended) = watch::channel(());
        let extending = extend(calls, Arc::clone(&keeper), reply, ack_wait);
        let task = tokio::spawn(async move {
            let _running = running;
            extending.await;
        });
        Self {
            extending: task.abort_handle(),
            ended,
            keeper,
            lease,
        }
    }

    /// The holder's view.
    pub(super) fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Extends it no more, and returns when nothing does. Whether it still stands.
    ///
    /// An extension under way is not waited for: it was sent before whatever is sent next, by
    /// the same connection, and the server takes them in that order.
    pub(super) async fn end(&self) -> bool {
        self.extending.abort();
        // Nothing is ever sent: it ends with the task, or with its runtime.
        let _ = self.ended.clone().changed().await;
        let is_over = self
            .keeper
            .until()
            .is_some_and(|until| until <= Instant::now());
        if is_over {
            self.keeper.lose();
        }
        !self.keeper.is_lost()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.extending.abort();
    }
}

async fn extend(calls: Arc<Calls>, keeper: Arc<LeaseKeeper>, reply: Arc<str>, ack_wait: Duration) {
    let mut until = keeper.until().unwrap_or_else(|| Instant::now() + ack_wait);
    let mut due = until - ack_wait / 2;
    loop {
        sleep_until(due.min(until)).await;
        let began = Instant::now();
        if began >= until {
            keeper.lose();
            calls.telemetry.hold_lost();
            return;
        }
        let deadline = until.min(calls.deadline());
        match calls.acknowledge(&reply, PROGRESS, deadline).await {
            Ok(()) => {
                // The server counts from a moment after the request was made.
                until = began + ack_wait;
                keeper.extend_to(until);
            }
            Err(error) => {
                tracing::debug!(
                    stream = calls.stream,
                    durable = calls.durable,
                    error = %ErrorChain(&error),
                    "a hold could not be extended; it is tried again while it lasts"
                );
            }
        }
        let now = Instant::now();
        due = now + (until.saturating_duration_since(now) / 2).max(LEAST_PAUSE);
    }
}
