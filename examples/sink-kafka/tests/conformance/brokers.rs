//! Brokers in this process or elsewhere, and a client that reads what they hold: on a thread
//! of their own, because they block.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedMessage;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sink_testkit::conformance::FixtureError;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long brokers in this process may take for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// The one partition of every topic.
const PARTITION: i32 = 0;

type Command = Box<dyn FnOnce(&mut State) + Send>;

/// One broker in this process until it is dropped, or real ones.
#[derive(Clone)]
pub(crate) struct Brokers {
    commands: mpsc::Sender<Command>,
    address: String,
}

struct State {
    address: String,
    /// `None`: real ones.
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
    consumer: BaseConsumer,
    /// What was read already, by topic.
    read: BTreeMap<String, Vec<OwnedMessage>>,
}

impl Brokers {
    /// One in this process.
    pub(crate) async fn start() -> Result<Self, FixtureError> {
        Self::with(|| {
            let mock = MockCluster::new(1).unwrap();
            State::new(mock.bootstrap_servers(), Some(mock))
        })
        .await
    }

    /// Those that listen at these addresses, joined by commas.
    pub(crate) async fn at(address: String) -> Result<Self, FixtureError> {
        Self::with(|| State::new(address, None)).await
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

    pub(crate) async fn create(&self, topic: &str) -> Result<(), FixtureError> {
        let topic = topic.to_owned();
        self.ask(move |state| state.create(&topic)).await?
    }

    /// Refuses the next request to store something.
    pub(crate) async fn refuse(&self, error: RDKafkaRespErr) -> Result<(), FixtureError> {
        let produce = RDKafkaApiKey::Produce;
        self.ask(move |state| {
            if let Some(mock) = &state.mock {
                mock.request_errors(produce, &[error]);
            }
        })
        .await
    }

    /// Ends every connection and listens again, with what is stored.
    pub(crate) async fn restart(&self) -> Result<(), FixtureError> {
        self.ask(|state| {
            let mock = state.mock.as_ref();
            let mock = mock.ok_or_else(|| FixtureError::new("real brokers are left alone"))?;
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
    fn new(address: String, mock: Option<MockCluster<'static, DefaultProducerContext>>) -> Self {
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
            mock,
            consumer,
            read: BTreeMap::new(),
        }
    }

    fn create(&self, topic: &str) -> Result<(), FixtureError> {
        if let Some(mock) = &self.mock {
            return Ok(mock.create_topic(topic, PARTITION + 1, 1)?);
        }
        let admin: AdminClient<_> = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .create()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let topic = NewTopic::new(topic, PARTITION + 1, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        for created in runtime.block_on(admin.create_topics([&topic], &options))? {
            created
                .map_err(|(topic, code)| FixtureError::new(format!("create {topic}: {code}")))?;
        }
        Ok(())
    }

    fn stored(&mut self, topic: &str) -> Result<Vec<OwnedMessage>, FixtureError> {
        let known = self.read.entry(topic.to_owned()).or_default();
        let (_, end) = self.consumer.fetch_watermarks(topic, PARTITION, PATIENCE)?;
        let end = usize::try_from(end)?;
        if known.len() < end {
            let mut from = TopicPartitionList::new();
            let offset = Offset::Offset(i64::try_from(known.len())?);
            from.add_partition_offset(topic, PARTITION, offset)?;
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
}
