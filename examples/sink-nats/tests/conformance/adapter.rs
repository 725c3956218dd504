//! What each mode of the sink declares.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Guarantees, Ordering, Outcome};
use sink_testkit::conformance::{
    Adapter, Capability, ErrorRow, FaultKind, FixtureError, Profile, SinkFixture,
};

use crate::fixture::StreamFixture;
use crate::live::server::find_program;
use crate::live::servers::Servers;
use crate::script::REFUSALS;

/// One subject for all, and a stream that recognises repeats.
pub(crate) const CONSTANT: &str = "constant";
/// A subject for each tenant and source, and messages that name nothing to recognise a
/// repeat by.
pub(crate) const TEMPLATE: &str = "template";

/// A server's default `max_payload`.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_048_576;
/// A stream's default `duplicate_window`.
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// The sink on servers of its own.
pub(crate) struct Live {
    servers: Arc<Servers>,
}

impl Live {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        Self { servers }
    }
}

#[async_trait]
impl Adapter for Live {
    fn name(&self) -> &str {
        "sink-nats"
    }

    fn profiles(&self) -> Vec<Profile> {
        vec![profile(CONSTANT), profile(TEMPLATE)]
    }

    fn unavailable(&self) -> Option<String> {
        match find_program() {
            Some(_) => None,
            None => Some("there is no nats-server on the PATH".to_owned()),
        }
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let servers = Arc::clone(&self.servers);
        Ok(Box::new(
            StreamFixture::start(servers, &profile.mode).await?,
        ))
    }
}

fn profile(mode: &str) -> Profile {
    let mut guarantees = Guarantees::new(true)
        .with_max_message_bytes(MAX_MESSAGE_BYTES)
        .with_ordering(Ordering::PerKeyWhenAwaited);
    if mode == CONSTANT {
        guarantees = guarantees.with_dedup_window(DUPLICATE_WINDOW);
    }
    let mut profile = Profile::new(mode, guarantees)
        .with_capabilities([
            Capability::Receipt,
            Capability::DestinationLimit,
            Capability::Restart,
            Capability::IdleClose,
            Capability::ParallelRequests,
            Capability::Unreachable,
            Capability::ForbiddenDestination,
            Capability::Credentials,
            Capability::Conflicts,
            Capability::Telemetry,
            Capability::Description,
            Capability::ServerAddress,
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
            FaultKind::Garbage,
            FaultKind::ForeignError,
            FaultKind::Requests,
        ]);
    profile.error_table = error_table();
    profile.wire_logs = &["async_nats"];
    if mode == TEMPLATE {
        profile = profile.with_capabilities([Capability::Key]);
    }
    profile
}

/// A row for each refusal of a stream in the sink's documentation.
fn error_table() -> Vec<ErrorRow> {
    let pause = ErrorClass::RetryAfter(Duration::ZERO);
    let row = |(name, ..): &(&str, u16, u32, &str)| {
        let (class, outcome) = match *name {
            "MessageTooLarge" | "HeadersTooLarge" => (ErrorClass::Permanent, Outcome::NotStored),
            "NoStream" | "JetStreamNotEnabled" | "StreamSealed" => {
                (ErrorClass::Config, Outcome::NotStored)
            }
            "StreamFull" | "InsufficientResources" | "ResourcesExceeded" | "TooManyRequests" => {
                (pause, Outcome::NotStored)
            }
            "StreamError" => (ErrorClass::Transient, Outcome::NotStored),
            _ => (ErrorClass::Transient, Outcome::Unknown),
        };
        ErrorRow::new(*name, class, outcome)
    };
    REFUSALS.iter().map(row).collect()
}
