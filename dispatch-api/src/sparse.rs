//! Warnings of one kind, told now and then.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long one kind of warning rests.
const REST: Duration = Duration::from_secs(60);

/// Lets one warning of a kind through a minute, and counts the others: a fault that meets every
/// message of a busy sink is one line, not one a message.
///
/// Keep one for each kind of failure, where all that meet it share it; the time is tokio's.
///
/// ```
/// # let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// use dispatch_api::SparseLog;
///
/// static FOREIGN: SparseLog = SparseLog::new();
///
/// if let Some(count) = FOREIGN.due() {
///     tracing::warn!(count, "an answer names entries that were not asked about");
/// }
/// assert_eq!(FOREIGN.due(), None);
/// ```
#[derive(Debug, Default)]
pub struct SparseLog(Mutex<(Option<Instant>, u64)>);

impl SparseLog {
    /// One that has told nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Counts one, and says how many there were since the last that was told, this one
    /// included, if it is time to tell; `None` to say nothing now.
    pub fn due(&self) -> Option<u64> {
        // Both values are written one after the other: a panic leaves nothing half done.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, count) = &mut *state;
        *count += 1;
        if told.is_some_and(|told| told.elapsed() < REST) {
            return None;
        }
        *told = Some(Instant::now());
        Some(std::mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_is_told_a_minute_with_how_many_there_were() {
        let log = SparseLog::new();
        assert_eq!(log.due(), Some(1));
        assert_eq!(log.due(), None);
        tokio::time::advance(REST - Duration::from_millis(1)).await;
        assert_eq!(log.due(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(log.due(), Some(3));
        assert_eq!(log.due(), None);
    }
}
