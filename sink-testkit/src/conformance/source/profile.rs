//! What an adapter declares of its source.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fault::{Operation, SourceFaultKind};
use crate::conformance::{Clock, ErrorRow};

/// What a source promises in one mode, and with what its fixture can show it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceProfile {
    /// The mode's name, the same in every run.
    pub mode: String,
    /// What is declared.
    pub capabilities: BTreeSet<SourceCapability>,
    /// The faults that the fixture plays.
    pub faults: BTreeSet<(Operation, SourceFaultKind)>,
    /// The hold of a delivery in the suite: the shortest that is safe to work with. Default
    /// 30 s.
    pub hold: Duration,
    /// The longest hold that the source accepts.
    pub max_hold: Option<Duration>,
    /// The longest that a delivery is held from its receive on, whatever is extended, with
    /// [`SourceCapability::HoldEnds`]. Default: without end.
    pub hold_ends_after: Duration,
    /// How long a receive waits for a first message in the suite. Default 1 s.
    pub wait: Duration,
    /// What a delay is rounded up to; zero where it is not rounded.
    pub delay_step: Duration,
    /// The longest delay that is kept to; a longer one is shortened to it.
    pub max_delay: Option<Duration>,
    /// The highest cap of attempts that is accepted, with
    /// [`SourceCapability::Redrive`]; every cap where there is none.
    pub max_attempts: Option<u32>,
    /// How many messages may be held beyond those that were asked for. Default 0.
    pub prefetch: usize,
    /// How long a call to the broker may take. Default 5 s.
    pub timeout: Duration,
    /// The largest body.
    pub max_message_bytes: Option<usize>,
    /// Errors of a receive by the name of each. Their outcome says nothing here.
    pub error_table: Vec<ErrorRow>,
    /// Whose time passes.
    pub clock: Clock,
}

impl SourceProfile {
    /// A source that promises nothing but that what is not acknowledged comes back.
    pub fn new(mode: impl Into<String>) -> Self {
        Self {
            mode: mode.into(),
            capabilities: BTreeSet::new(),
            faults: BTreeSet::new(),
            hold: Duration::from_secs(30),
            max_hold: None,
            hold_ends_after: Duration::MAX,
            wait: Duration::from_secs(1),
            delay_step: Duration::ZERO,
            max_delay: None,
            max_attempts: None,
            prefetch: 0,
            timeout: Duration::from_secs(5),
            max_message_bytes: None,
            error_table: Vec::new(),
            clock: Clock::Real,
        }
    }

    /// Declares capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, these: impl IntoIterator<Item = SourceCapability>) -> Self {
        self.capabilities.extend(these);
        self
    }

    /// Declares faults.
    #[must_use]
    pub fn with_faults(
        mut self,
        these: impl IntoIterator<Item = (Operation, SourceFaultKind)>,
    ) -> Self {
        self.faults.extend(these);
        self
    }

    /// Whether it is declared.
    #[must_use]
    pub fn has(&self, capability: SourceCapability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// How long nothing has to come for it to count as nothing.
    #[must_use]
    pub fn margin(&self) -> Duration {
        match self.clock {
            Clock::Paused => Duration::from_secs(1),
            Clock::Real => Duration::from_millis(300),
        }
    }

    /// How long something may take to come, counted from what came last.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self.clock {
            Clock::Paused => Duration::from_secs(600),
            Clock::Real => Duration::from_secs(30),
        }
    }
}

/// What a source can declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SourceCapability {
    /// Two subscriptions of one group share the messages.
    Compete,
    /// Each group gets every message.
    Groups,
    /// A body that does not fit its digest is noticed.
    Digests,
    /// Messages of one key come in order, one at a time.
    Order,
    /// Names and values beside the body.
    Attributes,
    /// The fixture sees what is held.
    InHand,
    /// What is held comes back when the hold is over, while its subscription lives.
    HoldReturns,
    /// A message of its own comes back without the others.
    SingleRetry,
    /// The broker delays a retry.
    Delay,
    /// A retry is a copy, published by a sink.
    Copies,
    /// A hold is extended while the delivery lives.
    Extension,
    /// There is an end to all extensions.
    HoldEnds,
    /// The number of deliveries is counted by the broker.
    Count,
    /// Settlements travel many in one request.
    BatchedSettlement,
    /// The fixture ends a hold behind the source's back.
    Expire,
    /// A late settlement of a hold that somebody else has now is noticed.
    NoticesLoss,
    /// A cap of attempts, and a place for what reaches it.
    Redrive,
    /// A drop at the cap goes to that place too.
    DropAtCapIsDead,
    /// The fixture restarts the broker.
    Restart,
    /// The fixture has credentials that may not receive.
    Forbidden,
    /// When a message was sent.
    SentAt,
    /// A settlement is answered by the broker.
    Confirmed,
}

impl SourceCapability {
    /// The words of reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compete => "competing subscriptions",
            Self::Groups => "groups that each get all",
            Self::Digests => "digests",
            Self::Order => "order by key",
            Self::Attributes => "attributes",
            Self::InHand => "seeing what is held",
            Self::HoldReturns => "return after a hold",
            Self::SingleRetry => "retries of single messages",
            Self::Delay => "delayed retries",
            Self::Copies => "retries by copy",
            Self::Extension => "extension of a hold",
            Self::HoldEnds => "an end to all extensions",
            Self::Count => "a count of deliveries",
            Self::BatchedSettlement => "settlements in batches",
            Self::Expire => "ending a hold from outside",
            Self::NoticesLoss => "noticing that a hold was lost",
            Self::Redrive => "a cap of attempts",
            Self::DropAtCapIsDead => "a drop at the cap that is kept",
            Self::Restart => "restarting the broker",
            Self::Forbidden => "a forbidden place",
            Self::SentAt => "the time of sending",
            Self::Confirmed => "confirmed settlements",
        }
    }
}
