//! Queues of an emulator as the suite of sinks sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::SinkPlugin;
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FixtureError, Nowhere, Profile, SinkFixture, StoredMessage, Unreachable,
};
use tokio::sync::Mutex;

use super::plain::{Emulator, KEY, Queues, SECRET};

pub(crate) struct EmulatorFixture {
    emulator: Emulator,
    is_batched: bool,
    /// What was read of each queue, and so taken away.
    read: Mutex<BTreeMap<String, Vec<StoredMessage>>>,
    nowhere: Nowhere,
}

impl EmulatorFixture {
    pub(crate) fn new(queues: Arc<Queues>, profile: &Profile) -> Result<Self, FixtureError> {
        Ok(Self {
            emulator: Emulator::new(queues, profile.mode.starts_with("fifo"))?,
            is_batched: profile.batching.is_some(),
            read: Mutex::default(),
            nowhere: Nowhere::open()?,
        })
    }
}

#[async_trait]
impl SinkFixture for EmulatorFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_sqs::PLUGIN
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        let destination = self.emulator.create(name).await?;
        let mut read = self.read.lock().await;
        read.insert(destination.name().to_owned(), Vec::new());
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.emulator.destination("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        json!({
            "queue_url": self.emulator.queue_url(destination),
            "endpoint": self.emulator.url(),
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "max_message_bytes": 262_144,
            "batch": self.is_batched,
        })
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        vec![SECRET.to_owned()]
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let mut read = self.read.lock().await;
        let Some(read) = read.get_mut(destination.name()) else {
            return Ok(Vec::new());
        };
        let url = self.emulator.queue_url(destination);
        read.extend(self.emulator.take(&url).await?);
        Ok(read.clone())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.emulator.destinations().await
    }

    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        let at = |address: &str| {
            let mut options = self.options(destination);
            options["endpoint"] = format!("http://{address}").into();
            options
        };
        let mut all = self.nowhere.without_a_connection(at)?;
        all.push(self.nowhere.silent(at)?.after_a_request());
        Ok(all)
    }

    fn accounted(&self, message: &StoredMessage) -> usize {
        let attributes = message.attributes.iter();
        message.body.len()
            + attributes
                .map(|(name, value)| name.len() + "String".len() + value.len())
                .sum::<usize>()
    }
}
