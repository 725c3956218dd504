//! What the source declares.

use std::time::Duration;

use async_trait::async_trait;
use sink_testkit::conformance::FixtureError;
use sink_testkit::conformance::source::{
    SourceAdapter, SourceCapability, SourceFixture, SourceProfile,
};

use crate::fixture::GroupFixture;

/// Each record is a member's of its group.
pub(crate) const GROUP: &str = "group";

/// Time enough for the mock cluster to take in a member after another has left.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(8);

/// The source on brokers in this process.
pub(crate) struct Mocked;

#[async_trait]
impl SourceAdapter for Mocked {
    fn name(&self) -> &str {
        "sink-kafka-source"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        vec![profile()]
    }

    async fn fixture(&self, _: &SourceProfile) -> Result<Box<dyn SourceFixture>, FixtureError> {
        Ok(Box::new(GroupFixture::start().await?))
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
    profile.hold = Duration::from_millis(500);
    profile.wait = Duration::from_millis(500);
    profile.timeout = TIMEOUT;
    profile.max_message_bytes = Some(900_000);
    profile.wire_logs = &["librdkafka"];
    profile
}
