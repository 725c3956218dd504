//! Queues of an emulator as the suite of sources sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{HostServices, Source};
use serde_json::json;
use sink_sqs::SqsQueue;
use sink_testkit::conformance::source::{RawMessage, SourceFixture, SourceOptions, SourceProfile};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};
use tokio::sync::Mutex;

use crate::plain::{Emulator, KEY, Queues, SECRET};
use crate::profile::{is_batched, is_fifo};
use crate::queue::{queue_options, send};

pub(crate) struct EmulatorFixture {
    emulator: Emulator,
    is_fifo: bool,
    is_batched: bool,
    /// What was read of each queue, and so taken away.
    read: Mutex<BTreeMap<String, Vec<StoredMessage>>>,
}

impl EmulatorFixture {
    pub(crate) fn new(queues: Arc<Queues>, profile: &SourceProfile) -> Result<Self, FixtureError> {
        let is_fifo = is_fifo(&profile.mode);
        Ok(Self {
            emulator: Emulator::new(queues, is_fifo)?,
            is_fifo,
            is_batched: is_batched(&profile.mode),
            read: Mutex::default(),
        })
    }

    /// The sum of what the queue counts under these names.
    async fn count(
        &self,
        destination: &Destination,
        names: &[&str],
    ) -> Result<usize, FixtureError> {
        let url = self.emulator.queue_url(destination);
        let request = json!({ "QueueUrl": url, "AttributeNames": names });
        let answer = self.emulator.call("GetQueueAttributes", request).await?;
        let mut sum = 0;
        for name in names {
            let count = answer["Attributes"][name].as_str();
            let count = count.ok_or_else(|| FixtureError::new(format!("no {name}")))?;
            sum += count.parse::<usize>()?;
        }
        Ok(sum)
    }
}

#[async_trait]
impl SourceFixture for EmulatorFixture {
    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.emulator.create(name).await
    }

    fn missing(&self) -> Destination {
        self.emulator.destination("nobody-made-this")
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.emulator.destinations().await
    }

    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        let url = self.emulator.queue_url(destination);
        let mut options = queue_options(&url, options, self.is_batched)?;
        options["endpoint"] = self.emulator.url().into();
        options["access_key_id"] = KEY.into();
        options["secret_access_key"] = SECRET.into();
        let queue = SqsQueue::from_options(&options, &HostServices::new());
        Ok(Arc::new(queue.map_err(|problems| problems.to_string())?))
    }

    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError> {
        let url = self.emulator.queue_url(destination);
        for message in messages {
            let request = send(&url, message, self.is_fifo)?;
            self.emulator.call("SendMessage", request).await?;
        }
        Ok(())
    }

    async fn unsettled(
        &self,
        destination: &Destination,
        _group: &str,
    ) -> Result<usize, FixtureError> {
        const ALL: [&str; 3] = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ];
        self.count(destination, &ALL).await
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let url = self.emulator.queue_url(destination);
        let mut read = self.read.lock().await;
        let read = read.entry(destination.name().to_owned()).or_default();
        read.extend(self.emulator.take(&url).await?);
        Ok(read.clone())
    }

    async fn in_hand(
        &self,
        destination: &Destination,
        _group: &str,
    ) -> Result<usize, FixtureError> {
        self.count(destination, &["ApproximateNumberOfMessagesNotVisible"])
            .await
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}
