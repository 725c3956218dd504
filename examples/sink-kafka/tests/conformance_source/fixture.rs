//! Topics on brokers that a case has for itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, Sink, Source};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use serde_json::json;
use sink_kafka::{KafkaSink, KafkaSinkConfig, KafkaSource};
use sink_testkit::conformance::source::{
    RawMessage, SourceFaultScript, SourceFixture, SourceOptions,
};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};
use tokio::runtime::Handle;

use crate::adapter::TIMEOUT;
use crate::brokers::{Brokers, RawRecord};
use crate::proxy::{Proxy, Watch};
use crate::script::Script;

const SECRET: &str = "harbor-s3cret-5b7d0c21e4a94f";

/// As many as there are places for members of a group.
const PARTITIONS: i32 = 3;

pub(crate) struct GroupFixture {
    brokers: Brokers,
    /// Between sources and the brokers.
    proxy: Proxy,
    script: Arc<Script>,
    /// How many places of each name there are.
    made: Mutex<BTreeMap<String, usize>>,
}

impl GroupFixture {
    pub(crate) async fn start(runtime: &Handle) -> Result<Self, FixtureError> {
        let brokers = Brokers::start().await?;
        let script = Arc::new(Script::default());
        let watch: Arc<dyn Watch> = Arc::<Script>::clone(&script);
        Ok(Self {
            proxy: Proxy::start(runtime, brokers.clone(), watch).await?,
            brokers,
            script,
            made: Mutex::default(),
        })
    }

    fn source_of(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        let source =
            KafkaSource::builder([self.proxy.address()], destination.name(), &options.group)
                .wait(options.wait)
                .timeout_ms(u64::try_from(TIMEOUT.as_millis()).unwrap())
                // A member hears of others, and of records, when it asks the next time.
                .property("heartbeat.interval.ms", "100")
                // The mock cluster waits this long for members of a group that all have left.
                .property("session.timeout.ms", "4000")
                .property("fetch.wait.max.ms", "50")
                .property("fetch.error.backoff.ms", "200")
                // When a connection that is silent is given up.
                .property("socket.timeout.ms", "7000")
                .property("reconnect.backoff.ms", "10")
                .property("reconnect.backoff.max.ms", "100")
                .property("sasl.username", "harbor")
                .property("sasl.password", SECRET)
                .build(&HostServices::new());
        Ok(Arc::new(source.map_err(|problems| problems.to_string())?))
    }
}

fn as_stored(record: &OwnedMessage) -> StoredMessage {
    let payload = record.payload().unwrap_or_default();
    let mut stored = StoredMessage::new(Bytes::copy_from_slice(payload));
    let headers = record.headers().into_iter().flat_map(|all| all.iter());
    stored.attributes = headers
        .map(|header| {
            let value = header.value.unwrap_or_default();
            (header.key.to_owned(), Bytes::copy_from_slice(value))
        })
        .collect();
    stored.key = record
        .key()
        .map(|key| String::from_utf8_lossy(key).into_owned());
    stored
}

#[async_trait]
impl SourceFixture for GroupFixture {
    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        // A case can ask for several of one name.
        let name = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let count = made.entry(name.to_owned()).or_default();
            *count += 1;
            match *count {
                1 => name.to_owned(),
                count => format!("{name}-{count}"),
            }
        };
        self.brokers.create(&name, PARTITIONS).await?;
        Ok(Destination::new(name))
    }

    fn missing(&self) -> Destination {
        Destination::new("nobody-made-this")
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.brokers.topics().await
    }

    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        self.source_of(destination, options)
    }

    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError> {
        let records = messages.iter().map(|message| RawRecord {
            key: message.key.clone(),
            payload: message.body.clone(),
            headers: message.attributes.clone(),
        });
        let records = records.collect();
        self.brokers.put(destination.name(), records).await
    }

    async fn unsettled(
        &self,
        destination: &Destination,
        group: &str,
    ) -> Result<usize, FixtureError> {
        self.brokers.lag(destination.name(), group).await
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let records = self.brokers.stored(destination.name()).await?;
        Ok(records.iter().map(as_stored).collect())
    }

    fn forbidden(&self, destination: &Destination) -> Option<Arc<dyn Source>> {
        self.brokers.forbid(destination.name());
        let options = SourceOptions::new(&crate::adapter::profile());
        self.source_of(destination, &options).ok()
    }

    fn sink(&self, destination: &Destination) -> Option<Arc<dyn Sink>> {
        let options = json!({
            "brokers": self.brokers.address().split(',').collect::<Vec<_>>(),
            "topic": destination.name(),
            "properties": {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100,
                "linger.ms": 0},
        });
        let config = KafkaSinkConfig::from_options(&options).ok()?;
        Some(Arc::new(KafkaSink::new(config, &HostServices::new())))
    }

    fn faults(&self) -> Option<&dyn SourceFaultScript> {
        Some(&*self.script)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.brokers.restart().await
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}
