//! What an adapter declares.

use std::collections::BTreeSet;
use std::time::Duration;

use dispatch_api::{ErrorClass, Guarantees, Ordering, Outcome};

use super::fault::FaultKind;

/// What one mode of an adapter declares: its guarantees, capabilities and limits.
///
/// What is declared has to be there. Where a capability is not declared and a case has an
/// inverse, that is played instead; the others are not applicable, and the ledger says so.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The mode, such as `fifo-batched`; a table of the ledger.
    pub mode: String,
    /// What [`Sink::guarantees`](dispatch_api::Sink::guarantees) has to say.
    pub guarantees: Guarantees,
    /// What the adapter can do.
    pub capabilities: BTreeSet<Capability>,
    /// The faults that the fixture can play.
    pub faults: BTreeSet<FaultKind>,
    /// How deliveries are batched; `None`: each is one request.
    pub batching: Option<Batching>,
    /// The time limit of one delivery by configuration of the fixture, without a
    /// deadline of the host. Default 5 s.
    pub timeout: Duration,
    /// How many requests one delivery may take when the destination fails each time.
    /// Default 1.
    pub requests_per_delivery: usize,
    /// What the key at the destination is made of, with [`Capability::Key`]. Default
    /// [`KeyParts::TenantAndSource`].
    pub key: KeyParts,
    /// For how long after a connection failed or fell silent deliveries may go on to fail, with
    /// errors that are retried. Default zero: the next delivery succeeds.
    pub recovery: Duration,
    /// Whether an attribute without a value is carried (`true`) or left out. Default
    /// `true`.
    pub carries_empty_attributes: bool,
    /// Whether attribute values beyond ASCII are carried (`true`) or refused before anything
    /// is sent. Default `true`.
    pub carries_text_beyond_ascii: bool,
    /// The faults of the destination, and what the sink has to make of each.
    pub error_table: Vec<ErrorRow>,
    /// Targets, by how they begin, of a client whose records of level trace show what it
    /// sends and receives, and whose documentation or the adapter's says so: the suite does
    /// not look for payloads there, nor for a secret that a server sends back. For secrets
    /// that are sent it looks everywhere. Default none.
    pub wire_logs: &'static [&'static str],
    /// Whether a test's clock runs on its own. Default [`Clock::Real`].
    pub clock: Clock,
}

impl Profile {
    /// A mode that promises nothing but `guarantees`, on a real clock.
    pub fn new(mode: impl Into<String>, guarantees: Guarantees) -> Self {
        Self {
            mode: mode.into(),
            guarantees,
            capabilities: BTreeSet::new(),
            faults: BTreeSet::new(),
            batching: None,
            timeout: Duration::from_secs(5),
            requests_per_delivery: 1,
            key: KeyParts::TenantAndSource,
            recovery: Duration::ZERO,
            carries_empty_attributes: true,
            carries_text_beyond_ascii: true,
            error_table: Vec::new(),
            wire_logs: &[],
            clock: Clock::Real,
        }
    }

    /// Adds capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, these: impl IntoIterator<Item = Capability>) -> Self {
        self.capabilities.extend(these);
        self
    }

    /// Adds faults that the fixture can play.
    #[must_use]
    pub fn with_faults(mut self, these: impl IntoIterator<Item = FaultKind>) -> Self {
        self.faults.extend(these);
        self
    }

    /// Whether it is declared.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Batching => self.batching.is_some(),
            Capability::BatchBytes => {
                let batching = self.batching.as_ref();
                batching.is_some_and(|batching| batching.max_bytes.is_some())
            }
            Capability::Durable => self.guarantees.durable,
            Capability::Order => self.guarantees.ordering != Ordering::None,
            Capability::PipelinedOrder => self.guarantees.ordering == Ordering::PerKey,
            Capability::Dedup => self.guarantees.dedup_window.is_some(),
            Capability::TextBeyondAscii => self.carries_text_beyond_ascii,
            Capability::KeyOfSource => {
                self.has(Capability::Key) && self.key == KeyParts::TenantAndSource
            }
            Capability::MessageLimit => self.guarantees.max_message_bytes.is_some(),
            _ => self.capabilities.contains(&capability),
        }
    }

    /// How long to watch before nothing is taken for nothing.
    #[must_use]
    pub fn margin(&self) -> Duration {
        let base = match self.clock {
            Clock::Paused => Duration::from_secs(1),
            Clock::Real => Duration::from_millis(150),
        };
        base + self
            .batching
            .as_ref()
            .map_or(Duration::ZERO, |b| b.linger * 2)
    }

    /// How long to wait for what has to come.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self.clock {
            Clock::Paused => Duration::from_secs(120),
            Clock::Real => Duration::from_secs(30),
        }
    }
}

