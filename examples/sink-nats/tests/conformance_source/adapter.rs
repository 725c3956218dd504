//! What each mode of the source declares.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::Outcome;
use sink_testkit::conformance::source::{
    Operation, SourceAdapter, SourceCapability, SourceFaultKind, SourceFixture, SourceProfile,
};
use sink_testkit::conformance::{ErrorRow, FixtureError};

use crate::fixture::StreamFixture;
use crate::live::server::find_program;
use crate::live::servers::Servers;
use crate::script::ENDS;

/// A stream that keeps what was consumed.
pub(crate) const LOG: &str = "log";
/// A stream that keeps a message until it is consumed, for one consumer.
pub(crate) const WORK_QUEUE: &str = "work-queue";

/// A server's default `max_payload`.
const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// The source on servers of its own.
pub(crate) struct Live {
    servers: Arc<Servers>,
}

impl Live {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        Self { servers }
    }
}

#[async_trait]
impl SourceAdapter for Live {
    fn name(&self) -> &str {
        "sink-nats-source"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        vec![profile(LOG), profile(WORK_QUEUE)]
    }

    fn unavailable(&self) -> Option<String> {
        match find_program() {
            Some(_) => None,
            None => Some("there is no nats-server on the PATH".to_owned()),
        }
    }

    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError> {
        let servers = Arc::clone(&self.servers);
        Ok(Box::new(StreamFixture::start(servers, profile).await?))
    }
}

/// Not declared, and why:
///
/// - `Order`, `Copies`: deliveries have no key, and the server delays retries itself.
/// - `Digests`: the protocol has none.
/// - `BatchedSettlement`: each settlement is a message.
/// - `HoldEnds`: a hold can be extended without end.
/// - `Expire`: whoever ends a hold from outside cannot keep its holder from consuming the
///   message, since the server takes the acknowledgement of any delivery.
/// - `NoticesLoss`: for the same reason only the source's own clock tells.
fn profile(mode: &str) -> SourceProfile {
    let mut profile = SourceProfile::new(mode)
        .with_capabilities([
            SourceCapability::Compete,
            SourceCapability::Attributes,
            SourceCapability::InHand,
            SourceCapability::HoldReturns,
            SourceCapability::SingleRetry,
            SourceCapability::Delay,
            SourceCapability::Extension,
            SourceCapability::Count,
            SourceCapability::Redrive,
            SourceCapability::DropAtCapIsDead,
            SourceCapability::Restart,
            SourceCapability::Forbidden,
            SourceCapability::SentAt,
            SourceCapability::Confirmed,
        ])
        .with_faults(faults());
    if mode == LOG {
        profile = profile.with_capabilities([SourceCapability::Groups]);
    }
    profile.hold = Duration::from_secs(2);
    profile.max_hold = Some(Duration::from_secs(86_400));
    profile.wait = Duration::from_millis(500);
    profile.max_delay = Some(Duration::from_secs(100 * 365 * 86_400));
    profile.timeout = Duration::from_secs(2);
    profile.max_message_bytes = Some(MAX_MESSAGE_BYTES);
    profile.error_table = error_table();
    profile
}

fn faults() -> Vec<(Operation, SourceFaultKind)> {
    const OPERATIONS: [Operation; 4] = [
        Operation::Receive,
        Operation::Ack,
        Operation::Return,
        Operation::Extend,
    ];
    const KINDS: [SourceFaultKind; 7] = [
        SourceFaultKind::HoldRequest,
        SourceFaultKind::HoldReply,
        SourceFaultKind::LoseRequest,
        SourceFaultKind::LoseReply,
        SourceFaultKind::Silence,
        SourceFaultKind::Internal,
        SourceFaultKind::Calls,
    ];
    let mut faults: Vec<_> = OPERATIONS
        .iter()
        .flat_map(|operation| KINDS.map(|kind| (*operation, kind)))
        .collect();
    faults.push((Operation::Receive, SourceFaultKind::Row));
    // A pull is of no message that is known beforehand.
    for operation in &OPERATIONS[1..] {
        faults.push((*operation, SourceFaultKind::Entry));
    }
    faults
}

/// A row for each way in which a server ends a pull with an error.
fn error_table() -> Vec<ErrorRow> {
    let rows = ENDS.iter();
    rows.map(|(name, class, ..)| ErrorRow::new(*name, *class, Outcome::NotStored))
        .collect()
}
