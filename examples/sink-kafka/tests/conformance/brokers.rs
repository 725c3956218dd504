//! Brokers in this process or elsewhere, and a client that reads what they hold: on a thread
//! of their own, because they block.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sink_testkit::conformance::FixtureError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::topics::Topics;

/// How long brokers in this process may take for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// A record as a producer of its own stores it.
pub(crate) struct RawRecord {
    pub(crate) key: Option<String>,
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, String)>,
}

type Command = Box<dyn FnOnce(&mut State) + Send>;

/// One broker in this process until it is dropped, or real ones.
#[derive(Clone)]
pub(crate) struct Brokers {
    commands: mpsc::Sender<Command>,
    address: String,
}

/// What the brokers are.
enum Kind {
    Mock(MockCluster<'static, DefaultProducerContext>),
    /// Real ones, with the topics that this run made there.
    Real(Arc<Topics>),
}

struct State {
    address: String,
    kind: Kind,
    consumer: BaseConsumer,
    /// What was read already, by topic and partition.
    read: BTreeMap<(String, i32), Vec<OwnedMessage>>,
    /// Made for the first record that is put.
    producer: Option<BaseProducer>,
    /// Who asks for the offsets of a group, by group.
    members: BTreeMap<String, BaseConsumer>,
}

impl Brokers {
    /// One in this process.
    pub(crate) async fn start() -> Result<Self, FixtureError> {
        Self::with(|| {
            let mock = MockCluster::new(1).unwrap();
            State::new(mock.bootstrap_servers(), Kind::Mock(mock))
        })
        .await
    }

    /// Real ones, where these topics are.
    pub(crate) async fn real(topics: Arc<Topics>) -> Result<Self, FixtureError> {
        Self::with(|| State::new(topics.brokers().to_owned(), Kind::Real(topics))).await
    }

    async fn with(make: impl FnOnce() -> State + Send + 'static) -> Result<Self, FixtureError> {
        let (commands, orders) = mpsc::channel::<Command>();
        let (started, address) = oneshot::channel();
        std::thread::Builder::new()
            .name("brokers".to_owned())
            .spawn(move || {
                let mut state = make();
                let _ = started.send(state.address.clone());
                while let Ok(order) = orders.recv() {
                    order(&mut state);
                }
            })?;
        Ok(Self {
            commands,
            address: address.await?,
        })
    }

    /// `host:port`, joined by commas.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, FixtureError> {
        let (answer, answered) = oneshot::channel();
        let command: Command = Box::new(move |state| {
            let _ = answer.send(question(state));
        });
        self.commands
            .send(command)
            .map_err(|_| FixtureError::new("the brokers' thread ended"))?;
        Ok(answered.await?)
    }

    pub(crate) async fn create(&self, topic: &str, partitions: i32) -> Result<(), FixtureError> {
        let topic = topic.to_owned();
        self.ask(move |state| state.create(&topic, partitions))
            .await?
    }

    /// Stores records, in order.
    pub(crate) async fn put(
        &self,
        topic: &str,
        records: Vec<RawRecord>,
    ) -> Result<(), FixtureError> {
        let topic = topic.to_owned();
        self.ask(move |state| state.put(&topic, &records)).await?
    }

    /// How many records a group has not consumed.
    pub(crate) async fn lag(&self, topic: &str, group: &str) -> Result<usize, FixtureError> {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        self.ask(move |state| state.lag(&topic, &group)).await?
    }

    /// Keeps everybody from a topic.
    pub(crate) fn forbid(&self, topic: &str) {
        let topic = topic.to_owned();
        let (told, heard) = mpsc::channel();
        let command: Command = Box::new(move |state| {
            if let Kind::Mock(mock) = &state.kind {
                let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
                mock.topic_error(&topic, error).unwrap();
            }
            let _ = told.send(());
        });
        self.commands.send(command).unwrap();
        heard.recv().unwrap();
    }

    /// Refuses the next request to store something.
    pub(crate) async fn refuse(&self, error: RDKafkaRespErr) -> Result<(), FixtureError> {
        let produce = RDKafkaApiKey::Produce;
        self.ask(move |state| {
            if let Kind::Mock(mock) = &state.kind {
                mock.request_errors(produce, &[error]);
            }
        })
        .await
    }

    /// Ends every connection and listens again, with what is stored.
    pub(crate) async fn restart(&self) -> Result<(), FixtureError> {
        self.ask(|state| {
            let Kind::Mock(mock) = &state.kind else {
                return Err(FixtureError::new("real brokers are left alone"));
            };
            mock.broker_down(-1)?;
            Ok(mock.broker_up(-1)?)
        })
        .await?
    }

    /// The names of all topics.
    pub(crate) async fn topics(&self) -> Result<Vec<String>, FixtureError> {
        let listed = self
            .ask(|state| {
                let metadata = state.consumer.fetch_metadata(None, PATIENCE)?;
                let topics = metadata.topics().iter();
                Ok::<_, rdkafka::error::KafkaError>(
                    topics.map(|topic| topic.name().to_owned()).collect(),
                )
            })
            .await?;
        Ok(listed?)
    }

