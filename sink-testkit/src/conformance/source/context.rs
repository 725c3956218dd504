//! What a case works with.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    ConsumerReport, ConsumerSettings, Delivery, SettleError, Settlement, SourceError, Stop,
    Subscription, SubscriptionPlan,
};
use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, DeliveryContext, Envelope, EnvelopeId, Message};
use tokio::time::{Instant, sleep, timeout};

use super::fault::{Operation, SourceFault, SourceFaultScript};
use super::fixture::{BoxedHandler, RawMessage, SourceFixture, SourceOptions};
use super::ids::id_of;
use super::profile::{SourceCapability, SourceProfile};
use crate::conformance::watchdog::Progress;
use crate::conformance::{Checked, Destination, Failure, FixtureError, check};

const RECEIVED_AT: i64 = 1_767_225_600_123;

/// The fixture, the profile, and what a case needs again and again.
pub struct SourceContext<'f> {
    fixture: &'f dyn SourceFixture,
    profile: &'f SourceProfile,
    random: RefCell<fastrand::Rng>,
    messages: Cell<u64>,
    progress: Progress,
    events: RefCell<BTreeMap<String, u64>>,
}

impl<'f> SourceContext<'f> {
    /// A context for one case.
    pub fn new(fixture: &'f dyn SourceFixture, profile: &'f SourceProfile, seed: u64) -> Self {
        Self {
            fixture,
            profile,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            messages: Cell::new(0),
            progress: Progress::new(),
            events: RefCell::default(),
        }
    }

    pub(super) fn telling(mut self, progress: &Progress) -> Self {
        self.progress = progress.clone();
        self
    }

    /// What the adapter declares.
    #[must_use]
    pub fn profile(&self) -> &SourceProfile {
        self.profile
    }

    /// The fixture.
    #[must_use]
    pub fn fixture(&self) -> &dyn SourceFixture {
        self.fixture
    }

    /// The options of the profile.
    #[must_use]
    pub fn options(&self) -> SourceOptions {
        SourceOptions::new(self.profile)
    }

    /// A random number below the bound, of the run's seed.
    #[must_use]
    pub fn random(&self, bound: usize) -> usize {
        self.random.borrow_mut().usize(..bound)
    }

    /// Names what is done now, for a failure.
    pub fn step(&self, step: impl Into<String>) {
        self.progress.step(step.into());
    }

    /// Names an event that has to happen, or the case is not exercised.
    pub fn plan(&self, event: &str) {
        let mut events = self.events.borrow_mut();
        events.entry(event.to_owned()).or_default();
    }

    /// It happened.
    pub fn happened(&self, event: &str) {
        let mut events = self.events.borrow_mut();
        *events.entry(event.to_owned()).or_default() += 1;
    }

    /// Planned events that did not happen.
    #[must_use]
    pub fn missing_events(&self) -> Vec<String> {
        let events = self.events.borrow();
        let missing = events.iter().filter(|(_, count)| **count == 0);
        missing.map(|(event, _)| event.clone()).collect()
    }

    // Places and messages.

    /// A fresh place.
    pub async fn place(&self) -> Checked<Destination> {
        self.named_place("hooks").await
    }

    /// A fresh place with a part of its name.
    pub async fn named_place(&self, name: &str) -> Checked<Destination> {
        self.step(format!("create {name}"));
        let _fixtures = self.progress.fixture();
        let created = self.fixture.create(name).await;
        created.map_err(|error| kit("create a place", &error))
    }

    /// A hook as another program sends it, with a fresh id.
    #[must_use]
    pub fn hook(&self) -> RawMessage {
        self.hook_of("")
    }

