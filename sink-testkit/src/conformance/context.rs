//! What a case works with.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dispatch_api::{
    BuildError, BuiltSink, DeliveryContext, DrainReport, Envelope, EnvelopeId, HeaderField,
    Problems, Receipt, Registry, Sink, SinkError,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::failure::{Checked, Failure, check};
use super::fault::{Fault, FaultScript, Rule};
use super::fixture::{Destination, FixtureError, SinkFixture, StoredMessage};
use super::history::{Duplicates, History};
use super::observe::Observer;
use super::profile::{Capability, Profile};
use super::watchdog::Progress;
use crate::sqs::Hold;

/// The moment in which every envelope of the suite was received.
const RECEIVED_AT: i64 = 1_767_225_600_123;

/// What a case plans that plays a fault.
const A_FAULT: &str = "a fault is played";

/// The fixture of a case, its profile, and what cases share: building sinks, making
/// envelopes, delivering on the record, and reading back.
pub struct Context<'f> {
    fixture: &'f dyn SinkFixture,
    profile: &'f Profile,
    seed: u64,
    random: RefCell<fastrand::Rng>,
    history: RefCell<History>,
    envelopes: Cell<u64>,
    progress: Progress,
    events: RefCell<BTreeMap<String, u64>>,
    /// How many faults had been played when the first was asked for.
    faults_before: Cell<Option<u64>>,
}

impl<'f> Context<'f> {
    /// A context whose random numbers follow from `seed`.
    pub fn new(fixture: &'f dyn SinkFixture, profile: &'f Profile, seed: u64) -> Self {
        Self {
            fixture,
            profile,
            seed,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            history: RefCell::default(),
            envelopes: Cell::new(0),
            progress: Progress::new(),
            events: RefCell::default(),
            faults_before: Cell::new(None),
        }
    }

    /// Tells there what the case does.
    pub(super) fn telling(mut self, progress: &Progress) -> Self {
        self.progress = progress.clone();
        self
    }

