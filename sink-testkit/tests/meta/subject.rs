//! Adapters that do one thing wrong, in the sink, in the fixture or in what they declare.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, Guarantees, HostServices, Outcome, Receipt, Sink,
    SinkError, SinkPlugin,
};
use serde_json::Value;
use sink_testkit::conformance::{
    Adapter, Case, CaseFn, Destination, Divergence, FixtureError, Profile, SinkFixture,
    StoredMessage, cases,
};
use sink_testkit::reference::{Mutant, Parts, ReferenceAdapter, Seam};
use tokio::time::Instant;

/// The mode that the tests here use.
pub(crate) const MODE: &str = "plain-single";

/// What the adapter does beside, or instead of, what the honest reference does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Nothing,
    FailsToBuildItsFixture,
    FailsToCreateDestinations,
    HangsInItsFixture,
    NamesNoSecret,
    CannotRun,
    HasNoModes,
    Diverges(&'static str),
    Breaks(&'static Mutant),
}

/// The reference adapter in [`MODE`].
#[derive(Debug)]
pub(crate) struct Subject {
    does: Does,
    inner: ReferenceAdapter,
}

impl Subject {
    pub(crate) fn new(does: Does) -> Self {
        let inner = match does {
            Does::Breaks(mutant) => ReferenceAdapter::broken(mutant),
            _ => ReferenceAdapter::honest(),
        };
        Self { does, inner }
    }

    pub(crate) fn shared(does: Does) -> Arc<dyn Adapter> {
        Arc::new(Self::new(does))
    }
}

#[async_trait]
impl Adapter for Subject {
    fn name(&self) -> &str {
        "sink-example"
    }

    fn profiles(&self) -> Vec<Profile> {
        match self.does {
            Does::HasNoModes => Vec::new(),
            _ => vec![ReferenceAdapter::profile(MODE)],
        }
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        if matches!(self.does, Does::FailsToBuildItsFixture) {
            return Err(FixtureError::new("no server listens"));
        }
        let inner = self.inner.fixture(profile).await?;
        match self.does {
            Does::FailsToCreateDestinations | Does::HangsInItsFixture | Does::NamesNoSecret => {
                let does = self.does;
                Ok(Box::new(Fixture { inner, does }))
            }
            _ => Ok(inner),
        }
    }

    fn divergences(&self, _profile: &Profile) -> Vec<Divergence> {
        let reason = "the emulator answers nothing, and the service does";
        match self.does {
            Does::Diverges(case) => vec![Divergence { case, reason }],
            Does::FailsToBuildItsFixture => vec![Divergence {
                case: "deliver_then_observed_exactly_once",
                reason,
            }],
            Does::Breaks(mutant) if mutant.case == "diverges" => vec![Divergence {
                case: "deliver_then_observed_exactly_once",
                reason,
            }],
            _ => Vec::new(),
        }
    }

    fn unavailable(&self) -> Option<String> {
        matches!(self.does, Does::CannotRun)
            .then(|| "no server listens at 127.0.0.1:9324".to_owned())
    }
}

struct Fixture {
    inner: Box<dyn SinkFixture>,
    does: Does,
}

#[async_trait]
impl SinkFixture for Fixture {
    fn plugin(&self) -> &'static SinkPlugin {
        self.inner.plugin()
    }

    fn services(&self) -> HostServices {
        self.inner.services()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        match self.does {
            Does::HangsInItsFixture => std::future::pending().await,
            Does::FailsToCreateDestinations => Err(FixtureError::new("the quota is used up")),
            _ => self.inner.create(name).await,
        }
    }

    fn missing(&self) -> Destination {
        self.inner.missing()
    }

    fn options(&self, destination: &Destination) -> Value {
        self.inner.options(destination)
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        self.inner.stored(destination).await
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.inner.destinations().await
    }
}

/// A case of the suite.
pub(crate) fn case(id: &str) -> Case {
    let all = cases::all();
    let found = all.into_iter().find(|case| case.id == id);
    found.unwrap_or_else(|| unreachable!("no case {id}"))
}

/// A case of a test's own.
pub(crate) fn own_case(run: CaseFn) -> Case {
    Case::new("a_case_of_this_test", "a rule of this test", run)
}

macro_rules! subjects {
    ($($name:ident: $fault:literal, $sink:expr;)+) => {
        $(
            pub(crate) static $name: Mutant =
                Mutant::new(stringify!($name), $fault, "", "", Seam::Sink($sink)).in_mode(MODE);
        )+
    };
}

subjects! {
    FAILS_EVERY_OTHER: "fails at every second delivery",
        |inner, parts| act(inner, parts, Act::FailEveryOther(AtomicUsize::new(0)));
    NEVER_ANSWERS: "never answers", |inner, parts| act(inner, parts, Act::Wait);
    BLOCKS_ITS_THREAD: "blocks its thread", |inner, parts| act(inner, parts, Act::Block);
    BLOCKS_ANOTHER: "waits for a thread that is blocked",
        |inner, parts| act(inner, parts, Act::BlockAnother);
    LOGS_ITS_SECRET: "logs its secret", |inner, parts| act(inner, parts, Act::LogSecret);
}

/// Fails, and is listed as a divergence.
pub(crate) static DIVERGES: Mutant = Mutant::new(
    "DIVERGES",
    "never answers, as is known",
    "diverges",
    "",
    Seam::Sink(|inner, parts| act(inner, parts, Act::Wait)),
);

enum Act {
    FailEveryOther(AtomicUsize),
    Wait,
    Block,
    BlockAnother,
    LogSecret,
}

fn act(inner: Arc<dyn Sink>, parts: Parts, act: Act) -> Arc<dyn Sink> {
    Arc::new(Acting { inner, parts, act })
}

struct Acting {
    inner: Arc<dyn Sink>,
    parts: Parts,
    act: Act,
}

fn park_for_good() {
    loop {
        std::thread::park();
    }
}

#[async_trait]
impl Sink for Acting {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        match &self.act {
            Act::FailEveryOther(calls) => {
                if calls.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                    let outcome = Outcome::NotStored;
                    return Err(SinkError::transient(outcome, "Busy", "every other time"));
                }
            }
            Act::Wait => std::future::pending().await,
            Act::Block => park_for_good(),
            Act::BlockAnother => tokio::task::spawn_blocking(park_for_good).await.unwrap(),
            Act::LogSecret => {
                tracing::debug!(authorization = self.parts.config.secret, "a request");
            }
        }
        self.inner.deliver(envelope, ctx).await
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        self.inner.inline_max_bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn flush(&self) {
        self.inner.flush();
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.inner.drain(deadline).await
    }
}

impl fmt::Debug for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
