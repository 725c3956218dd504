//! What happened to every delivery.

/// What a consumer did with everything it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Deliveries received.
    pub received: u64,
    /// Settled with `ack`.
    pub acked: u64,
    /// Settled with `retry` or `retry_after`, by the handler's answer, panic or time-out.
    pub retried: u64,
    /// Settled with `drop`.
    pub dropped: u64,
    /// Given back without having been handled.
    pub given_back: u64,
    /// Given back because the handler still ran at the deadline.
    pub abandoned: u64,
    /// Settlements that are not known to have taken effect, whatever they were.
    pub unsettled: u64,
    /// Receives that failed.
    pub failed_receives: u64,
}

impl ConsumerReport {
    /// Whether every delivery is known to be settled.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.received == self.acked + self.retried + self.dropped + self.given_back + self.abandoned
    }
}
