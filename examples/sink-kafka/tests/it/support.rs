//! What the tests share.

use std::time::Duration;

use dispatch_api::{DeliveryContext, Envelope, HostServices, Outcome, SinkError};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedMessage;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{Value, json};
use sink_kafka::{KafkaSink, KafkaSinkConfig};

pub(crate) const TOPIC: &str = "hooks";

/// Brokers in this process.
pub(crate) struct Cluster {
    pub(crate) mock: MockCluster<'static, DefaultProducerContext>,
}

impl Cluster {
    /// One broker, and [`TOPIC`] with one partition.
    pub(crate) fn start() -> Self {
        let cluster = Self::without_topic();
        cluster.create_topic(1);
        cluster
    }

    /// One broker without topics.
    pub(crate) fn without_topic() -> Self {
        Self {
            mock: MockCluster::new(1).unwrap(),
        }
    }

    pub(crate) fn create_topic(&self, partitions: i32) {
        self.mock.create_topic(TOPIC, partitions, 1).unwrap();
    }

    /// The sink of these options, laid over these brokers and [`TOPIC`].
    pub(crate) fn sink(&self, more: &Value) -> KafkaSink {
        sink(&self.mock.bootstrap_servers(), more)
    }

    /// The names of the topics that there are.
    pub(crate) fn topics(&self) -> Vec<String> {
        let metadata = self
            .consumer()
            .fetch_metadata(None, Duration::from_secs(10))
            .unwrap();
        let topics = metadata.topics().iter();
        topics.map(|topic| topic.name().to_owned()).collect()
    }

    /// Everything in one partition of [`TOPIC`], of which there has to be `count`.
    pub(crate) fn stored(&self, partition: i32, count: usize) -> Vec<OwnedMessage> {
        let consumer = self.consumer();
        let (_, end) = consumer
            .fetch_watermarks(TOPIC, partition, Duration::from_secs(10))
            .unwrap();
        assert_eq!(end, i64::try_from(count).unwrap());
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(TOPIC, partition, Offset::Beginning)
            .unwrap();
        consumer.assign(&assignment).unwrap();
        (0..count)
            .map(|_| {
                let message = consumer.poll(Duration::from_secs(10));
                message.expect("a message within 10 s").unwrap().detach()
            })
            .collect()
    }

    fn consumer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", self.mock.bootstrap_servers())
            .set("group.id", "test")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap()
    }
}

/// The sink of these options, laid over these brokers and [`TOPIC`].
pub(crate) fn sink(brokers: &str, more: &Value) -> KafkaSink {
    let mut options = json!({
        "brokers": brokers.split(',').collect::<Vec<_>>(),
        "topic": TOPIC,
        // Idle librdkafka threads look for what changed at this pace.
        "properties": {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100},
    });
    let members = options.as_object_mut().unwrap();
    for (name, value) in more.as_object().unwrap() {
        match (members.get_mut(name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
            _ => {
                members.insert(name.clone(), value.clone());
            }
        }
    }
    let config = KafkaSinkConfig::from_options(&options).unwrap();
    KafkaSink::new(config, &HostServices::new().with_seed(1))
}

/// A new envelope of tenant `acme` and source `github`.
pub(crate) fn envelope() -> Envelope {
    envelope_of("{}")
}

/// A new envelope with this body.
pub(crate) fn envelope_of(body: impl Into<String>) -> Envelope {
    let id = HostServices::new().new_envelope_id();
    Envelope::new(id, "github", 1_767_225_600_123, body.into()).with_tenant("acme")
}

pub(crate) fn ctx() -> DeliveryContext {
    DeliveryContext::direct()
}

pub(crate) fn parts(error: &SinkError) -> (&'static str, Outcome, &str) {
    (error.class().as_str(), error.outcome(), error.code())
}
