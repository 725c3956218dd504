//! An open subscription: receiving, and what comes of it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Delivery, ErrorChain, HostServices, LeaseKeeper, SourceError, Subscription};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::client::{Client, lock};
use super::commits::{Commits, Sender};
use super::copies::Copies;
use super::dead_letter::DeadLetter;
use super::delivery::KafkaDelivery;
use super::offsets::{Offsets, Place};
use super::record::StoredRecord;
use super::telemetry::SourceTelemetry;

/// So many records wait in this process, those included that have a time, before no more are
/// asked for.
const MAX_WAITING: usize = 1_000;

/// The most records that wait in this process for the next receive.
const KEPT: usize = 64;

/// How often a member that receives nothing tells that it lives.
const TEND: Duration = Duration::from_secs(1);

/// How long a member that receives nothing looks for what the group wants of it.
const LOOK: Duration = Duration::from_millis(10);

/// How long a receive waits at least for its turn: who tends has it for a moment, and an empty
/// answer meanwhile would be untrue.
const TURN: Duration = Duration::from_millis(100);

/// The longest that a delayed record is not looked at: clocks are set, and tokio's has an end.
const LONGEST_DELAY: Duration = Duration::from_secs(86_400);

/// A member of a group that is consumed.
pub(super) struct KafkaSubscription {
    shared: Arc<Shared>,
}

/// What opening a source found out, and what its deliveries share.
pub(super) struct Shared {
    /// `<topic>/<group>`.
    pub(super) name: String,
    pub(super) topic: Arc<str>,
    pub(super) group: String,
    pub(super) wait: Duration,
    pub(super) timeout: Duration,
    pub(super) services: HostServices,
    pub(super) telemetry: SourceTelemetry,
    pub(super) offsets: Arc<Mutex<Offsets>>,
    pub(super) commits: Commits,
    pub(super) copies: Option<Copies>,
    pub(super) dead_letter: Option<DeadLetter>,
    /// Gone once the subscription is closed.
    client: Mutex<Option<Arc<Client>>>,
    left: watch::Receiver<()>,
    /// Whoever asks the consumer for records.
    polling: tokio::sync::Mutex<Polling>,
    is_closed: watch::Sender<bool>,
    /// A record came back, or the group has given partitions.
    news: Arc<Notify>,
}

/// What one who asked the consumer leaves to the next.
#[derive(Debug, Default)]
struct Polling {
    /// An error that nobody who receives was told. The client tells some only once.
    failed: Option<KafkaError>,
}

/// The parts of a subscription that are made before it.
pub(super) struct Parts {
    pub(super) topic: String,
    pub(super) group: String,
    pub(super) wait: Duration,
    pub(super) timeout: Duration,
    pub(super) services: HostServices,
    pub(super) telemetry: SourceTelemetry,
    pub(super) offsets: Arc<Mutex<Offsets>>,
    pub(super) news: Arc<Notify>,
    pub(super) copies: Option<Copies>,
    pub(super) dead_letter: Option<DeadLetter>,
}

