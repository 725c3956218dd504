//! Topics of brokers that a case has for itself.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::SinkPlugin;
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FaultScript, FixtureError, SinkFixture, StoredMessage,
};
use tokio::runtime::Handle;

use crate::adapter::SINGLE;
use crate::brokers::Brokers;
use crate::proxy::Proxy;
use crate::script::Script;

pub(crate) struct TopicFixture {
    brokers: Brokers,
    proxy: Proxy,
    script: Arc<Script>,
    is_single: bool,
}

impl TopicFixture {
    pub(crate) async fn mocked(runtime: &Handle, mode: &str) -> Result<Self, FixtureError> {
        let brokers = Brokers::start().await?;
        let script = Arc::new(Script::default());
        Ok(Self {
            proxy: Proxy::start(runtime, brokers.clone(), Arc::clone(&script)).await?,
            brokers,
            script,
            is_single: mode == SINGLE,
        })
    }
}

fn as_stored(record: &OwnedMessage) -> StoredMessage {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let payload = record.payload().unwrap_or_default();
    let mut stored = StoredMessage::new(Bytes::copy_from_slice(payload));
    let headers = record
        .headers()
        .into_iter()
        .flat_map(|headers| headers.iter());
    stored.attributes = headers
        .map(|header| {
            let value = header.value.unwrap_or_default();
            (header.key.to_owned(), Bytes::copy_from_slice(value))
        })
        .collect();
    stored.key = record.key().map(text);
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
    stored.provider_id = Some(format!("{topic}/{partition}/{offset}"));
    stored.sequence = Some(offset.to_string());
    stored
}

#[async_trait]
impl SinkFixture for TopicFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_kafka::PLUGIN
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.brokers.create(name).await?;
        Ok(Destination::new(name))
    }

    fn missing(&self) -> Destination {
        Destination::new("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        // A restart takes the client as long as it waits for the next try.
        let mut properties = json!({"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100});
        if self.is_single {
            properties["batch.num.messages"] = 1.into();
        }
        json!({
            "brokers": [self.proxy.address()],
            "topic": destination.name(),
            "properties": properties,
        })
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let records = self.brokers.stored(destination.name()).await?;
        Ok(records.iter().map(as_stored).collect())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.brokers.topics().await
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        Some(&*self.script)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.brokers.restart().await
    }

    /// Key, names and values of headers, and payload.
    fn accounted(&self, message: &StoredMessage) -> usize {
        let part = |name: &str| message.attribute(name).unwrap_or_default().len();
        let key = part("ankusa_tenant_id") + "/".len() + part("ankusa_source_id");
        let headers = message.attributes.iter();
        key + message.body.len()
            + headers
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>()
    }
}
