//! What the sink declares.

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Guarantees, Ordering, Outcome};
use sink_testkit::conformance::{
    Adapter, Capability, ErrorRow, FaultKind, FixtureError, Profile, SinkFixture,
};
use tokio::runtime::Handle;

use crate::fixture::TopicFixture;

/// The sink's default.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_000_000;

/// One record a request.
pub(crate) const SINGLE: &str = "single";
/// The client's defaults: what is handed over within 5 ms may share a request. The suite
/// knows batches only as a sink's own, so the requests of this mode are not counted.
pub(crate) const SHARED: &str = "shared";

/// The sink on brokers in this process.
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
impl Adapter for Mocked {
    fn name(&self) -> &str {
        "sink-kafka"
    }

    fn profiles(&self) -> Vec<Profile> {
        vec![profile(SINGLE), profile(SHARED)]
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        Ok(Box::new(
            TopicFixture::mocked(&self.runtime, &profile.mode).await?,
        ))
    }
}

/// What the client tries again by itself is no fault that a delivery sees: a lost request or
/// reply, and the refusals that the brokers take back in time. After a silence its own timers
/// decide when it goes on. A broker takes the requests of a connection in turns, and the client
/// has one connection to it, so that what is held holds up the rest.
fn profile(mode: &str) -> Profile {
    let mut profile = anywhere(mode)
        .with_capabilities([Capability::Restart])
        .with_faults([
            FaultKind::HoldRequest,
            FaultKind::HoldReply,
            FaultKind::Row,
            FaultKind::UnknownError,
            FaultKind::Throttle,
        ]);
    if mode == SINGLE {
        profile = profile.with_faults([FaultKind::Requests]);
    }
    profile.error_table = error_table();
    profile
}

/// What the sink declares on any brokers.
pub(crate) fn anywhere(mode: &str) -> Profile {
    let guarantees = Guarantees::new(true)
        .with_max_message_bytes(MAX_MESSAGE_BYTES)
        .with_ordering(Ordering::PerKeyWhenAwaited);
    Profile::new(mode, guarantees).with_capabilities([
        Capability::Receipt,
        Capability::Key,
        Capability::Conflicts,
        Capability::OwnBounds,
        Capability::Telemetry,
        Capability::Description,
    ])
}

/// A row for each refusal of the sink's documentation that the client hands on at once.
fn error_table() -> Vec<ErrorRow> {
    let not_stored = Outcome::NotStored;
    [
        ("MSG_SIZE_TOO_LARGE", ErrorClass::Permanent, not_stored),
        ("INVALID_RECORD", ErrorClass::Permanent, not_stored),
        ("INVALID_TIMESTAMP", ErrorClass::Permanent, not_stored),
        ("TOPIC_AUTHORIZATION_FAILED", ErrorClass::Config, not_stored),
        ("POLICY_VIOLATION", ErrorClass::Config, not_stored),
        ("UNKNOWN", ErrorClass::Transient, Outcome::Unknown),
    ]
    .map(|(name, class, outcome)| ErrorRow::new(name, class, outcome))
    .to_vec()
}
