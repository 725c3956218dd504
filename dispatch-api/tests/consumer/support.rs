//! A subscription that does what it is told, and a record of all that happens to it.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Consumer, ConsumerReport, ConsumerSettings, Delivery, Handler, Lease, Observer, Received,
    SettleError, Settlement, SourceError, Stop, Subscription,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What one receive does.
pub(crate) enum Step {
    /// Brings these messages: (id, group).
    Brings(Vec<(&'static str, Option<&'static str>)>),
    /// Brings these messages after a time.
    BringsAfter(Duration, Vec<(&'static str, Option<&'static str>)>),
    Fails(SourceError),
    /// Never ends.
    Hangs,
}

#[derive(Default)]
pub(crate) struct Record {
    /// (id, settlement), in the order of the settlements' answers.
    pub(crate) settled: Vec<(String, Settlement)>,
    /// When each receive began, and how much it asked for.
    pub(crate) receives: Vec<(Instant, usize)>,
    pub(crate) closed: usize,
    /// What the observer was told.
    pub(crate) told: Vec<String>,
}

struct Shared {
    steps: Mutex<VecDeque<Step>>,
    arrived: Notify,
    record: Mutex<Record>,
    /// How the settlements of these ids end; each once.
    failures: Mutex<HashMap<&'static str, SettleError>>,
    settling_takes: Mutex<Duration>,
    is_ordered: bool,
    locks_groups: bool,
}

#[derive(Clone)]
pub(crate) struct Scripted(Arc<Shared>);

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    fn new(is_ordered: bool, locks_groups: bool, steps: impl IntoIterator<Item = Step>) -> Self {
        Self(Arc::new(Shared {
            steps: Mutex::new(steps.into_iter().collect()),
            arrived: Notify::new(),
            record: Mutex::default(),
            failures: Mutex::default(),
            settling_takes: Mutex::new(Duration::ZERO),
            is_ordered,
            locks_groups,
        }))
    }

    pub(crate) fn unordered(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::new(false, true, steps)
    }

    pub(crate) fn ordered(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::new(true, true, steps)
    }

    /// Ordered, and handed out on while a delivery of a group is out.
    pub(crate) fn log(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::new(true, false, steps)
    }

    pub(crate) fn push(&self, step: Step) {
        self.0.steps.lock().unwrap().push_back(step);
        self.0.arrived.notify_one();
    }

    /// The next settlement of this message ends so.
    pub(crate) fn fail_settling(&self, id: &'static str, error: SettleError) {
        self.0.failures.lock().unwrap().insert(id, error);
    }

    /// Every settlement takes this long.
    pub(crate) fn settle_in(&self, time: Duration) {
        *self.0.settling_takes.lock().unwrap() = time;
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap()
    }

    /// The ids settled so, in order.
    pub(crate) fn settled(&self, settlement: Settlement) -> Vec<String> {
        let record = self.record();
        let settled = record.settled.iter();
        settled
            .filter(|(_, how)| *how == settlement)
            .map(|(id, _)| id.clone())
            .collect()
    }

    fn deliveries(
        &self,
        messages: Vec<(&'static str, Option<&'static str>)>,
    ) -> Vec<Box<dyn Delivery>> {
        let deliveries = messages.into_iter().map(|(id, group)| {
            let received = Received::new(id, "", Lease::unlimited())
                .with_group(group.map(str::to_owned))
                .with_redelivery_count(Some(1));
            Box::new(ScriptedDelivery {
                subscription: self.clone(),
                id,
                received,
            }) as Box<dyn Delivery>
        });
        deliveries.collect()
    }
}

#[async_trait]
impl Subscription for Scripted {
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        self.record().receives.push((Instant::now(), max.get()));
        let step = self.0.steps.lock().unwrap().pop_front();
        match step {
            Some(Step::Brings(mut messages)) => {
                let rest = messages.split_off(messages.len().min(max.get()));
                if !rest.is_empty() {
                    self.0.steps.lock().unwrap().push_front(Step::Brings(rest));
                }
                Ok(self.deliveries(messages))
            }
            Some(Step::BringsAfter(time, messages)) => {
                sleep(time).await;
                Ok(self.deliveries(messages))
            }
            Some(Step::Fails(error)) => Err(error),
            Some(Step::Hangs) => std::future::pending().await,
            // A long poll that something may end.
            None => {
                let _ = timeout(20 * SECOND, self.0.arrived.notified()).await;
                Ok(Vec::new())
            }
        }
    }

    fn is_ordered(&self) -> bool {
        self.0.is_ordered
    }

    fn locks_groups(&self) -> bool {
        self.0.locks_groups
    }

    fn name(&self) -> &str {
        "scripted"
    }

    async fn close(&self) {
        self.record().closed += 1;
    }
}

