//! What the source declares.

use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::Outcome;
use sink_testkit::conformance::source::{
    Operation, SourceAdapter, SourceCapability, SourceFaultKind, SourceFixture, SourceProfile,
};
use sink_testkit::conformance::{ErrorRow, FixtureError};
use tokio::runtime::Handle;

use crate::fixture::GroupFixture;
use crate::script::ROWS;

/// Each record is a member's of its group.
pub(crate) const GROUP: &str = "group";

/// Time enough for the mock cluster to take in a member after another has left.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(12);

/// The source on brokers in this process.
pub(crate) struct Mocked {
    /// Of what has to go on while a case's own runtime stands still.
    runtime: Handle,
}

impl Mocked {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime }
    }
}

#[async_trait]
impl SourceAdapter for Mocked {
    fn name(&self) -> &str {
        "sink-kafka-source"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        vec![profile()]
    }

    async fn fixture(&self, _: &SourceProfile) -> Result<Box<dyn SourceFixture>, FixtureError> {
        Ok(Box::new(GroupFixture::start(&self.runtime).await?))
    }
}

/// Not declared, and why:
///
/// - `HoldReturns`, `Extension`, `HoldEnds`, `Expire`, `NoticesLoss`: a record has no hold; it
///   is its member's as long as that has the partition.
/// - `SingleRetry`, `Delay`: a retry is a copy, delayed or not.
/// - `Digests`: brokers check a batch, and the client asks them again.
/// - `InHand`: brokers know what is committed, and not what is handed out.
/// - `BatchedSettlement`: a commit is a position, which says nothing of single records.
/// - `SentAt`: a topic's time is its producer's, unless it is configured otherwise.
/// - Faults of a return or an extension: no request stands for one.
/// - Fetches and their replies that are lost: the client connects anew by itself, and no receive
///   hears of it.
pub(crate) fn profile() -> SourceProfile {
    let mut profile = SourceProfile::new(GROUP).with_capabilities([
        SourceCapability::Compete,
        SourceCapability::Groups,
        SourceCapability::Attributes,
        SourceCapability::Order,
        SourceCapability::Copies,
        SourceCapability::Count,
        SourceCapability::Confirmed,
        SourceCapability::Redrive,
        SourceCapability::DropAtCapIsDead,
        SourceCapability::Restart,
        SourceCapability::Forbidden,
    ]);
    profile = profile.with_faults([
        (Operation::Receive, SourceFaultKind::HoldRequest),
        (Operation::Receive, SourceFaultKind::HoldReply),
        (Operation::Receive, SourceFaultKind::Silence),
        (Operation::Receive, SourceFaultKind::Row),
        (Operation::Receive, SourceFaultKind::Internal),
        (Operation::Receive, SourceFaultKind::Calls),
        (Operation::Ack, SourceFaultKind::HoldRequest),
        (Operation::Ack, SourceFaultKind::HoldReply),
        (Operation::Ack, SourceFaultKind::LoseRequest),
        (Operation::Ack, SourceFaultKind::LoseReply),
        (Operation::Ack, SourceFaultKind::Silence),
        (Operation::Ack, SourceFaultKind::Internal),
        (Operation::Ack, SourceFaultKind::Calls),
        // There are none.
        (Operation::Return, SourceFaultKind::Calls),
        (Operation::Extend, SourceFaultKind::Calls),
    ]);
    let rows = ROWS.iter();
    profile.error_table = rows
        .map(|(name, class, _)| ErrorRow::new(*name, *class, Outcome::NotStored))
        .collect();
    // A new producer takes up to a second for its first record, and half of a longer hold is
    // what the suite gives a copy.
    profile.hold = Duration::from_secs(1);
    profile.wait = Duration::from_millis(500);
    profile.timeout = TIMEOUT;
    profile.max_message_bytes = Some(900_000);
    profile
}
