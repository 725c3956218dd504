//! The client: made when it is needed, asked about the topic, and replaced when it is
//! beyond repair.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dispatch_api::{ErrorClass, SinkError};
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::future_producer::Delivery;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _, PurgeConfig};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::classify;
use crate::config::KafkaSinkConfig;

/// Holds the producer to one topic.
pub(crate) struct Producers {
    config: KafkaSinkConfig,
    slot: Mutex<Slot>,
    /// Of all its producers, whose credentials are the same.
    are_credentials_refused: Arc<AtomicBool>,
}

#[derive(Default)]
struct Slot {
    current: Option<Arc<Producer>>,
    /// The last failure to find the topic, for those who waited for it.
    failed: Option<(Instant, SinkError)>,
}

impl Producers {
    pub(crate) fn new(config: KafkaSinkConfig) -> Self {
        Self {
            config,
            slot: Mutex::default(),
            are_credentials_refused: Arc::default(),
        }
    }

    /// A producer that works and has found the topic. One caller looks, the others wait
    /// for it and share its failure.
    ///
    /// # Errors
    ///
    /// `Config` when the topic is not there or not allowed or the credentials are refused,
    /// `Transient` when no broker can be asked. Nothing was sent.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<Arc<Producer>, SinkError> {
        let asked = Instant::now();
        let looking = async {
            let mut slot = self.slot.lock().await;
            let working = slot
                .current
                .take()
                .filter(|current| current.fatal().is_none());
            let producer = match working {
                Some(current) => current,
                None => {
                    let refused = Arc::clone(&self.are_credentials_refused);
                    Arc::new(Producer::new(&self.config, refused)?)
                }
            };
            slot.current = Some(Arc::clone(&producer));
            if producer.has_found_topic() {
                return Ok(producer);
            }
            if let Some((at, error)) = &slot.failed
                && *at > asked
            {
                return Err(error.clone());
            }
            match producer.find_topic(deadline).await {
                Ok(()) => Ok(producer),
                Err(error) => {
                    slot.failed = Some((Instant::now(), error.clone()));
                    Err(error)
                }
            }
        };
        // Clients that are refused go on to ask, so that time is over before they are heard.
        timeout_at(deadline, looking).await.unwrap_or_else(|_| {
            Err(match self.are_credentials_refused.load(Ordering::Acquire) {
                true => {
                    let topic = self.config.topic();
                    classify::failed(Code::Authentication, topic, false, Duration::ZERO)
                }
                false => classify::not_connected(None),
            })
        })
    }

    /// Stores a record, and returns when the brokers have acknowledged it. `pause` is for a
    /// fault that asks for a pause without saying how long.
    ///
    /// # Errors
    ///
    /// What became of it, as the table of faults says.
    pub(crate) async fn store(
        &self,
        record: &RawRecord<'_>,
        deadline: Instant,
        pause: impl Fn() -> Duration + Send + Sync,
    ) -> Result<Delivery, SinkError> {
        let topic = self.config.topic();
        // A producer can be beyond repair without anyone's fault. What it does not take
        // goes to the next.
        for _ in 0..2 {
            let producer = self.ready(deadline).await?;
            match producer.send(record) {
                Ok(delivery) => return self.answer(&producer, delivery, deadline, pause).await,
                Err(code) => {
                    let fatal = producer.fatal();
                    let code = fatal.unwrap_or(code);
                    if fatal.is_none() || classify::is_config(code) {
                        return Err(classify::failed(code, topic, false, pause()));
                    }
                    producer.give_up();
                }
            }
        }
        Err(classify::failed(Code::Fatal, topic, false, Duration::ZERO))
    }

    async fn answer(
        &self,
        producer: &Arc<Producer>,
        delivery: DeliveryFuture,
        deadline: Instant,
        pause: impl Fn() -> Duration,
    ) -> Result<Delivery, SinkError> {
        let topic = self.config.topic();
        let Ok(answered) = timeout_at(deadline, delivery).await else {
            producer.doubt_topic();
            return Err(classify::timeout());
        };
        let code = match answered {
            Ok(Ok(delivery)) => return Ok(delivery),
            Ok(Err((error, _))) => error.rdkafka_error_code().unwrap_or(Code::Fail),
            // The client ended with its sink.
            Err(_) => Code::PurgeInflight,
        };
        if let Some(fatal) = producer.fatal() {
            producer.give_up();
            let code = match classify::is_config(fatal) {
                true => fatal,
                false => code,
            };
            return Err(classify::failed(code, topic, true, pause()));
        }
        match code {
            Code::MessageTimedOut => {
                // The client tells an unknown topic only later than this.
                producer.doubt_topic();
                let looked = timeout_at(deadline, producer.find_topic(deadline)).await;
                if let Ok(Err(error)) = looked
                    && matches!(error.class(), ErrorClass::Config)
                    && error.code() != "AuthenticationFailed"
                {
                    return Err(error);
                }
            }
            code if classify::is_config(code) => producer.doubt_topic(),
            _ => {}
        }
        Err(classify::failed(code, topic, true, pause()))
    }

    /// Hands out what waits in the client, until the deadline. Blocks nobody.
    pub(crate) async fn flush(&self, deadline: Instant) {
        let flushing = async {
            let Some(producer) = self.slot.lock().await.current.clone() else {
                return;
            };
            let remaining = deadline.saturating_duration_since(Instant::now());
            // It ends by itself: a flush that is late has nothing to tell.
            let _ = tokio::task::spawn_blocking(move || producer.flush(remaining)).await;
        };
        let _ = timeout_at(deadline, flushing).await;
    }
}

