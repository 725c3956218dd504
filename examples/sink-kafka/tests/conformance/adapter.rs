//! What the sink declares.

use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Guarantees, Ordering, Outcome};
use sink_testkit::conformance::{
    Adapter, Capability, ErrorRow, FaultKind, FixtureError, Profile, SinkFixture,
};
use tokio::runtime::Handle;

use crate::fixture::TopicFixture;

/// The sink's default.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_000_000;
/// The sink's default.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Long enough for a delivery among others that keep the machine busy, and short enough to
/// wait for the end of those that nobody answers.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// The client looks once a second for what is out of time, and connects anew then.
const RECOVERY: Duration = Duration::from_secs(5);

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

/// The mode's profile on brokers that play faults. A broker takes the requests of a connection
/// in turns, and the client has one connection to it, so that what is held holds up the rest.
fn profile(mode: &str) -> Profile {
    let mut profile = anywhere(mode)
        .with_capabilities([
            Capability::Restart,
            Capability::IdleClose,
            Capability::Credentials,
            Capability::ForbiddenDestination,
            Capability::DestinationLimit,
        ])
        .with_faults([
            FaultKind::HoldRequest,
            FaultKind::HoldReply,
            FaultKind::LoseRequest,
            FaultKind::LoseReply,
            FaultKind::Silence,
            FaultKind::Row,
            FaultKind::UnknownError,
            FaultKind::Throttle,
        ]);
    if mode == SINGLE {
        // Each foreign page takes a delivery's whole time: once is enough.
        profile = profile.with_faults([
            FaultKind::Garbage,
            FaultKind::ForeignError,
            FaultKind::Requests,
        ]);
    }
    profile.timeout = TIMEOUT;
    profile.recovery = RECOVERY;
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
        Capability::Unreachable,
        Capability::Key,
        Capability::Conflicts,
        Capability::OwnBounds,
        Capability::Telemetry,
        Capability::Description,
        Capability::ServerAddress,
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
