//! Stopping in order.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Whether the host was told to stop, and until when what runs may finish.
///
/// Cheap to clone; all clones see the same.
#[derive(Clone, Debug)]
pub struct Stop {
    deadline: watch::Sender<Option<Instant>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Not told to stop.
    #[must_use]
    pub fn new() -> Self {
        Self {
            deadline: watch::Sender::new(None),
        }
    }

    /// Takes nothing new from now on; what runs has until `deadline`. A second call can
    /// only bring the deadline nearer.
    pub fn request(&self, deadline: Instant) {
        self.deadline.send_modify(|known| {
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        });
    }

    /// Returns when the host is told to stop.
    pub async fn requested(&self) {
        let mut deadline = self.deadline.subscribe();
        // The sender lives as long as `self`.
        let _ = deadline.wait_for(Option::is_some).await;
    }

    /// Returns when what still runs has to end.
    pub async fn deadline_passed(&self) {
        let mut changes = self.deadline.subscribe();
        loop {
            let deadline = *changes.borrow_and_update();
            let passed = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_second_request_only_brings_the_deadline_nearer() {
        let stop = Stop::new();
        let start = Instant::now();
        stop.request(start + Duration::from_secs(10));
        stop.request(start + Duration::from_secs(60));
        stop.requested().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        stop.deadline_passed().await;
        assert_eq!(start.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_deadline_is_seen_by_those_who_wait_for_the_far_one() {
        let stop = Stop::new();
        let start = Instant::now();
        stop.request(start + Duration::from_secs(60));
        let waiting = tokio::spawn({
            let stop = stop.clone();
            async move { stop.deadline_passed().await }
        });
        tokio::task::yield_now().await;
        stop.request(start + Duration::from_secs(1));
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}
