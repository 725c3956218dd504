//! The server's own time.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use super::lock;

/// The wall clock that a server lives by.
///
/// Everything the server decides by time uses it: visibility, delays, retention, deduplication, the age of
/// a signature, the `Date` header. It runs on with tokio's time, so a paused tokio clock stops it, and a
/// test moves it by hand. A receive that is waiting wakes when the clock is moved.
///
/// Clones share one clock, so two servers can be given the same one.
#[derive(Clone)]
pub struct Clock {
    inner: Arc<Inner>,
}

struct Inner {
    anchor: Mutex<Anchor>,
    moved: watch::Sender<u64>,
}

/// The wall time that belongs to one instant; all others follow from it.
struct Anchor {
    wall: Timestamp,
    instant: Instant,
}

impl Clock {
    /// A clock that starts at the machine's time.
    #[must_use]
    pub fn system() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a server learns what day it is; from here on only tokio's time counts"
        )]
        let now = SystemTime::now();
        Self::starting_at(now)
    }

    /// A clock that starts at `start`.
    #[must_use]
    pub fn starting_at(start: SystemTime) -> Self {
        Self {
            inner: Arc::new(Inner {
                anchor: Mutex::new(Anchor {
                    wall: Timestamp::from_system(start),
                    instant: Instant::now(),
                }),
                moved: watch::Sender::new(0),
            }),
        }
    }

    /// The time it is on this clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.timestamp().to_system()
    }

    /// Moves the clock forward and wakes what waits on it.
    pub fn advance(&self, by: Duration) {
        {
            let mut anchor = lock(&self.inner.anchor);
            anchor.wall = anchor.wall.plus(by);
        }
        self.announce();
    }

    /// Sets the clock, backwards too, and wakes what waits on it. A time before 1970 counts as 1970.
    pub fn set(&self, to: SystemTime) {
        {
            let mut anchor = lock(&self.inner.anchor);
            *anchor = Anchor {
                wall: Timestamp::from_system(to),
                instant: Instant::now(),
            };
        }
        self.announce();
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        let anchor = lock(&self.inner.anchor);
        anchor.wall.plus(anchor.instant.elapsed())
    }

    /// Returns once the clock shows `wake` or later, however it got there.
    pub(crate) async fn sleep_until(&self, wake: Timestamp) {
        let mut moved = self.inner.moved.subscribe();
        loop {
            moved.mark_unchanged();
            let now = self.timestamp();
            if now >= wake {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wake.since(now)) => {}
                _ = moved.changed() => {}
            }
        }
    }

    fn announce(&self) {
        self.inner
            .moved
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).finish()
    }
}

/// A moment on the server's clock, as the time since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Timestamp(Duration);

impl Timestamp {
    pub(crate) const MAX: Self = Self(Duration::MAX);

    pub(crate) fn from_system(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    pub(crate) const fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) fn to_system(self) -> SystemTime {
        UNIX_EPOCH.checked_add(self.0).unwrap_or(UNIX_EPOCH)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time from `earlier` to here; nothing when `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn seconds(self) -> u64 {
        self.0.as_secs()
    }

    pub(crate) fn millis(self) -> u128 {
        self.0.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_runs_on_with_tokios_time() {
        let clock = Clock::starting_at(UNIX_EPOCH + Duration::from_secs(1_000));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), UNIX_EPOCH + Duration::from_secs(1_005));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_wakes_when_the_clock_is_moved_past_its_time() {
        let clock = Clock::starting_at(UNIX_EPOCH);
        let started = Instant::now();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(Timestamp::from_seconds(3_600)).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(3_600));
        sleeper.await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[test]
    fn a_time_before_1970_counts_as_1970() {
        assert_eq!(
            Timestamp::from_system(UNIX_EPOCH - Duration::from_secs(1)),
            Timestamp::from_seconds(0)
        );
    }
}