/// A record as the client takes it.
pub(crate) struct RawRecord<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
    pub(crate) headers: OwnedHeaders,
    /// Unix milliseconds; `None`: the client's own time.
    pub(crate) timestamp: Option<i64>,
}

/// One idempotent producer, with its threads and connections.
pub(crate) struct Producer {
    /// There until it is dropped.
    client: Option<FutureProducer<Context>>,
    topic: Arc<str>,
    has_found_topic: AtomicBool,
    are_credentials_refused: Arc<AtomicBool>,
}

impl Producer {
    fn new(
        config: &KafkaSinkConfig,
        are_credentials_refused: Arc<AtomicBool>,
    ) -> Result<Self, SinkError> {
        let context = Context {
            are_credentials_refused: Arc::clone(&are_credentials_refused),
        };
        let client = config
            .client()
            .create_with_context(context)
            .map_err(|_| classify::invalid_configuration())?;
        Ok(Self {
            client: Some(client),
            topic: Arc::from(config.topic()),
            has_found_topic: AtomicBool::new(false),
            are_credentials_refused,
        })
    }

    fn client(&self) -> &FutureProducer<Context> {
        self.client.as_ref().expect("it is taken by drop alone")
    }

    /// The fault after which this producer sends nothing any more.
    pub(crate) fn fatal(&self) -> Option<Code> {
        self.client().client().fatal_error().map(|(code, _)| code)
    }

    fn has_found_topic(&self) -> bool {
        self.has_found_topic.load(Ordering::Acquire)
    }

    /// Makes the next delivery look for the topic before it sends.
    pub(crate) fn doubt_topic(&self) {
        self.has_found_topic.store(false, Ordering::Release);
    }

    /// Looks for the topic among all topics: a request that names one can create it.
    ///
    /// # Errors
    ///
    /// As [`Producers::ready`].
    pub(crate) async fn find_topic(self: &Arc<Self>, deadline: Instant) -> Result<(), SinkError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let producer = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || producer.look(remaining)).await;
        let fault = match looked {
            Ok(Ok(None)) => {
                self.are_credentials_refused.store(false, Ordering::Release);
                self.has_found_topic.store(true, Ordering::Release);
                return Ok(());
            }
            Ok(Ok(Some(fault))) => fault,
            Ok(Err(_)) if self.are_credentials_refused.load(Ordering::Acquire) => {
                Code::Authentication
            }
            Ok(Err(error)) => return Err(classify::not_connected(Some(error))),
            // The runtime ends.
            Err(_) => return Err(classify::not_connected(None)),
        };
        self.doubt_topic();
        match classify::is_config(fault) {
            true => Err(classify::failed(fault, &self.topic, false, Duration::ZERO)),
            // Such as a leader that is being elected: the client waits for it.
            false => Ok(()),
        }
    }

    /// What is wrong with the topic. Blocks.
    fn look(&self, timeout: Duration) -> Result<Option<Code>, KafkaError> {
        let metadata = self.client().client().fetch_metadata(None, timeout)?;
        let found = metadata
            .topics()
            .iter()
            .find(|topic| topic.name() == &*self.topic);
        Ok(match found {
            Some(topic) => topic.error().map(Code::from),
            None => Some(Code::UnknownTopic),
        })
    }

    /// Hands one message to the client, which sends it in its own time.
    ///
    /// # Errors
    ///
    /// Why the client does not take it. Nothing was sent.
    fn send(&self, record: &RawRecord<'_>) -> Result<DeliveryFuture, Code> {
        let message = FutureRecord {
            topic: &self.topic,
            partition: None,
            payload: Some(record.payload),
            key: record.key,
            timestamp: record.timestamp,
            headers: Some(record.headers.clone()),
        };
        self.client()
            .send_result(message)
            .map_err(|(error, _)| error.rdkafka_error_code().unwrap_or(Code::Fail))
    }

    /// Answers everything that waits in a producer that sends nothing any more.
    pub(crate) fn give_up(&self) {
        self.client()
            .purge(PurgeConfig::default().queue().inflight());
    }

    fn flush(&self, timeout: Duration) {
        // What is left is told by the deliveries themselves.
        let _ = self.client().flush(timeout);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let client = self.client.take();
        // It waits for its threads, which a task must not.
        let _ = std::thread::Builder::new()
            .name("sink-kafka-drop".to_owned())
            .spawn(move || drop(client));
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("topic", &self.topic)
            .field("has_found_topic", &self.has_found_topic)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Producers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producers")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Listens to what the client says beside its answers.
pub(crate) struct Context {
    are_credentials_refused: Arc<AtomicBool>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_credentials_are_remembered_and_other_errors_are_not() {
        let flag = Arc::new(AtomicBool::new(false));
        let context = Context {
            are_credentials_refused: Arc::clone(&flag),
        };
        context.error(KafkaError::Global(Code::AllBrokersDown), "");
        assert!(!flag.load(Ordering::Acquire));
        context.error(KafkaError::Global(Code::Authentication), "");
        assert!(flag.load(Ordering::Acquire));
    }
}
