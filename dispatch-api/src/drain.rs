//! Counting what runs, and waiting for it to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{Outcome, SinkError};

/// What a drain found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// Deliveries that were running and are answered now.
    pub answered: u64,
    /// Deliveries still without an answer when the deadline came. Their callers
    /// get one when the sink's own timeout ends them.
    pub unanswered: u64,
}

impl DrainReport {
    /// A report of these counts.
    #[must_use]
    pub const fn new(answered: u64, unanswered: u64) -> Self {
        Self {
            answered,
            unanswered,
        }
    }

    /// Whether every delivery was answered in time.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unanswered == 0
    }

    /// The sum of two reports.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

const CLOSED: u64 = 1 << 63;

/// How often a drain hurries what waits.
const HURRY: Duration = Duration::from_millis(10);

/// Counts deliveries that run, so that a sink can be drained.
///
/// Entering and leaving are one atomic operation each. For sinks without a queue
/// of their own this is all that [`Sink::drain`](crate::Sink::drain) takes.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many run, and in the top bit whether it is closed.
    state: AtomicU64,
    idle: Notify,
}

impl InFlight {
    /// Nothing runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one delivery until the guard is dropped; `None` once closed.
    #[must_use]
    pub fn try_enter(&self) -> Option<InFlightGuard> {
        let before = self.shared.state.fetch_add(1, Ordering::AcqRel);
        let guard = InFlightGuard {
            shared: Arc::clone(&self.shared),
        };
        // Dropping the guard takes the count back.
        (before & CLOSED == 0).then_some(guard)
    }

    /// Counts one delivery until the guard is dropped.
    ///
    /// # Errors
    ///
    /// `Transient` with code `SinkClosed` once [`InFlight::drain`] was called.
    pub fn enter(&self) -> Result<InFlightGuard, SinkError> {
        self.try_enter().ok_or_else(|| {
            SinkError::transient(
                Outcome::NotStored,
                "SinkClosed",
                "the sink is drained and takes no more deliveries",
            )
        })
    }

    /// How many run now.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.state.load(Ordering::Acquire) & !CLOSED
    }

    /// Lets nobody in any more and waits until all have left or the deadline has
    /// come.
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        let running = self.shared.state.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        let all_left = async {
            loop {
                let mut idle = std::pin::pin!(self.shared.idle.notified());
                // Registered before the count is read: a guard that leaves in
                // between still wakes this.
                idle.as_mut().enable();
                if self.count() == 0 {
                    return;
                }
                idle.await;
            }
        };
        let unanswered = match timeout_at(deadline, all_left).await {
            Ok(()) => 0,
            Err(_) => self.count(),
        };
        DrainReport::new(running.saturating_sub(unanswered), unanswered)
    }

    /// As [`InFlight::drain`], and calls `hurry` at once and then every 10 ms: for those
    /// inside who wait for others, such as a batch that fills. A delivery that entered
    /// before the drain and waits only now is reached by a later call.
    pub async fn drain_hurrying(
        &self,
        deadline: Instant,
        mut hurry: impl FnMut() + Send,
    ) -> DrainReport {
        let hurried = async {
            loop {
                hurry();
                sleep(HURRY).await;
            }
        };
        tokio::select! {
            biased;
            report = self.drain(deadline) => report,
            () = hurried => DrainReport::default(),
        }
    }
}

/// One running delivery. Dropping it ends the count.
#[derive(Debug)]
pub struct InFlightGuard {
    shared: Arc<Shared>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let before = self.shared.state.fetch_sub(1, Ordering::AcqRel);
        if before == CLOSED | 1 {
            self.shared.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_those_inside_and_counts_them() {
        let in_flight = InFlight::new();
        let guard = in_flight.enter().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let draining = tokio::spawn({
            let in_flight = in_flight.clone();
            async move { in_flight.drain(deadline).await }
        });
        sleep(Duration::from_secs(1)).await;
        assert!(!draining.is_finished());
        drop(guard);
        assert_eq!(draining.await.unwrap(), DrainReport::new(1, 0));
        assert!(Instant::now() < deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_at_its_deadline_and_says_who_is_missing() {
        let in_flight = InFlight::new();
        let _first = in_flight.enter().unwrap();
        let _second = in_flight.enter().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let report = in_flight.drain(deadline).await;
        assert_eq!(report, DrainReport::new(0, 2));
        assert!(!report.is_complete());
        assert_eq!(Instant::now(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_enters_after_a_drain() {
        let in_flight = InFlight::new();
        in_flight.drain(Instant::now()).await;
        assert_eq!(in_flight.enter().unwrap_err().code(), "SinkClosed");
        assert_eq!(in_flight.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_drain_is_harmless() {
        let in_flight = InFlight::new();
        in_flight.drain(Instant::now()).await;
        assert_eq!(
            in_flight.drain(Instant::now()).await,
            DrainReport::new(0, 0)
        );
    }
}
