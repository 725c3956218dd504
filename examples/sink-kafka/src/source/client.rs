//! The member of the consumer group, and what the brokers are asked by it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::{ErrorClass, SourceError};
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tokio::sync::watch;

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
    telemetry: SourceTelemetry,
    are_credentials_refused: AtomicBool,
}

impl Context {
    pub(super) fn new(offsets: Arc<Mutex<Offsets>>, telemetry: SourceTelemetry) -> Self {
        Self {
            offsets,
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
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut offsets = lock(&self.offsets);
        offsets.set_joined(false);
        if let Rebalance::Revoke(partitions) = rebalance {
            for partition in partitions.elements() {
                offsets.revoke(partition.partition());
                self.telemetry.revoked();
            }
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = rebalance {
            lock(&self.offsets).set_joined(true);
        }
    }
}
