//! The reference adapter for the suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Guarantees, HostServices, Ordering, Outcome, SinkPlugin};
use serde_json::{Value, json};

use super::broker::{
    Broker, CLOSED, DEDUP_WINDOW, HOST, KEYS, MAX_ATTRIBUTES, MAX_BYTES, MAX_ENTRIES, NAMELESS,
    SILENT, STRANGER, WIRE_LOG, proof,
};
use super::mutants::Mutant;
use super::plugin::{WORLD, World};
use crate::conformance::{
    Adapter, Batching, Capability, Clock, Destination, ErrorRow, FaultKind, FaultScript,
    FixtureError, KeyParts, Profile, SinkFixture, StoredMessage, Unreachable,
};

/// The reference adapter, honest or broken in one way.
#[derive(Debug, Default)]
pub struct ReferenceAdapter {
    mutant: Option<&'static Mutant>,
}

impl ReferenceAdapter {
    /// The honest one.
    #[must_use]
    pub const fn honest() -> Self {
        Self { mutant: None }
    }

    /// One that is broken in this way.
    #[must_use]
    pub const fn broken(mutant: &'static Mutant) -> Self {
        Self {
            mutant: Some(mutant),
        }
    }

    /// What a mode declares: one of [`MODES`](Self::MODES).
    #[must_use]
    pub fn profile(mode: &str) -> Profile {
        let is_ordered = mode.starts_with("ordered");
        let is_fair = mode == FAIR;
        let is_batched = mode.ends_with("batched");
        let mut guarantees = Guarantees::new(mode != NOT_DURABLE)
            .with_max_message_bytes(MAX_BYTES)
            .with_max_attributes(MAX_ATTRIBUTES);
        if is_ordered {
            guarantees =
                guarantees
                    .with_dedup_window(DEDUP_WINDOW)
                    .with_ordering(match is_batched {
                        true => Ordering::PerKey,
                        false => Ordering::PerKeyWhenAwaited,
                    });
        }
        let mut profile = Profile::new(mode, guarantees);
        profile.clock = Clock::Paused;
        profile.wire_logs = &[WIRE_LOG];
        if mode == BARE {
            return profile;
        }
        profile = profile.with_capabilities([
            Capability::RefusesControlCharacters,
            Capability::Telemetry,
            Capability::Description,
            Capability::Conflicts,
            Capability::ServerAddress,
        ]);
        if mode == NOT_DURABLE {
            return profile.with_faults([FaultKind::Requests]);
        }
        profile = profile
            .with_capabilities([
                Capability::Receipt,
                Capability::Digests,
                Capability::DestinationLimit,
                Capability::Restart,
                Capability::IdleClose,
                Capability::CredentialSource,
                Capability::Unreachable,
                Capability::ForbiddenDestination,
                Capability::Credentials,
                Capability::MovableClock,
            ])
            .with_faults(FaultKind::ALL);
        profile.error_table = error_table();
        if mode == TEXT_ONLY {
            profile.carries_text_beyond_ascii = false;
        } else {
            profile = profile.with_capabilities([Capability::ParallelRequests]);
        }
        if is_ordered {
            profile = profile.with_capabilities([Capability::Key, Capability::BoundedKey]);
        }
        if is_fair {
            profile = profile.with_capabilities([Capability::Key]);
            profile.key = KeyParts::Tenant;
        }
        if is_batched {
            profile = profile.with_capabilities([Capability::Ceilings]);
            profile.batching = Some(
                Batching::new(Duration::from_millis(20), MAX_ENTRIES)
                    .with_max_bytes(MAX_BYTES)
                    .with_max_inflight(4),
            );
        } else {
            profile.faults.remove(&FaultKind::Entries);
        }
        profile
    }

    /// The modes, from the one that promises the most to those that promise little:
    /// `fair-batched` names the tenant of each message, whatever it is called, and keeps no order,
    /// `not-durable` answers before the broker has confirmed, `text-only` has a destination
    /// that takes only ASCII beside its messages and one request at a time, and `bare` has one
    /// that takes every character, gives no receipts, describes nothing and has a fixture that
    /// plays no faults.
    pub const MODES: [&str; 8] = [
        "ordered-batched",
        "ordered-single",
        FAIR,
        "plain-batched",
        "plain-single",
        NOT_DURABLE,
        TEXT_ONLY,
        BARE,
    ];
}

const FAIR: &str = "fair-batched";
const NOT_DURABLE: &str = "not-durable";
const TEXT_ONLY: &str = "text-only";
const BARE: &str = "bare";

fn error_table() -> Vec<ErrorRow> {
    let pause = ErrorClass::RetryAfter(Duration::ZERO);
    [
        ("DestinationMissing", ErrorClass::Config, Outcome::NotStored),
        ("AccessDenied", ErrorClass::Config, Outcome::NotStored),
        ("UnknownKey", ErrorClass::Config, Outcome::NotStored),
        ("BadProof", ErrorClass::Config, Outcome::NotStored),
        ("MessageTooLarge", ErrorClass::Permanent, Outcome::NotStored),
        (
            "InvalidAttribute",
            ErrorClass::Permanent,
            Outcome::NotStored,
        ),
        ("InvalidKey", ErrorClass::Permanent, Outcome::NotStored),
        ("Throttled", pause, Outcome::NotStored),
        ("Internal", ErrorClass::Transient, Outcome::NotStored),
        ("Unavailable", ErrorClass::Transient, Outcome::Unknown),
    ]
    .map(|(name, class, outcome)| ErrorRow::new(name, class, outcome))
    .to_vec()
}

