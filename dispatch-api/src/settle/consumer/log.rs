//! What an operator reads of a consumer that nobody else observes.

use std::time::Duration;

use super::handler::Observer;
use crate::error::ErrorChain;
use crate::settle::{Received, SettleError, Settlement, SourceError};
use crate::sparse::SparseLog;

/// Logs what goes wrong, sparsely, through `tracing`: what a [`Consumer`](super::Consumer) does
/// unless it is given another observer.
///
/// Failed receives are warnings at the first, second, fourth and so on in a row, and told again
/// when they are over. Panics and time-outs of handlers, and settlements that are not known to
/// have taken effect, are warnings at most once a minute each, with how many there were. No
/// payload is shown.
#[derive(Debug, Default)]
pub struct LogObserver {
    panicked: SparseLog,
    timed_out: SparseLog,
    unsettled: SparseLog,
}

impl LogObserver {
    /// One that has logged nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Observer for LogObserver {
    fn settled(
        &self,
        received: &Received,
        settlement: Settlement,
        result: Result<(), &SettleError>,
    ) {
        if let Err(error) = result
            && let Some(count) = self.unsettled.due()
        {
            tracing::warn!(
                message_id = received.id(),
                settlement = settlement.as_str(),
                count,
                error = %ErrorChain(error),
                "a settlement is not known to have taken effect: the message may come again"
            );
        }
    }

    fn handler_panicked(&self, received: &Received) {
        if let Some(count) = self.panicked.due() {
            tracing::warn!(
                message_id = received.id(),
                count,
                "a handler panicked: its delivery is a retry"
            );
        }
    }

    fn handler_timed_out(&self, received: &Received) {
        if let Some(count) = self.timed_out.due() {
            tracing::warn!(
                message_id = received.id(),
                count,
                "a handler took longer than handler_timeout: its delivery is a retry"
            );
        }
    }

    fn receive_failed(&self, error: &SourceError, in_a_row: u64, pause: Duration) {
        if in_a_row.is_power_of_two() {
            tracing::warn!(
                in_a_row,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                error = %ErrorChain(error),
                "cannot receive; trying again"
            );
        }
    }

    fn receive_recovered(&self, failures: u64) {
        tracing::warn!(failures, "receiving again");
    }
}
