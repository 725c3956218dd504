//! The member of the consumer group, and what the brokers are asked by it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::{ErrorChain, ErrorClass, SourceError};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{ClientContext, TopicPartitionList};
use tokio::sync::{Notify, watch};

use super::config::SourceConfig;
use super::offsets::Offsets;
use super::telemetry::SourceTelemetry;
use crate::classify;

/// How long a receive rests after a throttled one.
const PAUSE: Duration = Duration::from_secs(1);

/// A consumer with its threads and connections. It leaves its group when it is dropped.
pub(super) struct Client {
    /// There until it is dropped.
    consumer: Option<StreamConsumer<Context>>,
    topic: Arc<str>,
    /// Nothing is sent: its end tells that the group is left.
    left: Option<watch::Sender<()>>,
}

impl Client {
    pub(super) fn new(config: &SourceConfig, context: Context) -> Result<Self, SourceError> {
        let consumer = config
            .client()
            .create_with_context(context)
            .map_err(|_| invalid_configuration())?;
        Ok(Self {
            consumer: Some(consumer),
            topic: Arc::from(&*config.topic),
            left: Some(watch::Sender::new(())),
        })
    }

    pub(super) fn consumer(&self) -> &StreamConsumer<Context> {
        self.consumer.as_ref().expect("it is taken by drop alone")
    }

    /// Ends when the consumer is gone and has left its group.
    pub(super) fn left(&self) -> watch::Receiver<()> {
        let left = self.left.as_ref().expect("it is taken by drop alone");
        left.subscribe()
    }

    /// Looks for topics among all topics: a request that names one could create it. Blocks.
    ///
    /// # Errors
    ///
    /// `Config` when one is not there or not allowed, `Transient` when no broker can be asked.
    pub(super) fn find_topics(
        &self,
        topics: &[&str],
        timeout: Duration,
    ) -> Result<(), (String, SourceError)> {
        let client = self.consumer().client();
        let context = client.context();
        let of_all = |error: SourceError| (self.topic.to_string(), error);
        let metadata = match client.fetch_metadata(None, timeout) {
            Ok(metadata) => metadata,
            Err(_) if context.are_credentials_refused.load(Ordering::Acquire) => {
                let code = Code::Authentication;
                return Err(of_all(classify::receive_failed(code, &self.topic, PAUSE)));
            }
            Err(error) => return Err(of_all(classify::not_connected(Some(error)).into())),
        };
        for topic in topics {
            let mut known = metadata.topics().iter();
            let fault = match known.find(|known| known.name() == *topic) {
                Some(found) => found.error().map(Code::from),
                None => Some(Code::UnknownTopic),
            };
            // Such as a leader that is being elected: the client waits for it.
            if let Some(code) = fault.filter(|code| classify::is_config(*code)) {
                let error = classify::receive_failed(code, topic, PAUSE);
                return Err(((*topic).to_owned(), error));
            }
        }
        Ok(())
    }

    /// Asks for no more records of any partition, also of those that came since the last time.
    pub(super) fn pause(&self, offsets: &Mutex<Offsets>) -> Result<(), KafkaError> {
        let assignment = self.consumer().assignment()?;
        let mut running: BTreeSet<i32> = assignment
            .elements()
            .iter()
            .map(|partition| partition.partition())
            .collect();
        running.retain(|partition| !lock(offsets).paused().contains(partition));
        if running.is_empty() {
            return Ok(());
        }
        self.consumer().pause(&listed(&self.topic, &running))?;
        lock(offsets).paused().extend(running);
        Ok(())
    }

    /// Asks for records of what was paused. A partition that was not would go back to where it
    /// began.
    pub(super) fn resume(&self, offsets: &Mutex<Offsets>) -> Result<(), KafkaError> {
        let paused = lock(offsets).paused().clone();
        if paused.is_empty() {
            return Ok(());
        }
        self.consumer().resume(&listed(&self.topic, &paused))?;
        let mut offsets = lock(offsets);
        offsets
            .paused()
            .retain(|partition| !paused.contains(partition));
        Ok(())
    }

    /// An error that the consumer told.
    pub(super) fn failed(&self, error: &KafkaError) -> SourceError {
        if self.consumer().client().fatal_error().is_some() {
            return SourceError::new(
                ErrorClass::Permanent,
                "ConsumerFenced",
                "the brokers take this member for an old one, for instance since another has the \
                 same group.instance.id: open another subscription",
            );
        }
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        classify::receive_failed(code, &self.topic, PAUSE)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let consumer = self.consumer.take();
        let left = self.left.take();
        // Leaving the group takes a request, and a task must not wait for threads.
        let _ = std::thread::Builder::new()
            .name("sink-kafka-leave".to_owned())
            .spawn(move || {
                drop(consumer);
                drop(left);
            });
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

fn listed(topic: &str, partitions: &BTreeSet<i32>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

/// What librdkafka says of its properties may repeat a value.
fn invalid_configuration() -> SourceError {
    SourceError::config(
        "InvalidConfiguration",
        "librdkafka refuses the properties together, for instance a session.timeout.ms above \
         max.poll.interval.ms, or a security.protocol that it is not built for",
    )
}

/// Listens to what the client says beside its messages.
pub(super) struct Context {
    offsets: Arc<Mutex<Offsets>>,
    /// Told when the group has given partitions.
    news: Arc<Notify>,
    telemetry: SourceTelemetry,
    are_credentials_refused: AtomicBool,
}

impl Context {
    pub(super) fn new(
        offsets: Arc<Mutex<Offsets>>,
        news: Arc<Notify>,
        telemetry: SourceTelemetry,
    ) -> Self {
        Self {
            offsets,
            news,
            telemetry,
            are_credentials_refused: AtomicBool::new(false),
        }
    }
}

/// The records of a subscription. Nobody holds the lock over a wait.
pub(super) fn lock(offsets: &Mutex<Offsets>) -> MutexGuard<'_, Offsets> {
    offsets.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, _: &str) {
        let code = error.rdkafka_error_code();
        if matches!(
            code,
            Some(Code::Authentication | Code::SaslAuthenticationFailed)
        ) {
            self.are_credentials_refused.store(true, Ordering::Release);
        }
        tracing::debug!(code = ?code, "librdkafka reports an error");
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        lock(&self.offsets).set_joined(false);
        if let Rebalance::Revoke(partitions) = rebalance {
            // One that leaves paused would come back paused.
            let mut paused = TopicPartitionList::new();
            for partition in partitions.elements() {
                if lock(&self.offsets)
                    .paused()
                    .contains(&partition.partition())
                {
                    paused.add_partition(partition.topic(), partition.partition());
                }
            }
            if paused.count() > 0
                && let Err(error) = consumer.resume(&paused)
            {
                tracing::debug!(error = %ErrorChain(&error), "partitions are not resumed");
            }
            let mut offsets = lock(&self.offsets);
            for partition in partitions.elements() {
                offsets.revoke(partition.partition());
                self.telemetry.revoked();
            }
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = rebalance {
            lock(&self.offsets).set_joined(true);
            self.news.notify_one();
        }
    }
}