    /// Everything in a topic, in its order.
    pub(crate) async fn stored(&self, topic: &str) -> Result<Vec<OwnedMessage>, FixtureError> {
        if !self.topics().await?.iter().any(|known| known == topic) {
            return Ok(Vec::new());
        }
        let topic = topic.to_owned();
        self.ask(move |state| state.stored(&topic)).await?
    }
}

impl State {
    fn new(address: String, kind: Kind) -> Self {
        let consumer = ClientConfig::new()
            .set("bootstrap.servers", &address)
            .set("group.id", "reader")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "5")
            .set("reconnect.backoff.ms", "10")
            .set("reconnect.backoff.max.ms", "100")
            .create()
            .unwrap();
        Self {
            address,
            kind,
            consumer,
            read: BTreeMap::new(),
            producer: None,
            members: BTreeMap::new(),
        }
    }

    fn create(&self, topic: &str, partitions: i32) -> Result<(), FixtureError> {
        match &self.kind {
            Kind::Mock(mock) => Ok(mock.create_topic(topic, partitions, 1)?),
            Kind::Real(topics) => topics.create(topic, partitions),
        }
    }

    fn partitions(&self, topic: &str) -> Result<Vec<i32>, FixtureError> {
        let metadata = self.consumer.fetch_metadata(Some(topic), PATIENCE)?;
        let topics = metadata.topics().iter();
        let partitions = topics.flat_map(|topic| topic.partitions());
        Ok(partitions.map(|partition| partition.id()).collect())
    }

    fn stored(&mut self, topic: &str) -> Result<Vec<OwnedMessage>, FixtureError> {
        let mut all = Vec::new();
        for partition in self.partitions(topic)? {
            all.extend(self.stored_in(topic, partition)?);
        }
        Ok(all)
    }

    fn stored_in(
        &mut self,
        topic: &str,
        partition: i32,
    ) -> Result<Vec<OwnedMessage>, FixtureError> {
        let known = self.read.entry((topic.to_owned(), partition)).or_default();
        let (_, end) = self.consumer.fetch_watermarks(topic, partition, PATIENCE)?;
        let end = usize::try_from(end)?;
        if known.len() < end {
            let mut from = TopicPartitionList::new();
            let offset = Offset::Offset(i64::try_from(known.len())?);
            from.add_partition_offset(topic, partition, offset)?;
            self.consumer.assign(&from)?;
        }
        let begun = Instant::now();
        while known.len() < end {
            match self.consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => known.push(message.detach()),
                // Such as a connection that a restart ended.
                Some(Err(_)) | None if begun.elapsed() < PATIENCE => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(FixtureError::new("the brokers hand out no record")),
            }
        }
        Ok(known.clone())
    }

    fn put(&mut self, topic: &str, records: &[RawRecord]) -> Result<(), FixtureError> {
        let producer = match self.producer.take() {
            Some(producer) => producer,
            None => ClientConfig::new()
                .set("bootstrap.servers", &self.address)
                .set("linger.ms", "0")
                .set("reconnect.backoff.ms", "10")
                .set("reconnect.backoff.max.ms", "100")
                .create()?,
        };
        for record in records {
            let mut headers = OwnedHeaders::new();
            for (name, value) in &record.headers {
                headers = headers.insert(Header {
                    key: name,
                    value: Some(value),
                });
            }
            let mut message = BaseRecord::to(topic)
                .payload(&*record.payload)
                .headers(headers);
            if let Some(key) = &record.key {
                message = message.key(key.as_bytes());
            }
            producer.send(message).map_err(|(error, _)| error)?;
        }
        let flushed = producer.flush(PATIENCE);
        self.producer = Some(producer);
        Ok(flushed?)
    }

    fn lag(&mut self, topic: &str, group: &str) -> Result<usize, FixtureError> {
        if !self.members.contains_key(group) {
            let member = ClientConfig::new()
                .set("bootstrap.servers", &self.address)
                .set("group.id", group)
                .set("reconnect.backoff.ms", "10")
                .set("reconnect.backoff.max.ms", "100")
                .create()?;
            self.members.insert(group.to_owned(), member);
        }
        let member = &self.members[group];
        let mut asked = TopicPartitionList::new();
        for partition in self.partitions(topic)? {
            asked.add_partition(topic, partition);
        }
        let mut lag = 0;
        for partition in member.committed_offsets(asked, PATIENCE)?.elements() {
            let number = partition.partition();
            let (_, end) = self.consumer.fetch_watermarks(topic, number, PATIENCE)?;
            let committed = match partition.offset() {
                Offset::Offset(offset) => offset,
                _ => 0,
            };
            lag += usize::try_from(end - committed)?;
        }
        Ok(lag)
    }
}
