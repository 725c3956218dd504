//! What each mode of the sink declares.

use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Guarantees, Ordering, Outcome};
use sink_testkit::conformance::{
    Adapter, Batching, Capability, ErrorRow, FaultKind, FixtureError, KeyParts, Profile,
    SinkFixture,
};

use crate::fixture::QueueFixture;

const MODES: [&str; 5] = [
    "standard-batched",
    "standard-single",
    // A standard queue that is told whose each message is.
    "fair-batched",
    "fifo-batched",
    "fifo-single",
];

/// The service's limit of one message, and its default for a queue.
const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// The sink on the in-process server, which plays every fault.
pub(crate) struct InProcess;

#[async_trait]
impl Adapter for InProcess {
    fn name(&self) -> &str {
        "sink-sqs"
    }

    fn profiles(&self) -> Vec<Profile> {
        MODES.map(profile).to_vec()
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        Ok(Box::new(QueueFixture::start(profile).await?))
    }
}

fn profile(mode: &str) -> Profile {
    let is_fifo = mode.starts_with("fifo");
    let is_batched = mode.ends_with("batched");
    let mut guarantees = Guarantees::new(true)
        .with_max_message_bytes(MAX_MESSAGE_BYTES)
        .with_max_attributes(10);
    if is_fifo {
        guarantees = guarantees
            .with_dedup_window(Duration::from_secs(300))
            .with_ordering(match is_batched {
                true => Ordering::PerKey,
                false => Ordering::PerKeyWhenAwaited,
            });
    }
    let mut profile = Profile::new(mode, guarantees)
        .with_capabilities([
            Capability::Receipt,
            Capability::Digests,
            Capability::RefusesControlCharacters,
            Capability::DestinationLimit,
            Capability::Restart,
            Capability::IdleClose,
            Capability::CredentialSource,
            Capability::ParallelRequests,
            Capability::Unreachable,
            Capability::ForbiddenDestination,
            Capability::Conflicts,
            Capability::Credentials,
            Capability::MovableClock,
            Capability::Telemetry,
            Capability::Description,
            Capability::ServerAddress,
        ])
        .with_faults(FaultKind::ALL);
    profile.carries_empty_attributes = false;
    profile.error_table = error_table();
    if is_fifo {
        profile = profile.with_capabilities([Capability::Key, Capability::BoundedKey]);
    }
    if mode.starts_with("fair") {
        profile = profile.with_capabilities([Capability::Key, Capability::BoundedKey]);
        profile.key = KeyParts::Tenant;
    }
    if is_batched {
        profile = profile.with_capabilities([Capability::Ceilings]);
        profile.batching = Some(
            Batching::new(Duration::from_millis(20), 10)
                .with_max_bytes(262_144)
                .with_max_inflight(8),
        );
    } else {
        profile.faults.remove(&FaultKind::Entries);
    }
    profile
}

/// A row for each line of the sink's own documentation of its errors.
fn error_table() -> Vec<ErrorRow> {
    let pause = ErrorClass::RetryAfter(Duration::ZERO);
    let not_stored = Outcome::NotStored;
    [
        ("InvalidMessageContents", ErrorClass::Permanent, not_stored),
        ("InvalidParameterValue", ErrorClass::Permanent, not_stored),
        (
            "MissingRequiredParameter",
            ErrorClass::Permanent,
            not_stored,
        ),
        ("QueueDoesNotExist", ErrorClass::Config, not_stored),
        ("AccessDenied", ErrorClass::Config, not_stored),
        (
            "UnrecognizedClientException",
            ErrorClass::Config,
            not_stored,
        ),
        ("InvalidSignatureException", ErrorClass::Config, not_stored),
        ("RequestThrottled", pause, not_stored),
        ("ThrottlingException", pause, not_stored),
        ("OverLimit", ErrorClass::Transient, not_stored),
        ("KmsDisabled", ErrorClass::Transient, not_stored),
        ("InternalFailure", ErrorClass::Transient, Outcome::Unknown),
        ("ServiceUnavailable", pause, Outcome::Unknown),
    ]
    .map(|(name, class, outcome)| ErrorRow::new(name, class, outcome))
    .to_vec()
}
