//! Topics of a case's own.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, SinkPlugin};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FaultScript, FixtureError, Nowhere, SinkFixture, StoredMessage, Unreachable,
};
use tokio::runtime::Handle;

use crate::adapter::{DEFAULT_TIMEOUT, SINGLE, TIMEOUT};
use crate::brokers::Brokers;
use crate::proxy::Proxy;
use crate::script::{DEPOT, HARBOR, STRANGER, Script};
use crate::topics::Topics;

pub(crate) struct TopicFixture {
    brokers: Brokers,
    /// Between the sink and the brokers, where these are the case's own.
    proxy: Option<Proxy>,
    script: Arc<Script>,
    /// Tells this case's topics from those of others at the same brokers.
    prefix: String,
    is_single: bool,
    nowhere: Nowhere,
}

impl TopicFixture {
    /// On brokers that the case has for itself.
    pub(crate) async fn mocked(runtime: &Handle, mode: &str) -> Result<Self, FixtureError> {
        let brokers = Brokers::start().await?;
        let script = Arc::new(Script::default());
        let watch = Arc::clone(&script);
        let proxy = Proxy::start(runtime, brokers.clone(), watch).await?;
        Ok(Self {
            proxy: Some(proxy),
            brokers,
            script,
            prefix: String::new(),
            is_single: mode == SINGLE,
            nowhere: Nowhere::open()?,
        })
    }

    /// On real brokers, which others use as well. What it makes there is among these topics.
    pub(crate) async fn live(topics: Arc<Topics>, mode: &str) -> Result<Self, FixtureError> {
        Ok(Self {
            proxy: None,
            brokers: Brokers::real(topics).await?,
            script: Arc::default(),
            prefix: format!("{}-", HostServices::new().new_envelope_id()),
            is_single: mode == SINGLE,
            nowhere: Nowhere::open()?,
        })
    }

    /// The options of a sink of this user; real brokers ask nobody who it is.
    fn options_of(&self, destination: &Destination, (user, password): (&str, &str)) -> Value {
        // A restart takes the client as long as it waits for the next try.
        let mut properties = json!({"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100});
        if self.is_single {
            properties["batch.num.messages"] = 1.into();
        }
        let mut timeout = DEFAULT_TIMEOUT;
        if self.proxy.is_some() {
            timeout = TIMEOUT;
            properties["security.protocol"] = "sasl_plaintext".into();
            properties["sasl.mechanism"] = "PLAIN".into();
            properties["sasl.username"] = user.into();
            properties["sasl.password"] = password.into();
        }
        let brokers = match &self.proxy {
            Some(proxy) => proxy.address(),
            None => self.brokers.address().to_owned(),
        };
        json!({
            "brokers": brokers.split(',').collect::<Vec<_>>(),
            "topic": destination.name(),
            "timeout_ms": timeout.as_millis() as u64,
            "properties": properties,
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
        let name = format!("{}{name}", self.prefix);
        self.brokers.create(&name, 1).await?;
        Ok(Destination::new(name))
    }

    async fn create_limited(&self, name: &str, bytes: usize) -> Result<Destination, FixtureError> {
        let destination = self.create(name).await?;
        self.script.limit(destination.name(), bytes);
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        Destination::new(format!("{}nobody-made-this", self.prefix))
    }

    fn options(&self, destination: &Destination) -> Value {
        self.options_of(destination, HARBOR)
    }

    fn forbidden(&self, destination: &Destination) -> Option<Value> {
        Some(self.options_of(destination, STRANGER))
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        let (user, _) = DEPOT;
        Some((self.options_of(destination, DEPOT), user.to_owned()))
    }

    fn with_userinfo(
        &self,
        destination: &Destination,
        user: &str,
        password: &str,
    ) -> Option<Value> {
        let mut options = self.options(destination);
        for broker in options["brokers"].as_array_mut()? {
            *broker = format!("{user}:{password}@{}", broker.as_str()?).into();
        }
        Some(options)
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        let (_, password) = HARBOR;
        vec![password.to_owned()]
    }

    /// A password proves itself.
    fn proofs(&self) -> Vec<String> {
        let (_, password) = HARBOR;
        vec![password.to_owned()]
    }

    fn conflicts(&self, _destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        let wide = json!({ "inline_max_bytes": 5_000, "max_message_bytes": 4_000 });
        vec![(wide, ["inline_max_bytes", "max_message_bytes"])]
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let records = self.brokers.stored(destination.name()).await?;
        let stored = records.iter().map(as_stored).map(|mut message| {
            message.sent_by = self.script.sender(&message.envelope_id());
            message
        });
        Ok(stored.collect())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let mut topics = self.brokers.topics().await?;
        topics.retain(|topic| topic.starts_with(&self.prefix));
        Ok(topics)
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        self.proxy
            .as_ref()
            .map(|_| &*self.script as &dyn FaultScript)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.brokers.restart().await
    }

    async fn close_idle(&self) -> Result<(), FixtureError> {
        let proxy = self.proxy.as_ref();
        let proxy = proxy.ok_or_else(|| FixtureError::new("real brokers are left alone"))?;
        proxy.cut().await;
        Ok(())
    }

    /// The client asks for the topic first, so that no record leaves for a broker that does not
    /// answer.
    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        let at = |address: &str| {
            let mut options = self.options(destination);
            options["brokers"] = json!([address]);
            options
        };
        let mut all = self.nowhere.without_a_connection(at)?;
        all.push(self.nowhere.silent(at)?);
        Ok(all)
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