/// What an adapter can do. Those that follow from the guarantees are declared there:
/// `Durable`, `Order`, `PipelinedOrder`, `Dedup`, `MessageLimit`; `Batching` and `BatchBytes` by
/// [`Profile::batching`], `TextBeyondAscii` by [`Profile::carries_text_beyond_ascii`], and
/// `KeyOfSource` by [`Profile::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Deliveries share requests.
    Batching,
    /// [`Batching::max_bytes`].
    BatchBytes,
    /// `Ok` means stored.
    Durable,
    /// Deliveries of one key keep their order when each is awaited.
    Order,
    /// Deliveries of one key keep the order of their first poll.
    PipelinedOrder,
    /// A request without a reply holds up no other request of the sink.
    ParallelRequests,
    /// Repeats are recognised within a window.
    Dedup,
    /// There is a largest message.
    MessageLimit,
    /// Attribute values beyond ASCII are carried.
    TextBeyondAscii,
    /// The receipt names the stored message.
    Receipt,
    /// The destination answers with digests of what it stored.
    Digests,
    /// Attribute values with control characters are refused before anything is sent.
    RefusesControlCharacters,
    /// The destination can be given a smaller limit than the service's.
    DestinationLimit,
    /// The fixture can restart the destination.
    Restart,
    /// The fixture plays a destination that closes connections which nobody uses.
    IdleClose,
    /// The sink finds its credentials in a source of the fixture's.
    CredentialSource,
    /// The fixture knows servers that cannot be reached.
    Unreachable,
    /// The fixture has a destination that refuses these credentials.
    ForbiddenDestination,
    /// The options hold credentials, and the destination records whose request it was.
    Credentials,
    /// The options name a server, by an address that has room for credentials:
    /// [`SinkFixture::with_userinfo`](super::SinkFixture::with_userinfo).
    ServerAddress,
    /// The ordering key, or the group for fairness, is seen at the destination.
    Key,
    /// The source is a part of the key.
    KeyOfSource,
    /// A key has a length and an alphabet, and what does not fit is refused.
    BoundedKey,
    /// The fixture moves the destination's clock.
    MovableClock,
    /// The sink bounds what waits in it, and refuses more with `RetryAfter`.
    Ceilings,
    /// The sink bounds what waits in it by means of its own, and not by the options that
    /// [`Capability::Ceilings`] stands for.
    OwnBounds,
    /// Requests are counted by metrics and spans with OpenTelemetry's messaging names.
    Telemetry,
    /// The sink describes its destination.
    Description,
    /// The fixture knows options that contradict each other.
    Conflicts,
}

impl Capability {
    /// The capability in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Batching => "batching",
            Self::BatchBytes => "a bound of a batch's bytes",
            Self::Durable => "durability",
            Self::Order => "order by key",
            Self::PipelinedOrder => "order of deliveries that are not awaited",
            Self::ParallelRequests => "requests beside each other",
            Self::Dedup => "deduplication",
            Self::MessageLimit => "a largest message",
            Self::TextBeyondAscii => "attributes beyond ASCII",
            Self::Receipt => "receipts",
            Self::Digests => "digests",
            Self::RefusesControlCharacters => "refusing control characters",
            Self::DestinationLimit => "a limit of the destination",
            Self::Restart => "restarting the destination",
            Self::IdleClose => "closing idle connections",
            Self::CredentialSource => "a source of credentials",
            Self::Unreachable => "servers that cannot be reached",
            Self::ForbiddenDestination => "a forbidden destination",
            Self::Credentials => "credentials in the options",
            Self::ServerAddress => "an address of the server in the options",
            Self::Key => "a key at the destination",
            Self::KeyOfSource => "a source in the key",
            Self::BoundedKey => "a bounded key",
            Self::MovableClock => "moving the destination's clock",
            Self::Ceilings => "ceilings of what waits",
            Self::OwnBounds => "bounds of its own",
            Self::Telemetry => "messaging metrics and spans",
            Self::Description => "a description",
            Self::Conflicts => "options that contradict each other",
        }
    }
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyParts {
    /// Tenant and source: `acme/github`, and `/github` without a tenant.
    TenantAndSource,
    /// The tenant alone, so that its messages are told from those of others: `acme`, and no
    /// key without a tenant.
    Tenant,
}

impl KeyParts {
    /// The key of a message.
    #[must_use]
    pub fn key(self, tenant: Option<&str>, source: &str) -> Option<String> {
        match self {
            Self::TenantAndSource => Some(format!("{}/{source}", tenant.unwrap_or_default())),
            Self::Tenant => tenant
                .filter(|tenant| !tenant.is_empty())
                .map(str::to_owned),
        }
    }
}

/// How deliveries share requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batching {
    /// How long a batch waits to fill, by the fixture's configuration.
    pub linger: Duration,
    /// The most messages of a request.
    pub max_entries: usize,
    /// The most bytes of a request, as the destination counts them; `None`: not bounded.
    pub max_bytes: Option<usize>,
    /// The most requests at once.
    pub max_inflight: usize,
}

impl Batching {
    /// Batches of these bounds, with at most 8 requests at once.
    #[must_use]
    pub const fn new(linger: Duration, max_entries: usize) -> Self {
        Self {
            linger,
            max_entries,
            max_bytes: None,
            max_inflight: 8,
        }
    }

    /// Sets the most bytes of a request.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the most requests at once.
    #[must_use]
    pub const fn with_max_inflight(mut self, requests: usize) -> Self {
        self.max_inflight = requests;
        self
    }
}

/// One fault of the destination, and what the sink has to make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// The destination's name of it; the fixture plays it as
    /// [`Fault::Row`](super::Fault::Row).
    pub name: String,
    /// The class that the delivery has to fail with. Of `RetryAfter` only the kind
    /// counts here.
    pub class: ErrorClass,
    /// Whether the destination may hold the message.
    pub outcome: Outcome,
}

impl ErrorRow {
    /// A fault of this name.
    pub fn new(name: impl Into<String>, class: ErrorClass, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            class,
            outcome,
        }
    }
}

/// The clock of a fixture's tests.
///
/// Closed on purpose: a test's time either passes or is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Everything is in memory: tokio's clock stands still, and jumps when nothing else
    /// can happen.
    Paused,
    /// Sockets are involved: time passes.
    Real,
}
