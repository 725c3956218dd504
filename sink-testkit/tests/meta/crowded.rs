//! Backends that others use, that a run before left as it was, and fixtures that end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{DeliveryContext, Envelope, EnvelopeId, HostServices, SinkPlugin};
use futures_util::FutureExt as _;
use serde_json::Value;
use sink_testkit::conformance::{
    Adapter, Case, Destination, FaultScript, FixtureError, Ledger, Profile, SinkFixture,
    StoredMessage, Unreachable, Verdict, cases, check, run_case,
};
use sink_testkit::reference::ReferenceAdapter;

use crate::ledger::REFERENCE;
use crate::subject::{MODE, own_case};

/// What somebody else has at the same backend, with names that begin or end like the suite's.
const FOREIGN: [&str; 4] = ["hook", "hooks", "hooks-dead", "run-1-hooks-old"];

/// The reference adapter on one backend for all its cases, which others use too. Nothing of
/// a case is removed when it ends.
#[derive(Default)]
struct Crowded {
    inner: ReferenceAdapter,
    backend: Mutex<Option<Arc<dyn SinkFixture>>>,
    runs: AtomicUsize,
}

impl Crowded {
    /// The backend, which the first case finds crowded already.
    async fn backend(&self, profile: &Profile) -> Result<Arc<dyn SinkFixture>, FixtureError> {
        let known = self.backend.lock().unwrap().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let backend: Arc<dyn SinkFixture> = Arc::from(self.inner.fixture(profile).await?);
        for name in FOREIGN {
            let destination = backend.create(name).await?;
            let options = backend.options(&destination);
            let sink = (backend.plugin().build)(&options, &backend.services())?;
            let sent = sink.deliver(&foreign(), &DeliveryContext::direct()).await;
            sent?;
        }
        // A sink that does not wait for its destination reaches it meanwhile.
        tokio::time::sleep(Duration::from_secs(1)).await;
        *self.backend.lock().unwrap() = Some(Arc::clone(&backend));
        Ok(backend)
    }

    /// How many messages each foreign destination has.
    fn foreign_messages(&self) -> Vec<usize> {
        let backend = self.backend.lock().unwrap().clone().unwrap();
        let destination = |name: &str| {
            let all = backend.destinations().now_or_never().unwrap().unwrap();
            let found = all
                .iter()
                .find(|known| *known == name || known.strip_suffix(".ordered") == Some(name));
            Destination::new(found.unwrap())
        };
        let stored = FOREIGN.iter().map(|name| {
            let stored = backend.stored(&destination(name)).now_or_never();
            let stored = stored.unwrap().unwrap();
            let id = foreign().id().to_string();
            assert!(stored.iter().all(|message| message.envelope_id() == id));
            stored.len()
        });
        stored.collect()
    }
}

/// A message with the id that a case's own first one has.
fn foreign() -> Envelope {
    let id = EnvelopeId::v7(1_767_225_600_123, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    Envelope::new(id, "harbor", 0, "somebody else's")
}

#[async_trait]
impl Adapter for Crowded {
    fn name(&self) -> &str {
        "crowded"
    }

    fn profiles(&self) -> Vec<Profile> {
        self.inner.profiles()
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Box::new(Shared {
            inner: self.backend(profile).await?,
            prefix: format!("run-{run}-"),
        }))
    }
}

/// The destinations of one run at a backend.
struct Shared {
    inner: Arc<dyn SinkFixture>,
    prefix: String,
}

