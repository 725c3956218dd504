//! What a consumer runs, and whom it tells.

use std::time::Duration;

use crate::settle::{Received, SettleError, Settlement, SourceError};

/// Handles one delivery. Every `Fn(Received) -> impl Future<Output = Settlement>` is one.
pub trait Handler: Send + Sync + 'static {
    /// Handles it and says what becomes of it.
    ///
    /// The future is dropped when its time is over, when the consumer's deadline comes, and
    /// is not told otherwise; [`Received::lease`] tells when the hold is lost.
    fn handle(&self, received: Received) -> impl Future<Output = Settlement> + Send;
}

impl<F, R> Handler for F
where
    F: Fn(Received) -> R + Send + Sync + 'static,
    R: Future<Output = Settlement> + Send,
{
    fn handle(&self, received: Received) -> impl Future<Output = Settlement> + Send {
        self(received)
    }
}

/// Is told what a consumer does, for logs and metrics. The methods return at once; one that
/// panics is ignored.
pub trait Observer: Send + Sync + 'static {
    /// A delivery was settled, or its settlement is not known to have taken effect.
    fn settled(
        &self,
        _received: &Received,
        _settlement: Settlement,
        _result: Result<(), &SettleError>,
    ) {
    }

    /// A handler panicked; its delivery is a retry.
    fn handler_panicked(&self, _received: &Received) {}

    /// A handler took longer than its time; its delivery is a retry.
    fn handler_timed_out(&self, _received: &Received) {}

    /// A receive failed, the `in_a_row`-th one; the next comes after `pause`.
    fn receive_failed(&self, _error: &SourceError, _in_a_row: u64, _pause: Duration) {}

    /// A receive succeeded after `failures` in a row had failed.
    fn receive_recovered(&self, _failures: u64) {}
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NoObserver;

impl Observer for NoObserver {}
