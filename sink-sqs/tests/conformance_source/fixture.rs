//! A server of its own for each case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, Source};
use serde_json::json;
use sink_sqs::SqsQueue;
use sink_testkit::conformance::source::{
    RawMessage, SourceFaultScript, SourceFixture, SourceOptions, SourceProfile,
};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};
use sink_testkit::sqs::{Credentials, Operation, PeekedMessage, SqsServer, Visibility};

use crate::adapter::MAX_MESSAGE_BYTES;
use crate::profile::{is_batched, is_fifo};
use crate::queue::{queue_options, send};
use crate::script::Script;

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";

pub(crate) struct QueueFixture {
    server: Arc<SqsServer>,
    script: Script,
    /// The profile's.
    options: SourceOptions,
    is_fifo: bool,
    is_batched: bool,
    /// How many places of each name there are.
    made: Mutex<BTreeMap<String, usize>>,
}

impl QueueFixture {
    pub(crate) async fn start(profile: &SourceProfile) -> Result<Self, FixtureError> {
        let server = SqsServer::builder()
            .credentials([Credentials::new("AKIDHARBOR", SECRET)])
            .start()
            .await?;
        let server = Arc::new(server);
        let is_batched = is_batched(&profile.mode);
        Ok(Self {
            script: Script::new(Arc::clone(&server), is_batched),
            server,
            options: SourceOptions::new(profile),
            is_fifo: is_fifo(&profile.mode),
            is_batched,
            made: Mutex::default(),
        })
    }

    fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}{suffix}"))
    }

    fn source_of(
        &self,
        destination: &Destination,
        options: &SourceOptions,
        access_key: &str,
    ) -> Result<Arc<dyn Source>, String> {
        let url = self.server.queue_url(destination.name());
        let mut options = queue_options(&url, options, self.is_batched)?;
        options["access_key_id"] = access_key.into();
        options["secret_access_key"] = SECRET.into();
        let queue = SqsQueue::from_options(&options, &HostServices::new());
        let queue = queue.map_err(|problems| problems.to_string())?;
        // In whole seconds, as it is asked for.
        self.script.extends_by(queue.visibility());
        Ok(Arc::new(queue))
    }

    fn peek(&self, destination: &Destination) -> Result<Vec<PeekedMessage>, FixtureError> {
        Ok(self.server.messages(destination.name())?)
    }
}

#[async_trait]
impl SourceFixture for QueueFixture {
    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        // A case can ask for several of one name.
        let destination = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let count = made.entry(name.to_owned()).or_default();
            *count += 1;
            match *count {
                1 => self.destination(name),
                count => self.destination(&format!("{name}-{count}")),
            }
        };
        let bytes = MAX_MESSAGE_BYTES.to_string();
        let mut attributes = vec![("MaximumMessageSize", &*bytes)];
        if self.is_fifo {
            attributes.push(("FifoQueue", "true"));
        }
        self.server
            .create_queue(destination.name(), attributes)
            .await?;
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let listed = self.server.call(Operation::ListQueues, json!({})).await?;
        let urls = listed["QueueUrls"].as_array().cloned().unwrap_or_default();
        let names = urls
            .iter()
            .filter_map(|url| url.as_str()?.rsplit('/').next());
        Ok(names.map(str::to_owned).collect())
    }

    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        self.source_of(destination, options, "AKIDHARBOR")
    }

    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError> {
        for message in messages {
            let url = self.server.queue_url(destination.name());
            let request = send(&url, message, self.is_fifo)?;
            self.server.call(Operation::SendMessage, request).await?;
        }
        Ok(())
    }

    async fn unsettled(
        &self,
        destination: &Destination,
        _group: &str,
    ) -> Result<usize, FixtureError> {
        Ok(self.peek(destination)?.len())
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let peeked = self.peek(destination)?;
        Ok(peeked.into_iter().map(as_stored).collect())
    }

    async fn in_hand(
        &self,
        destination: &Destination,
        _group: &str,
    ) -> Result<usize, FixtureError> {
        let peeked = self.peek(destination)?;
        let held = peeked
            .iter()
            .filter(|message| message.visibility == Visibility::InFlight);
        Ok(held.count())
    }

    fn forbidden(&self, destination: &Destination) -> Option<Arc<dyn Source>> {
        self.source_of(destination, &self.options, "AKIDSTRANGER")
            .ok()
    }

    fn faults(&self) -> Option<&dyn SourceFaultScript> {
        Some(&self.script)
    }

    async fn expire(&self, destination: &Destination) -> Result<(), FixtureError> {
        Ok(self.server.end_holds(destination.name())?)
    }

    /// The server lives as long as the fixture; what a restart is to a client is that every
    /// connection ends, whatever is under way on it.
    async fn restart(&self) -> Result<(), FixtureError> {
        self.server.cut_connections();
        Ok(())
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

fn as_stored(message: PeekedMessage) -> StoredMessage {
    let mut stored = StoredMessage::new(message.body);
    stored.attributes = message
        .attributes
        .iter()
        .map(|(name, value)| {
            let text = value.as_str().unwrap_or_default();
            (name.clone(), Bytes::from(text.to_owned()))
        })
        .collect();
    stored.key = message.group_id;
    stored.dedup_id = message.deduplication_id;
    stored.provider_id = Some(message.message_id);
    stored.sequence = message.sequence_number;
    stored
}