    /// A hook whose body ends with these words.
    #[must_use]
    pub fn hook_of(&self, words: &str) -> RawMessage {
        let number = self.messages.get() + 1;
        self.messages.set(number);
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number.to_be_bytes());
        let id = EnvelopeId::v7(RECEIVED_AT.unsigned_abs(), &random);
        let body = format!(r#"{{"parcel":{number},"words":"{words}"}}"#);
        let envelope = Envelope::new(id, "harbor", RECEIVED_AT, body.into_bytes())
            .with_request("POST", "/hooks/harbor")
            .with_content_type("application/json")
            .with_tenant("quay-7");
        let ctx = DeliveryContext::direct();
        let message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES)
            .expect("a small body is inline")
            .encode();
        let raw = RawMessage::new(message);
        match self.profile.has(SourceCapability::Attributes) {
            true => raw.with_attribute("ankusa_source", "harbor"),
            false => raw,
        }
        .with_key("quay-7/harbor")
    }

    /// So many hooks, all of one key.
    #[must_use]
    pub fn hooks(&self, count: usize) -> Vec<RawMessage> {
        (0..count).map(|_| self.hook()).collect()
    }

    /// Puts messages past the source.
    pub async fn put(&self, place: &Destination, messages: &[RawMessage]) -> Checked {
        self.step(format!("put {} messages", messages.len()));
        let _fixtures = self.progress.fixture();
        let put = self.fixture.put(place, messages).await;
        put.map_err(|error| kit("put messages", &error))
    }

    /// Puts so many hooks and returns their ids, in order.
    pub async fn put_hooks(&self, place: &Destination, count: usize) -> Checked<Vec<String>> {
        let hooks = self.hooks(count);
        self.put(place, &hooks).await?;
        Ok(hooks.iter().map(|hook| id_of(&hook.body)).collect())
    }

    /// A fresh place with so many hooks.
    pub async fn place_with(&self, count: usize) -> Checked<(Destination, Vec<String>)> {
        let place = self.place().await?;
        let ids = self.put_hooks(&place, count).await?;
        Ok((place, ids))
    }

    /// Every place that is there.
    pub async fn destinations(&self) -> Checked<Vec<String>> {
        let _fixtures = self.progress.fixture();
        let destinations = self.fixture.destinations().await;
        destinations.map_err(|error| kit("list the places", &error))
    }

    // Subscriptions.

    /// The plan of a case that asks for nothing: where retries are copies, a sink for them.
    #[must_use]
    pub fn plan_for(&self, place: &Destination) -> SubscriptionPlan {
        let mut plan = SubscriptionPlan::new();
        if self.profile.has(SourceCapability::Copies) {
            plan.out_retry = self.fixture.sink(place);
        }
        plan
    }

    /// Opens a subscription as the profile has it.
    pub async fn open(&self, place: &Destination) -> Checked<Arc<dyn Subscription>> {
        self.open_with(place, &self.options(), &self.plan_for(place))
            .await
    }

    /// Opens a subscription.
    pub async fn open_with(
        &self,
        place: &Destination,
        options: &SourceOptions,
        plan: &SubscriptionPlan,
    ) -> Checked<Arc<dyn Subscription>> {
        let opened = self.try_open(place, options, plan).await?;
        opened.map_err(|error| Failure::new("open", "a subscription", error.to_string()))
    }

    /// Opens a subscription, or says why not.
    pub async fn try_open(
        &self,
        place: &Destination,
        options: &SourceOptions,
        plan: &SubscriptionPlan,
    ) -> Checked<Result<Arc<dyn Subscription>, SourceError>> {
        self.step("build the source");
        let source = self.fixture.source(place, options);
        let source = source.map_err(|text| Failure::new("build", "a source", text))?;
        let limit = self.profile.timeout * 4 + self.profile.margin();
        self.within(limit, "open", source.open(plan)).await
    }

    /// Opens what has to be refused.
    pub async fn open_err(
        &self,
        place: &Destination,
        plan: &SubscriptionPlan,
    ) -> Checked<SourceError> {
        match self.try_open(place, &self.options(), plan).await? {
            Ok(_) => Err(Failure::new("open", "an error", "a subscription")),
            Err(error) => Ok(error),
        }
    }

    /// Closes it, in bounded time.
    pub async fn close(&self, subscription: &dyn Subscription) -> Checked {
        let limit = self.profile.wait + self.profile.timeout * 4 + self.profile.margin();
        self.within(limit, "close", subscription.close()).await
    }

    // Receiving.

    /// One receive.
    pub async fn try_receive(
        &self,
        subscription: &dyn Subscription,
        max: usize,
    ) -> Checked<Result<Vec<Box<dyn Delivery>>, SourceError>> {
        let max = NonZeroUsize::new(max).expect("a case asks for one or more");
        let limit = self.profile.wait + self.profile.timeout * 2 + self.profile.margin();
        self.within(limit, "receive", subscription.receive(max))
            .await
    }

    /// One receive that has to succeed, whatever it brings.
    pub async fn receive(
        &self,
        subscription: &dyn Subscription,
        max: usize,
    ) -> Checked<Vec<Box<dyn Delivery>>> {
        let received = self.try_receive(subscription, max).await?;
        received.map_err(|error| Failure::new("receive", "Ok", error.to_string()))
    }

    /// Receives until so many have come, and no more than those.
    pub async fn take(
        &self,
        subscription: &dyn Subscription,
        count: usize,
    ) -> Checked<Vec<Box<dyn Delivery>>> {
        let mut taken = Vec::new();
        let mut begun = Instant::now();
        while taken.len() < count {
            let more = self.receive(subscription, count - taken.len()).await?;
            if !more.is_empty() {
                begun = Instant::now();
                taken.extend(more);
            } else if begun.elapsed() > self.profile.patience() {
                return Err(Failure::new(
                    "receive",
                    format!("{count} deliveries"),
                    format!("{} deliveries", taken.len()),
                ));
            } else {
                // A receive that does not wait must not keep a paused clock from moving.
                sleep(Duration::from_millis(10)).await;
            }
        }
        check(
            taken.len() == count,
            "receive",
            format!("{count} deliveries"),
            format!("{} deliveries", taken.len()),
        )?;
        Ok(taken)
    }

    /// The next delivery.
    pub async fn next(&self, subscription: &dyn Subscription) -> Checked<Box<dyn Delivery>> {
        let mut taken = self.take(subscription, 1).await?;
        Ok(taken.pop().expect("exactly one was taken"))
    }

    /// Receives for so long and returns what came; it is held as long as the caller has it.
    pub async fn receive_for(
        &self,
        subscription: &dyn Subscription,
        time: Duration,
    ) -> Checked<Vec<Box<dyn Delivery>>> {
        let until = Instant::now() + time;
        let mut taken = Vec::new();
        loop {
            taken.extend(self.receive(subscription, 10).await?);
            if Instant::now() >= until {
                return Ok(taken);
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Nothing is left: nothing comes for a hold and a margin, and then a sentinel does.
    pub async fn nothing_more(&self, place: &Destination) -> Checked {
        let subscription = self.open(place).await?;
        self.nothing_comes(&*subscription, self.profile.hold + self.profile.margin())
            .await?;
        self.sentinel(place, &*subscription).await?;
        self.close(&*subscription).await
    }

    /// Nothing comes for so long.
    pub async fn nothing_comes(&self, subscription: &dyn Subscription, time: Duration) -> Checked {
        let came = self.receive_for(subscription, time).await?;
        check(
            came.is_empty(),
            "watch for what must not come",
            "nothing",
            format!("{} deliveries", came.len()),
        )
    }

    /// Puts a message and sees that this one comes next.
    pub async fn sentinel(&self, place: &Destination, subscription: &dyn Subscription) -> Checked {
        if let Some(faults) = self.fixture.faults() {
            faults.clear();
        }
        let ids = self.put_hooks(place, 1).await?;
        let delivery = self.next(subscription).await?;
        let id = id_of(delivery.received().body());
        check(
            id == ids[0],
            "sentinel",
            "the message that was put last",
            "another message",
        )?;
        self.settle_ok(delivery, Settlement::Ack).await
    }

    // Settling.

    /// Settles in bounded time.
    pub async fn settle(
        &self,
        delivery: Box<dyn Delivery>,
        settlement: Settlement,
    ) -> Checked<Result<(), SettleError>> {
        let limit = self.profile.timeout * 2 + self.profile.margin();
        let step = settlement.as_str();
        self.within(limit, step, delivery.settle(settlement)).await
    }

    /// Settles, which has to succeed.
    pub async fn settle_ok(&self, delivery: Box<dyn Delivery>, settlement: Settlement) -> Checked {
        let settled = self.settle(delivery, settlement).await?;
        let step = settlement.as_str();
        settled.map_err(|error| Failure::new(step, "Ok", error.to_string()))
    }

    /// Settles, which must not succeed.
    pub async fn settle_err(
        &self,
        delivery: Box<dyn Delivery>,
        settlement: Settlement,
    ) -> Checked<SettleError> {
        match self.settle(delivery, settlement).await? {
            Ok(()) => Err(Failure::new(settlement.as_str(), "an error", "Ok")),
            Err(error) => Ok(error),
        }
    }

    /// Settles all of them alike, at once.
    pub async fn settle_all(
        &self,
        deliveries: Vec<Box<dyn Delivery>>,
        settlement: Settlement,
    ) -> Checked {
        let settled = deliveries
            .into_iter()
            .map(|delivery| self.settle_ok(delivery, settlement));
        futures_util::future::try_join_all(settled).await.map(drop)
    }

    /// How many messages are not consumed for good.
    pub async fn unsettled(&self, place: &Destination) -> Checked<usize> {
        self.unsettled_of(place, "workers").await
    }

    /// How many messages a group has not consumed for good.
    pub async fn unsettled_of(&self, place: &Destination, group: &str) -> Checked<usize> {
        let _fixtures = self.progress.fixture();
        let unsettled = self.fixture.unsettled(place, group).await;
        unsettled.map_err(|error| kit("count what is left", &error))
    }

    /// So many messages are not consumed for good, at once or soon.
    pub async fn left(&self, place: &Destination, count: usize) -> Checked {
        self.step(format!("{count} messages are left"));
        let begun = Instant::now();
        loop {
            let left = self.unsettled(place).await?;
            if left == count {
                return Ok(());
            }
            if begun.elapsed() > self.profile.margin() * 10 {
                return Err(Failure::new(
                    "count what is left",
                    format!("{count} messages"),
                    format!("{left} messages"),
                ));
            }
            sleep(self.profile.margin() / 10).await;
        }
    }

    /// What can be read at a place that nobody consumes, by id, once so many are there.
    pub async fn dead(&self, place: &Destination, count: usize) -> Checked<Vec<String>> {
        self.step(format!("read {count} dead letters"));
        let begun = Instant::now();
        loop {
            let stored = self.stored(place).await?;
            if stored.len() >= count || begun.elapsed() > self.profile.margin() * 10 {
                let ids: Vec<String> = stored.iter().map(|stored| id_of(&stored.body)).collect();
                check(
                    ids.len() == count,
                    "read dead letters",
                    format!("{count} messages"),
                    format!("{} messages", ids.len()),
                )?;
                return Ok(ids);
            }
            sleep(self.profile.margin() / 10).await;
        }
    }

    /// What can be read at a place that nobody consumes.
    pub async fn stored(
        &self,
        place: &Destination,
    ) -> Checked<Vec<crate::conformance::StoredMessage>> {
        let _fixtures = self.progress.fixture();
        let stored = self.fixture.stored(place).await;
        stored.map_err(|error| kit("read back", &error))
    }

    // Consuming.

    /// The settings of a consumer in a case.
    #[must_use]
    pub fn settings(&self, concurrency: usize) -> ConsumerSettings {
        let mut settings = ConsumerSettings::default();
        settings.concurrency =
            NonZeroUsize::new(concurrency).expect("a case runs one handler or more");
        settings
    }

    /// Runs a consumer over a subscription until it is stopped.
    pub async fn consume(
        &self,
        subscription: &Arc<dyn Subscription>,
        settings: ConsumerSettings,
        handler: BoxedHandler,
        stop: Stop,
    ) -> ConsumerReport {
        let subscription = Arc::clone(subscription);
        self.fixture
            .consume(subscription, settings, handler, stop)
            .await
    }

    // Faults and time.

    /// The fixture's faults.
    pub fn faults(&self) -> Checked<&dyn SourceFaultScript> {
        self.fixture.faults().ok_or_else(|| {
            Failure::of_kit(
                "faults",
                "the profile declares faults and the fixture has none",
            )
        })
    }

    /// Plays a fault once.
    pub fn play(&self, place: &Destination, operation: Operation, fault: SourceFault) -> Checked {
        self.faults()?.add(place, operation, fault, Some(1));
        Ok(())
    }

    /// Plays a fault until all faults are cleared.
    pub fn play_always(
        &self,
        place: &Destination,
        operation: Operation,
        fault: SourceFault,
    ) -> Checked {
        self.faults()?.add(place, operation, fault, None);
        Ok(())
    }

    /// A fault was played.
    pub fn was_played(&self) -> Checked {
        match self.faults()?.played() {
            0 => Err(Failure::of_kit("faults", "no fault was played")),
            _ => Ok(()),
        }
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        self.step(format!("wait for {time:?}"));
        sleep(time).await;
    }

    /// Ends every hold behind the back of who has it.
    pub async fn expire(&self, place: &Destination) -> Checked {
        self.step("end every hold from outside");
        let _fixtures = self.progress.fixture();
        let expired = self.fixture.expire(place).await;
        expired.map_err(|error| kit("end every hold", &error))
    }

    /// Waits for something, so long.
    pub async fn within<T>(
        &self,
        limit: Duration,
        step: &str,
        what: impl Future<Output = T>,
    ) -> Checked<T> {
        self.step(step);
        timeout(limit, what)
            .await
            .map_err(|_| Failure::new(step, format!("an end within {limit:?}"), "it still runs"))
    }
}

impl fmt::Debug for SourceContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceContext")
            .field("mode", &self.profile.mode)
            .finish_non_exhaustive()
    }
}

fn kit(step: &str, error: &FixtureError) -> Failure {
    Failure::of_kit(step, error.to_string())
}