#[async_trait]
impl SinkFixture for Shared {
    fn plugin(&self) -> &'static SinkPlugin {
        self.inner.plugin()
    }

    fn services(&self) -> HostServices {
        self.inner.services()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.inner.create(&format!("{}{name}", self.prefix)).await
    }

    async fn create_limited(&self, name: &str, bytes: usize) -> Result<Destination, FixtureError> {
        let name = format!("{}{name}", self.prefix);
        self.inner.create_limited(&name, bytes).await
    }

    fn missing(&self) -> Destination {
        self.inner.missing()
    }

    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        self.inner.unreachable(destination)
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

    fn faults(&self) -> Option<&dyn FaultScript> {
        self.inner.faults()
    }

    fn forbidden(&self, destination: &Destination) -> Option<Value> {
        self.inner.forbidden(destination)
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        self.inner.other_credentials(destination)
    }

    fn with_userinfo(&self, at: &Destination, user: &str, password: &str) -> Option<Value> {
        self.inner.with_userinfo(at, user, password)
    }

    fn sourced(&self, destination: &Destination) -> Option<Value> {
        self.inner.sourced(destination)
    }

    async fn take_credentials(&self) -> Result<(), FixtureError> {
        self.inner.take_credentials().await
    }

    async fn replace_credentials(&self) -> Result<String, FixtureError> {
        self.inner.replace_credentials().await
    }

    fn secrets(&self, destination: &Destination) -> Vec<String> {
        self.inner.secrets(destination)
    }

    fn proofs(&self) -> Vec<String> {
        self.inner.proofs()
    }

    fn conflicts(&self, destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        self.inner.conflicts(destination)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.inner.restart().await
    }

    async fn close_idle(&self) -> Result<(), FixtureError> {
        self.inner.close_idle().await
    }

    fn advance(&self, by: Duration) {
        self.inner.advance(by);
    }

    fn accounted(&self, message: &StoredMessage) -> usize {
        self.inner.accounted(message)
    }
}

pub(crate) fn a_backend_that_is_dirty_changes_no_verdict_and_is_left_as_it_was() {
    let ledger = Ledger::parse(REFERENCE, "tests/reference.toml").unwrap();
    let cases = cases::all();
    let plays: Vec<(&str, &Case)> = ReferenceAdapter::MODES
        .into_iter()
        .flat_map(|mode| cases.iter().map(move |case| (mode, case)))
        .collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((mode, case)) = plays.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let crowded = Arc::new(Crowded::default());
                    let adapter: Arc<dyn Adapter> = Arc::clone(&crowded) as _;
                    let profile = ReferenceAdapter::profile(mode);
                    for run in 1..=2 {
                        let report = run_case(&adapter, &profile, case, 1);
                        let seen = Some(report.verdict);
                        let step = format!("{mode}::{} run {run}: {}", case.id, report.reason);
                        assert_eq!(seen, ledger.get(mode, case.id), "{step}");
                    }
                    if crowded.runs.load(Ordering::SeqCst) > 0 {
                        assert_eq!(crowded.foreign_messages(), [1; 4], "{mode}::{}", case.id);
                    }
                }
            });
        }
    });
}

/// The reference adapter, with a count of the fixtures that are there.
#[derive(Default)]
struct Counted {
    inner: ReferenceAdapter,
    built: AtomicUsize,
    there: Arc<AtomicUsize>,
}

#[async_trait]
impl Adapter for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn profiles(&self) -> Vec<Profile> {
        self.inner.profiles()
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        self.built.fetch_add(1, Ordering::SeqCst);
        self.there.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Present {
            inner: self.inner.fixture(profile).await?,
            there: Arc::clone(&self.there),
        }))
    }
}

/// A fixture that cleans up behind itself: it takes itself off the count.
struct Present {
    inner: Box<dyn SinkFixture>,
    there: Arc<AtomicUsize>,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl SinkFixture for Present {
    fn plugin(&self) -> &'static SinkPlugin {
        self.inner.plugin()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.inner.create(name).await
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

pub(crate) fn a_fixture_is_gone_however_its_case_ends() {
    let endings = [
        (own_case(|_| Box::pin(async { Ok(()) })), Verdict::Passed),
        (
            own_case(|_| Box::pin(async { check(false, "a step", "this", "that") })),
            Verdict::Failed,
        ),
        (
            own_case(|_| Box::pin(async { panic!("a bug of the case") })),
            Verdict::Failed,
        ),
        (
            own_case(|_| Box::pin(std::future::pending())),
            Verdict::Failed,
        ),
        (
            own_case(|context| {
                Box::pin(async move {
                    context.plan("what never happens");
                    Ok(())
                })
            }),
            Verdict::NotExercised,
        ),
    ];
    let counted = Arc::new(Counted::default());
    let adapter: Arc<dyn Adapter> = Arc::clone(&counted) as _;
    let profile = ReferenceAdapter::profile(MODE);
    for (place, (case, verdict)) in endings.iter().enumerate() {
        let report = run_case(&adapter, &profile, case, 1);
        assert_eq!(report.verdict, *verdict, "{place}: {}", report.reason);
        assert_eq!(counted.built.load(Ordering::SeqCst), place + 1);
        assert_eq!(counted.there.load(Ordering::SeqCst), 0, "{place}");
    }
}