impl KafkaSubscription {
    /// Must be called within a tokio runtime.
    pub(super) fn start(client: Client, parts: Parts) -> Result<Self, SourceError> {
        let client = Arc::new(client);
        let topic: Arc<str> = Arc::from(parts.topic);
        let commits = Commits::start(Sender {
            client: Arc::clone(&client),
            topic: Arc::clone(&topic),
            offsets: Arc::clone(&parts.offsets),
            timeout: parts.timeout,
        });
        let commits = commits.map_err(|error| {
            SourceError::transient("NoThread", "the thread of the commits cannot be started")
                .with_source(error)
        })?;
        let subscribed = client.consumer().subscribe(&[&topic]);
        subscribed.map_err(|error| client.failed(&error))?;
        let shared = Arc::new(Shared {
            name: format!("{topic}/{}", parts.group),
            topic,
            group: parts.group,
            wait: parts.wait,
            timeout: parts.timeout,
            services: parts.services,
            telemetry: parts.telemetry,
            offsets: parts.offsets,
            commits,
            copies: parts.copies,
            dead_letter: parts.dead_letter,
            left: client.left(),
            client: Mutex::new(Some(client)),
            polling: tokio::sync::Mutex::default(),
            is_closed: watch::Sender::new(false),
            news: parts.news,
        });
        tokio::spawn(tend(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }
}

#[async_trait]
impl Subscription for KafkaSubscription {
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        let shared = &self.shared;
        let until = Instant::now() + shared.wait;
        let mut deliveries = Vec::new();
        let received = shared.receive(max.get(), until, &mut deliveries).await;
        if let Err(error) = received {
            shared.telemetry.receive_failed(error.code());
            // What came before is there all the same.
            if deliveries.is_empty() {
                return Err(error);
            }
            tracing::debug!(
                topic = &*shared.topic,
                group = shared.group,
                error = %ErrorChain(&error),
                "a receive that brought records ended with an error"
            );
        }
        shared.telemetry.received(deliveries.len(), "");
        let boxed = |delivery| Box::new(delivery) as Box<dyn Delivery>;
        Ok(deliveries.into_iter().map(boxed).collect())
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn locks_groups(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn close(&self) {
        let shared = &self.shared;
        if shared.is_closed.send_replace(true) {
            return;
        }
        let _ = timeout(shared.timeout, shared.commits.close()).await;
        lock(&shared.offsets).close();
        let client = shared.client.lock();
        drop(client.unwrap_or_else(PoisonError::into_inner).take());
        // Ends with the last who uses the client. An end that takes longer goes on without us.
        let mut left = shared.left.clone();
        let _ = timeout(shared.timeout, left.changed()).await;
    }
}

impl fmt::Debug for KafkaSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSubscription")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn client(&self) -> Result<Arc<Client>, SourceError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or_else(SourceError::subscription_closed)
    }

    /// Receives into `deliveries` until one is there and no more come at once.
    async fn receive(
        self: &Arc<Self>,
        max: usize,
        mut until: Instant,
        deliveries: &mut Vec<KafkaDelivery>,
    ) -> Result<(), SourceError> {
        let client = self.client()?;
        // Others wait for their turn no longer than for a record.
        let turn = until.max(Instant::now() + TURN);
        let Ok(mut polling) = timeout_at(turn, self.polling.lock()).await else {
            return Ok(());
        };
        if let Some(error) = polling.failed.take() {
            return Err(client.failed(&error));
        }
        let joined_by = until + self.timeout;
        let mut waits_since_joined = lock(&self.offsets).has_joined();
        loop {
            if *self.is_closed.borrow() {
                return match deliveries.is_empty() {
                    true => Err(SourceError::subscription_closed()),
                    false => Ok(()),
                };
            }
            self.take_due(max, deliveries).await;
            if deliveries.len() >= max {
                return Ok(());
            }
            let now = Instant::now();
            let latest = match deliveries.is_empty() {
                true => until,
                false => now,
            };
            let throttled = self.throttle(&client, max);
            throttled.map_err(|error| client.failed(&error))?;
            match self.next(&client, latest).await {
                Some(Ok((place, record))) => self.admit(place, record, deliveries).await,
                Some(Err(error)) => return Err(client.failed(&error)),
                None if !deliveries.is_empty() => return Ok(()),
                None => {}
            }
            // Nothing that came is no answer before the group has given partitions.
            let has_joined = lock(&self.offsets).has_joined();
            match Instant::now() {
                now if has_joined && !waits_since_joined => {
                    waits_since_joined = true;
                    until = now + self.wait;
                }
                now if now < until => {}
                _ if has_joined => return Ok(()),
                now if now < joined_by => until = joined_by,
                _ => return Err(not_joined(&self.topic)),
            }
        }
    }

    /// Asks for no more records while too many wait, and for more once there is room. The client
    /// is asked for what else it has to say either way: a member that does not is thrown out.
    fn throttle(&self, client: &Client, max: usize) -> Result<(), KafkaError> {
        let (waiting, is_paused, ready) = {
            let mut offsets = lock(&self.offsets);
            let is_paused = !offsets.paused().is_empty();
            let ready = match is_paused {
                true => offsets.ready(Instant::now()),
                false => 0,
            };
            (offsets.waiting(), is_paused, ready)
        };
        match waiting >= MAX_WAITING {
            true => client.pause(&self.offsets),
            // A resumed partition is fetched anew: not for each single record.
            false if is_paused && ready < max && waiting + KEPT <= MAX_WAITING => {
                client.resume(&self.offsets)
            }
            false => Ok(()),
        }
    }

    /// The next record of the consumer, by `latest` or until something else is to be done.
    async fn next(
        &self,
        client: &Client,
        latest: Instant,
    ) -> Option<Result<(Place, StoredRecord), KafkaError>> {
        let due = lock(&self.offsets).next_due();
        let latest = due.map_or(latest, |due| due.min(latest));
        tokio::select! {
            biased;
            () = self.closed() => None,
            message = client.consumer().recv() => match message {
                Ok(message) => self.taken(&message).map(Ok),
                Err(error) => Some(Err(error)),
            },
            () = self.news.notified() => None,
            () = sleep_until(latest) => None,
        }
    }

    /// Ends when the subscription is closed.
    async fn closed(&self) {
        // It is sent from what is borrowed here.
        let _ = self.is_closed.subscribe().wait_for(|closed| *closed).await;
    }

    fn taken(&self, message: &BorrowedMessage<'_>) -> Option<(Place, StoredRecord)> {
        let place = lock(&self.offsets).take(message.partition(), message.offset())?;
        Some((place, StoredRecord::new(message)))
    }

    /// Hands out what waited and is due.
    async fn take_due(self: &Arc<Self>, max: usize, deliveries: &mut Vec<KafkaDelivery>) {
        while deliveries.len() < max {
            let due = lock(&self.offsets).due(Instant::now());
            let Some((place, record)) = due else {
                return;
            };
            self.admit(place, record, deliveries).await;
        }
    }

    /// Hands a record out, or has it wait, or passes over it.
    async fn admit(
        self: &Arc<Self>,
        place: Place,
        record: StoredRecord,
        deliveries: &mut Vec<KafkaDelivery>,
    ) {
        let now = Instant::now();
        if record.is_for_another(&self.group) {
            let done = lock(&self.offsets).done(place);
            if done == Ok(true) {
                // Nobody waits for it, and a later commit says the same.
                drop(self.commits.commit(place));
            }
            return;
        }
        let early = record.not_before().map_or(Duration::ZERO, |not_before| {
            Duration::from_millis(not_before.saturating_sub(self.services.unix_ms()))
        });
        {
            let mut offsets = lock(&self.offsets);
            if !early.is_zero() {
                offsets.delay(place, now + early.min(LONGEST_DELAY), record);
                return;
            }
            if offsets.is_blocked(place.partition, now) {
                offsets.delay(place, now, record);
                return;
            }
        }
        let (keeper, lease) = LeaseKeeper::new(None);
        lock(&self.offsets).hold(place, keeper);
        let delivery = KafkaDelivery {
            shared: Arc::clone(self),
            place,
            received: record.received(lease),
            record,
            is_back: AtomicBool::new(false),
        };
        if self.is_overspent(&delivery.record) {
            self.telemetry.received(1, "MaxAttemptsExceeded");
            self.bury(&delivery).await;
            return;
        }
        deliveries.push(delivery);
    }

    fn is_overspent(&self, record: &StoredRecord) -> bool {
        let policy = self.dead_letter.as_ref();
        policy.is_some_and(|policy| policy.is_overspent(record))
    }

    /// A record that stays comes back when it is dropped, and is tried again then.
    async fn bury(&self, delivery: &KafkaDelivery) {
        let deadline = Instant::now() + self.timeout;
        let buried = match delivery.bury(deadline).await {
            Ok(()) => delivery.commit(deadline).await,
            Err(error) => Err(error),
        };
        if let Err(error) = buried
            && let Some(count) = self.telemetry.not_moved.due()
        {
            tracing::warn!(
                topic = &*self.topic,
                group = self.group,
                message_id = delivery.received.id(),
                error = %ErrorChain(&error),
                count,
                "a spent message could not be moved to the dead-letter topic: it stays, and is \
                 moved when it comes back"
            );
        }
    }

    /// The record is handed out again, after a rest. Whether it is this member's.
    pub(super) fn put_back(&self, place: Place, record: &StoredRecord, rest: Duration) -> bool {
        let due = Instant::now() + rest;
        let is_back = lock(&self.offsets).put_back(place, due, record.clone());
        if is_back {
            self.news.notify_one();
        }
        is_back
    }

    /// Does what the group wants of a member while nobody receives, and keeps what comes for
    /// the next receive. Where that does not come for long, the partitions are paused.
    async fn tend(self: &Arc<Self>) {
        let Ok(mut polling) = self.polling.try_lock() else {
            return;
        };
        let Ok(client) = self.client() else {
            return;
        };
        while !*self.is_closed.borrow() {
            let message = tokio::select! {
                biased;
                () = self.closed() => return,
                message = timeout(LOOK, client.consumer().recv()) => message,
            };
            let now = Instant::now();
            match message {
                Ok(Ok(message)) => {
                    if let Some((place, record)) = self.taken(&message) {
                        lock(&self.offsets).delay(place, now, record);
                    }
                }
                Ok(Err(error)) => {
                    polling.failed = Some(error);
                    return;
                }
                Err(_) => return,
            }
            let is_full = {
                let offsets = lock(&self.offsets);
                offsets.ready(now) >= KEPT || offsets.waiting() >= MAX_WAITING
            };
            if is_full && let Err(error) = client.pause(&self.offsets) {
                tracing::debug!(error = %ErrorChain(&error), "partitions are not paused");
                return;
            }
        }
    }
}

fn not_joined(topic: &str) -> SourceError {
    SourceError::transient(
        "NotJoined",
        format!(
            "topic `{topic}`: the group has not given this member its partitions yet; it waits \
             for members that have not answered"
        ),
    )
}

async fn tend(subscription: Weak<Shared>) {
    loop {
        sleep(TEND).await;
        let Some(shared) = subscription.upgrade() else {
            return;
        };
        if *shared.is_closed.borrow() {
            return;
        }
        shared.tend().await;
    }
}