#[async_trait]
impl Adapter for ReferenceAdapter {
    fn name(&self) -> &str {
        "reference"
    }

    fn profiles(&self) -> Vec<Profile> {
        Self::MODES.map(Self::profile).to_vec()
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let services = HostServices::new();
        // The pool lends what somebody holds: the fixture.
        let world = services
            .pool()
            .get_or_try_create::<_, std::io::Error>(WORLD, || {
                Ok(World {
                    broker: Arc::new(Broker::new()),
                    mutant: self.mutant,
                    is_bare: profile.mode == BARE,
                })
            })?;
        Ok(Box::new(ReferenceFixture {
            world,
            services,
            mode: profile.mode.clone(),
            is_batched: profile.batching.is_some(),
            created: AtomicU64::new(0),
        }))
    }
}

/// A broker of its own for one case.
#[derive(Debug)]
pub struct ReferenceFixture {
    world: Arc<World>,
    services: HostServices,
    mode: String,
    is_batched: bool,
    created: AtomicU64,
}

impl ReferenceFixture {
    fn destination(&self, name: &str) -> Destination {
        let is_ordered = self.mode.starts_with("ordered");
        let suffix = if is_ordered { ".ordered" } else { "" };
        Destination::new(format!("{name}{suffix}"))
    }

    fn options_of(&self, destination: &Destination, key: usize) -> Value {
        let (key_id, secret) = KEYS[key];
        let mut options = json!({
            "destination": destination.name(),
            "key_id": key_id,
            "secret": secret,
            "batch": self.is_batched,
        });
        match &*self.mode {
            NOT_DURABLE => options["confirm"] = false.into(),
            TEXT_ONLY => {
                options["ascii_attributes"] = true.into();
                options["serial"] = true.into();
            }
            FAIR => options["fair"] = true.into(),
            BARE => options["control_characters"] = true.into(),
            _ => {}
        }
        options
    }

    fn broker(&self) -> &Broker {
        &self.world.broker
    }
}

#[async_trait]
impl SinkFixture for ReferenceFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        self.world.plugin()
    }

    fn services(&self) -> HostServices {
        self.services.clone()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.create_limited(name, MAX_BYTES).await
    }

    async fn create_limited(&self, name: &str, bytes: usize) -> Result<Destination, FixtureError> {
        self.created.fetch_add(1, AtomicOrdering::SeqCst);
        let destination = self.destination(name);
        match &*self.mode {
            TEXT_ONLY => self.broker().create_ascii_only(destination.name(), bytes),
            BARE => self.broker().create_of_any_text(destination.name(), bytes),
            _ => self.broker().create(destination.name(), bytes),
        }
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        self.options_of(destination, 0)
    }

    fn forbidden(&self, destination: &Destination) -> Option<Value> {
        let stranger = KEYS.iter().position(|(key_id, _)| *key_id == STRANGER)?;
        Some(self.options_of(destination, stranger))
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        let (key_id, _) = KEYS[1];
        Some((self.options_of(destination, 1), key_id.to_owned()))
    }

    fn with_userinfo(
        &self,
        destination: &Destination,
        user: &str,
        password: &str,
    ) -> Option<Value> {
        let mut options = self.options(destination);
        options["link"] = json!({"host": format!("{user}:{password}@{HOST}")});
        Some(options)
    }

    fn sourced(&self, destination: &Destination) -> Option<Value> {
        let mut options = self.options(destination);
        let members = options.as_object_mut()?;
        members.remove("key_id");
        members.remove("secret");
        options["vault"] = true.into();
        Some(options)
    }

    async fn take_credentials(&self) -> Result<(), FixtureError> {
        self.broker().empty_vault();
        Ok(())
    }

    async fn replace_credentials(&self) -> Result<String, FixtureError> {
        Ok(self.broker().rotate().to_owned())
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        let (_, secret) = KEYS[0];
        vec![secret.to_owned()]
    }

    fn proofs(&self) -> Vec<String> {
        KEYS.map(|(key_id, secret)| proof(key_id, secret)).to_vec()
    }

    fn conflicts(&self, _destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        let lone = json!({"batch": false, "batch_linger_ms": 50});
        let wide = json!({"inline_max_bytes": 5_000, "max_message_bytes": 4_000});
        vec![
            (lone, ["batch_linger_ms", "batch"]),
            (wide, ["inline_max_bytes", "max_message_bytes"]),
        ]
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        Ok(self.broker().stored(destination.name()))
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        Ok(self.broker().destinations())
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        (self.mode != BARE).then(|| self.broker().script() as &dyn FaultScript)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.broker().restart();
        Ok(())
    }

    async fn close_idle(&self) -> Result<(), FixtureError> {
        self.broker().restart();
        Ok(())
    }

    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        let at = |host: &str| {
            let mut options = self.options(destination);
            options["link"] = json!({ "host": host });
            options
        };
        Ok(vec![
            Unreachable::new("a port that nobody listens at", at(CLOSED)),
            Unreachable::new("a host without an address", at(NAMELESS)),
            Unreachable::new("a server that takes what comes", at(SILENT)).after_a_request(),
        ])
    }

    fn advance(&self, by: Duration) {
        self.broker().advance(by);
    }
}