    /// What the adapter declares.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.profile
    }

    /// The surroundings.
    #[must_use]
    pub fn fixture(&self) -> &dyn SinkFixture {
        self.fixture
    }

    /// The seed of the case's random numbers.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// An observer of everything that is told.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::new()
    }

    /// An observer of what may show no payload: all but what the client writes down of the
    /// wire, [`Profile::wire_logs`].
    #[must_use]
    pub fn payload_observer(&self) -> Observer {
        Observer::new().without_wire_logs(self.profile.wire_logs)
    }

    /// A random number in `0..bound`.
    #[must_use]
    pub fn random(&self, bound: usize) -> usize {
        self.random.borrow_mut().usize(..bound)
    }

    /// Random bytes.
    #[must_use]
    pub fn random_bytes(&self, count: usize) -> Vec<u8> {
        let mut random = self.random.borrow_mut();
        (0..count).map(|_| random.u8(..)).collect()
    }

    /// Says what the case does now, for the report of a case that hangs.
    pub fn step(&self, step: impl Into<String>) {
        self.progress.step(step.into());
    }

    /// What the case does now.
    #[must_use]
    pub fn current_step(&self) -> String {
        self.progress.current()
    }

    /// Plans an event without which the case proves nothing.
    pub fn plan(&self, event: &str) {
        self.events
            .borrow_mut()
            .entry(event.to_owned())
            .or_default();
    }

    /// A planned event happened.
    pub fn happened(&self, event: &str) {
        *self
            .events
            .borrow_mut()
            .entry(event.to_owned())
            .or_default() += 1;
    }

    /// The planned events that never happened.
    #[must_use]
    pub fn missing_events(&self) -> Vec<String> {
        if let (Some(before), Some(faults)) = (self.faults_before.get(), self.fixture.faults())
            && faults.played() > before
        {
            self.happened(A_FAULT);
        }
        let events = self.events.borrow();
        let missing = events.iter().filter(|(_, count)| **count == 0);
        missing.map(|(event, _)| event.clone()).collect()
    }

    // Destinations and sinks.

    /// A fresh destination.
    ///
    /// # Errors
    ///
    /// The fixture's.
    pub async fn destination(&self) -> Checked<Destination> {
        self.named_destination("hooks").await
    }

    /// A fresh destination of this name.
    ///
    /// # Errors
    ///
    /// The fixture's.
    pub async fn named_destination(&self, name: &str) -> Checked<Destination> {
        self.step(format!("create {name}"));
        let _fixtures = self.progress.fixture();
        let created = self.fixture.create(name).await;
        created.map_err(|error| kit("create a destination", &error))
    }

    /// A sink that delivers there, built by its kind as a host builds it.
    ///
    /// # Errors
    ///
    /// The build's.
    pub fn build(&self, destination: &Destination) -> Checked<Arc<dyn Sink>> {
        self.build_with(self.fixture.options(destination))
    }

    /// A sink with the option `key` set to `value`.
    ///
    /// # Errors
    ///
    /// The build's.
    pub fn build_set(
        &self,
        destination: &Destination,
        key: &str,
        value: impl Into<Value>,
    ) -> Checked<Arc<dyn Sink>> {
        let mut options = self.fixture.options(destination);
        options[key] = value.into();
        self.build_with(options)
    }

    /// A sink of these options.
    ///
    /// # Errors
    ///
    /// The build's.
    pub fn build_with(&self, options: Value) -> Checked<Arc<dyn Sink>> {
        self.step("build the sink");
        self.try_build(&options)
            .map_err(|text| Failure::new("build", "a sink is built of the fixture's options", text))
    }

    /// Builds a sink, or says why not.
    ///
    /// # Errors
    ///
    /// The text of the build's error.
    pub fn try_build(&self, options: &Value) -> Result<Arc<dyn Sink>, String> {
        self.build_or_problems(options)
            .map(|built| built.sink)
            .map_err(|problems| problems.to_string())
    }

    /// Builds a sink with its key through a registry, or says at which options it failed.
    ///
    /// # Errors
    ///
    /// Every problem of the options.
    pub fn build_or_problems(&self, options: &Value) -> Result<BuiltSink, Problems> {
        let plugin = self.fixture.plugin();
        let registry = Registry::with([plugin]).expect("one plugin has one kind");
        registry
            .build(plugin.kind, options, &self.fixture.services())
            .map_err(BuildError::into_problems)
    }

    // Envelopes.

    /// An id that no other envelope of the case has.
    #[must_use]
    pub fn envelope_id(&self) -> EnvelopeId {
        let number = self.envelopes.get() + 1;
        self.envelopes.set(number);
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number.to_be_bytes());
        EnvelopeId::v7(RECEIVED_AT.unsigned_abs(), &random)
    }

    /// An envelope of tenant `quay-7` and source `harbor` with a small body.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        let number = self.envelopes.get() + 1;
        self.envelope_of(format!(r#"{{"parcel":{number}}}"#))
    }

    /// An envelope of tenant `quay-7` and source `harbor` with this body.
    #[must_use]
    pub fn envelope_of(&self, body: impl Into<Vec<u8>>) -> Envelope {
        self.envelope_from(Some("quay-7"), "harbor", body)
    }

    /// An envelope of this tenant and source with this body.
    #[must_use]
    pub fn envelope_from(
        &self,
        tenant: Option<&str>,
        source: &str,
        body: impl Into<Vec<u8>>,
    ) -> Envelope {
        let envelope = Envelope::new(self.envelope_id(), source, RECEIVED_AT, body.into())
            .with_request("POST", "/hooks/harbor")
            .with_headers([
                HeaderField::new("X-Harbor-Event", "loaded"),
                HeaderField::new("User-Agent", "harbor/3"),
            ])
            .with_content_type("application/json");
        match tenant {
            Some(tenant) => envelope.with_tenant(tenant),
            None => envelope,
        }
    }

    // Delivering.

    /// The context of a first attempt by a dispatcher.
    #[must_use]
    pub fn first_attempt(&self) -> DeliveryContext {
        DeliveryContext::attempt(std::num::NonZeroU32::MIN)
    }

    /// Delivers as a dispatcher does, on the record. Nothing is caught, repeated or cut
    /// short.
    ///
    /// # Errors
    ///
    /// The sink's.
    pub async fn deliver(
        &self,
        sink: &dyn Sink,
        envelope: &Envelope,
    ) -> Result<Receipt, SinkError> {
        self.deliver_in(sink, envelope, &self.first_attempt()).await
    }

    /// Delivers in this context, on the record.
    ///
    /// # Errors
    ///
    /// The sink's.
    pub async fn deliver_in(
        &self,
        sink: &dyn Sink,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let id = envelope.id().to_string();
        self.history.borrow_mut().attempted(&id);
        let answer = sink.deliver(envelope, ctx).await;
        self.history.borrow_mut().answered(&id, &answer);
        answer
    }

    /// Puts a delivery on the record that a case ran by itself, such as on another thread.
    pub fn record(&self, envelope: &Envelope, answer: &Result<Receipt, SinkError>) {
        let id = envelope.id().to_string();
        let mut history = self.history.borrow_mut();
        history.attempted(&id);
        history.answered(&id, answer);
    }

    /// Delivers what the destination has to take.
    ///
    /// # Errors
    ///
    /// When it is refused.
    pub async fn deliver_ok(&self, sink: &dyn Sink, envelope: &Envelope) -> Checked<Receipt> {
        self.step("deliver");
        let answer = self.deliver(sink, envelope).await;
        answer.map_err(|error| Failure::new("deliver", "Ok", error.to_string()))
    }

    /// Delivers what has to fail, and returns the error.
    ///
    /// # Errors
    ///
    /// When it succeeds.
    pub async fn deliver_err(&self, sink: &dyn Sink, envelope: &Envelope) -> Checked<SinkError> {
        self.step("deliver what has to fail");
        match self.deliver(sink, envelope).await {
            Ok(_) => Err(Failure::new("deliver", "an error", "Ok")),
            Err(error) => Ok(error),
        }
    }

    /// Delivers all of them at once, polled first in this order, and returns the answers
    /// in this order.
    pub async fn deliver_all(
        &self,
        sink: &dyn Sink,
        envelopes: &[Envelope],
    ) -> Vec<Result<Receipt, SinkError>> {
        self.step(format!("deliver {} at once", envelopes.len()));
        let deliveries = envelopes
            .iter()
            .map(|envelope| self.deliver(sink, envelope));
        futures_util::future::join_all(deliveries).await
    }

    /// Waits for something of the subject that has to come to an end; a failure of this
    /// step when it does not.
    ///
    /// # Errors
    ///
    /// When patience is over.
    pub async fn within<T>(
        &self,
        limit: Duration,
        step: &str,
        what: impl Future<Output = T>,
    ) -> Checked<T> {
        self.step(step);
        timeout(limit, what).await.map_err(|_| {
            Failure::new(
                step,
                format!("an end within {limit:?}"),
                "it still runs".to_owned(),
            )
        })
    }

    /// Polls a delivery that has to stay open: 20 times, and for the margin.
    ///
    /// # Errors
    ///
    /// When it ends.
    pub async fn stays_open<T>(
        &self,
        step: &str,
        what: &mut Pin<&mut impl Future<Output = T>>,
    ) -> Checked {
        self.step(step);
        for _ in 0..20 {
            let polled = poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await;
            check(polled.is_pending(), step, "no answer yet", "an answer")?;
            tokio::task::yield_now().await;
        }
        let ended = timeout(self.profile.margin(), what).await.is_ok();
        check(!ended, step, "no answer yet", "an answer")
    }

    /// Gives a sink that does not wait for its destination the time to reach it.
    pub async fn settle(&self) {
        if !self.profile.has(Capability::Durable) {
            self.step("wait for what nobody waits for");
            sleep(self.profile.margin()).await;
        }
    }

    /// Drains a sink within the profile's patience.
    ///
    /// # Errors
    ///
    /// When it takes longer.
    pub async fn drain(&self, sink: &dyn Sink) -> Checked<DrainReport> {
        let patience = self.profile.patience();
        let drained = sink.drain(Instant::now() + patience);
        self.within(patience * 2, "drain", drained).await
    }

    // Reading back.

    /// What is stored there now.
    ///
    /// # Errors
    ///
    /// The fixture's.
    pub async fn stored(&self, destination: &Destination) -> Checked<Vec<StoredMessage>> {
        let _fixtures = self.progress.fixture();
        let stored = self.fixture.stored(destination).await;
        stored.map_err(|error| kit("read back", &error))
    }

    /// Waits until at least `count` messages are stored there; patience begins anew with
    /// every message that nobody saw before.
    ///
    /// # Errors
    ///
    /// When patience is over.
    pub async fn wait_for(
        &self,
        destination: &Destination,
        count: usize,
    ) -> Checked<Vec<StoredMessage>> {
        self.step(format!("wait for {count} messages"));
        let mut seen = 0;
        let mut begun = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            let stored = self.stored(destination).await?;
            if stored.len() >= count {
                return Ok(stored);
            }
            if stored.len() > seen {
                seen = stored.len();
                begun = Instant::now();
            }
            if begun.elapsed() > self.profile.patience() {
                return Err(Failure::new(
                    "read back",
                    format!("{count} messages"),
                    format!("{} messages", stored.len()),
                ));
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.profile.patience() / 100);
        }
    }

    /// Removes all faults, waits out the margin, and returns what is stored then: what had
    /// to come after a refusal or a cancellation has come. A sentinel then shows that the
    /// destination still takes messages and that reading still sees them.
    ///
    /// # Errors
    ///
    /// The fixture's, or when the sentinel is not seen.
    pub async fn quiet(&self, destination: &Destination) -> Checked<Vec<StoredMessage>> {
        if let Some(faults) = self.fixture.faults() {
            faults.clear();
        }
        self.step("watch for what must not come");
        sleep(self.profile.margin()).await;
        let before = self.stored(destination).await?;
        let sentinel = self.envelope();
        let id = sentinel.id().to_string();
        let sink = self.build(destination)?;
        let sent = sink.deliver(&sentinel, &DeliveryContext::direct()).await;
        sent.map_err(|error| Failure::new("sentinel", "Ok", error.to_string()))?;
        let after = self.wait_for(destination, before.len() + 1).await?;
        let is_seen = after.iter().any(|message| message.envelope_id() == id);
        check(is_seen, "sentinel", "it is read back", "it is not there")?;
        Ok(after
            .into_iter()
            .filter(|message| message.envelope_id() != id)
            .collect())
    }

    /// Watches the destination, and judges everything that was delivered on the record.
    ///
    /// # Errors
    ///
    /// What [`History::judge`] finds.
    pub async fn judge(&self, destination: &Destination, duplicates: Duplicates) -> Checked {
        let observed = self.quiet(destination).await?;
        self.history.borrow().judge(&observed, duplicates)
    }

    /// How many distinct envelopes of unknown outcome are among these messages.
    #[must_use]
    pub fn recovered(&self, observed: &[StoredMessage]) -> usize {
        self.history.borrow().recovered(observed)
    }

    /// How many distinct envelopes were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.history.borrow().acknowledged()
    }

    // Faults.

    /// The fault script; cases that use it ask for its faults in their gate.
    ///
    /// # Errors
    ///
    /// When the fixture has none.
    pub fn faults(&self) -> Checked<&dyn FaultScript> {
        self.fixture.faults().ok_or_else(|| {
            Failure::of_kit(
                "faults",
                "the profile declares faults and the fixture has none",
            )
        })
    }

    /// A case that plays a fault is worth nothing where none was played.
    fn plan_a_fault(&self) -> Checked {
        let played = self.faults()?.played();
        if self.faults_before.get().is_none() {
            self.faults_before.set(Some(played));
            self.plan(A_FAULT);
        }
        Ok(())
    }

    /// Plays a fault once, at the next request.
    ///
    /// # Errors
    ///
    /// When the fixture has none.
    pub fn play(&self, destination: &Destination, fault: Fault) -> Checked {
        self.plan_a_fault()?;
        self.faults()?.add(destination, Rule::once(fault));
        Ok(())
    }

    /// Plays a fault at every request from now on.
    ///
    /// # Errors
    ///
    /// When the fixture has none.
    pub fn play_always(&self, destination: &Destination, fault: Fault) -> Checked {
        self.plan_a_fault()?;
        self.faults()?.add(destination, Rule::always(fault));
        Ok(())
    }

    /// Waits until `count` requests wait at a gate, while `subject` runs; the subject must
    /// not end meanwhile.
    ///
    /// # Errors
    ///
    /// When it ends, or when no request comes.
    pub async fn arrivals<T>(
        &self,
        hold: &Hold,
        count: usize,
        subject: &mut Pin<&mut impl Future<Output = T>>,
    ) -> Checked {
        self.step("wait for the request");
        let arrived = pin!(hold.arrivals(count));
        let waited = timeout(self.profile.patience(), async {
            tokio::select! {
                biased;
                () = arrived => true,
                _ = subject => false,
            }
        })
        .await;
        match waited {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(
                "hold",
                "no answer while the destination holds the request",
                "an answer",
            )),
            Err(_) => Err(Failure::new(
                "hold",
                format!("{count} requests"),
                "fewer requests".to_owned(),
            )),
        }
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("profile", &self.profile.mode)
            .field("seed", &self.seed)
            .field("step", &self.current_step())
            .finish_non_exhaustive()
    }
}

fn kit(step: &str, error: &FixtureError) -> Failure {
    Failure::of_kit(step, error.to_string())
}
