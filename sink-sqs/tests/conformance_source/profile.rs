//! What a queue declares as a source wherever it is.

use std::time::Duration;

use sink_testkit::conformance::source::{SourceCapability, SourceProfile};

/// Standard and FIFO queues, settled one by one and batched.
pub(crate) const MODES: [&str; 4] = [
    "standard-single",
    "standard-batched",
    "fifo-single",
    "fifo-batched",
];

const TWELVE_HOURS: Duration = Duration::from_secs(12 * 3_600);

pub(crate) fn is_fifo(mode: &str) -> bool {
    mode.starts_with("fifo")
}

pub(crate) fn is_batched(mode: &str) -> bool {
    mode.ends_with("batched")
}

pub(crate) fn queue_profile(mode: &str) -> SourceProfile {
    let mut profile = SourceProfile::new(mode).with_capabilities([
        SourceCapability::Compete,
        SourceCapability::Digests,
        SourceCapability::Attributes,
        SourceCapability::InHand,
        SourceCapability::HoldReturns,
        SourceCapability::SingleRetry,
        SourceCapability::Delay,
        SourceCapability::Extension,
        SourceCapability::Count,
        SourceCapability::Redrive,
        SourceCapability::DropAtCapIsDead,
        SourceCapability::SentAt,
        SourceCapability::Confirmed,
    ]);
    if is_fifo(mode) {
        profile = profile.with_capabilities([SourceCapability::Order]);
    }
    if is_batched(mode) {
        profile = profile.with_capabilities([SourceCapability::BatchedSettlement]);
    }
    profile.hold = Duration::from_secs(2);
    profile.max_hold = Some(TWELVE_HOURS);
    profile.wait = Duration::from_secs(1);
    profile.delay_step = Duration::from_secs(1);
    profile.max_delay = Some(TWELVE_HOURS);
    // What a redrive policy takes.
    profile.max_attempts = Some(1_000);
    // Half of what a receive has beside its waiting time, and more than other requests have.
    profile.timeout = Duration::from_secs(6);
    profile
}