struct ScriptedDelivery {
    subscription: Scripted,
    id: &'static str,
    received: Received,
}

impl std::fmt::Debug for ScriptedDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

#[async_trait]
impl Delivery for ScriptedDelivery {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let takes = *self.subscription.0.settling_takes.lock().unwrap();
        sleep(takes).await;
        let failure = self.subscription.0.failures.lock().unwrap().remove(self.id);
        match failure {
            Some(error) => Err(error),
            None => {
                let mut record = self.subscription.record();
                record.settled.push((self.id.to_owned(), settlement));
                Ok(())
            }
        }
    }
}

/// Writes down what it is told.
pub(crate) struct Telling(pub(crate) Scripted);

impl Telling {
    fn note(&self, text: String) {
        self.0.record().told.push(text);
    }
}

impl Observer for Telling {
    fn settled(&self, received: &Received, how: Settlement, result: Result<(), &SettleError>) {
        let result = match result {
            Ok(()) => "ok",
            Err(error) => error.as_str(),
        };
        self.note(format!("{} {} {result}", received.id(), how.as_str()));
    }

    fn handler_panicked(&self, received: &Received) {
        self.note(format!("{} panicked", received.id()));
    }

    fn handler_timed_out(&self, received: &Received) {
        self.note(format!("{} timed out", received.id()));
    }

    fn receive_failed(&self, error: &SourceError, in_a_row: u64, pause: Duration) {
        let millis = pause.as_millis();
        self.note(format!("{} {in_a_row} {millis}", error.code()));
    }

    fn receive_recovered(&self, failures: u64) {
        self.note(format!("recovered after {failures}"));
    }
}

pub(crate) fn settings(concurrency: usize) -> ConsumerSettings {
    let mut settings = ConsumerSettings::default();
    settings.concurrency = NonZeroUsize::new(concurrency).unwrap();
    settings
}

/// Runs until nothing is left.
pub(crate) async fn run_until_empty(
    subscription: &Scripted,
    mut settings: ConsumerSettings,
    handler: impl Handler,
) -> ConsumerReport {
    settings.until_empty = true;
    let consumer = Consumer::new(settings).with_observer(Arc::new(Telling(subscription.clone())));
    let run = consumer.run(Arc::new(subscription.clone()), handler, Stop::new());
    timeout(Duration::from_secs(100_000), run).await.unwrap()
}

/// A consumer that runs in a task of its own.
pub(crate) fn start(
    subscription: &Scripted,
    settings: ConsumerSettings,
    handler: impl Handler,
) -> (Stop, tokio::task::JoinHandle<ConsumerReport>) {
    let stop = Stop::new();
    let subscription = subscription.clone();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move {
            let consumer =
                Consumer::new(settings).with_observer(Arc::new(Telling(subscription.clone())));
            consumer.run(Arc::new(subscription), handler, stop).await
        }
    });
    (stop, running)
}

/// What handlers do, seen from outside.
#[derive(Default)]
pub(crate) struct Handled {
    pub(crate) begun: Vec<String>,
    pub(crate) running: usize,
    pub(crate) most_running: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Handled>>);

impl Log {
    pub(crate) fn begin(&self, received: &Received) -> Running {
        let mut handled = self.0.lock().unwrap();
        handled.begun.push(received.id().to_owned());
        handled.running += 1;
        handled.most_running = handled.most_running.max(handled.running);
        Running(self.clone())
    }

    pub(crate) fn get(&self) -> MutexGuard<'_, Handled> {
        self.0.lock().unwrap()
    }
}

/// Ends with the handler, however that ends.
pub(crate) struct Running(Log);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.get().running -= 1;
    }
}
