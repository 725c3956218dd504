//! A server of its own for each case.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::SinkPlugin;
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FaultScript, FixtureError, Profile, SinkFixture, StoredMessage,
};
use sink_testkit::sqs::{AttributeValue, Credentials, Operation, PeekedMessage, SqsServer};

use crate::script::{Script, seen, sends};

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";
const OTHER_SECRET: &str = "depot-s3cret-9d07ac15e3b862";

pub(crate) struct QueueFixture {
    server: Arc<SqsServer>,
    script: Script,
    is_fifo: bool,
    is_batched: bool,
}

impl QueueFixture {
    pub(crate) async fn start(profile: &Profile) -> Result<Self, FixtureError> {
        let server = SqsServer::builder()
            .credentials([
                Credentials::new("AKIDHARBOR", SECRET),
                Credentials::new("AKIDDEPOT", OTHER_SECRET),
            ])
            .start()
            .await?;
        let server = Arc::new(server);
        Ok(Self {
            script: Script {
                server: Arc::clone(&server),
                elsewhere: SqsServer::start().await?,
            },
            server,
            is_fifo: profile.mode.starts_with("fifo"),
            is_batched: profile.batching.is_some(),
        })
    }

    fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}{suffix}"))
    }

    fn options_of(&self, destination: &Destination, key: &str, secret: &str) -> Value {
        json!({
            "queue_url": self.server.queue_url(destination.name()),
            "region": "us-east-1",
            "access_key_id": key,
            "secret_access_key": secret,
            "batch": self.is_batched,
        })
    }

    /// Whose credentials sent each envelope, by the record of requests.
    fn senders(&self) -> BTreeMap<String, String> {
        let mut senders = BTreeMap::new();
        for request in sends(&self.server).iter().map(seen) {
            if let Some(signer) = request.signed_by {
                for envelope in request.envelopes {
                    senders.entry(envelope).or_insert_with(|| signer.clone());
                }
            }
        }
        senders
    }
}

#[async_trait]
impl SinkFixture for QueueFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_sqs::PLUGIN
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.create_limited(name, 1_048_576).await
    }

    async fn create_limited(&self, name: &str, bytes: usize) -> Result<Destination, FixtureError> {
        let destination = self.destination(name);
        let bytes = bytes.to_string();
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

    fn options(&self, destination: &Destination) -> Value {
        self.options_of(destination, "AKIDHARBOR", SECRET)
    }

    fn forbidden(&self, destination: &Destination) -> Option<Value> {
        Some(self.options_of(destination, "AKIDSTRANGER", SECRET))
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        let options = self.options_of(destination, "AKIDDEPOT", OTHER_SECRET);
        Some((options, "AKIDDEPOT".to_owned()))
    }

    fn conflicts(&self, _destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        let wide = json!({ "inline_max_bytes": 5_000, "max_message_bytes": 4_000 });
        vec![
            (wide, ["inline_max_bytes", "max_message_bytes"]),
            (json!({ "profile": "depot" }), ["profile", "access_key_id"]),
        ]
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        vec![SECRET.to_owned()]
    }

    fn proofs(&self) -> Vec<String> {
        let requests = self.server.requests();
        let signatures = requests.iter().filter_map(|request| {
            let (_, signature) = request.header("authorization")?.split_once("Signature=")?;
            Some(signature.to_owned())
        });
        signatures.collect()
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let Ok(peeked) = self.server.messages(destination.name()) else {
            return Ok(Vec::new());
        };
        let senders = self.senders();
        let stored = peeked.into_iter().map(|message| {
            let mut message = as_stored(message);
            message.sent_by = senders.get(&message.envelope_id()).cloned();
            message
        });
        Ok(stored.collect())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let listed = self.server.call(Operation::ListQueues, json!({})).await?;
        let urls = listed["QueueUrls"].as_array().cloned().unwrap_or_default();
        let names = urls
            .iter()
            .filter_map(|url| url.as_str()?.rsplit('/').next());
        Ok(names.map(str::to_owned).collect())
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        Some(&self.script)
    }

    /// The server lives as long as the fixture; what a restart is to a client is that every
    /// connection ends without notice.
    async fn restart(&self) -> Result<(), FixtureError> {
        self.server.close_idle_after(Some(Duration::ZERO));
        self.server.all_connections_closed().await;
        self.server.close_idle_after(None);
        Ok(())
    }

    fn advance(&self, by: Duration) {
        self.server.clock().advance(by);
    }

    fn accounted(&self, message: &StoredMessage) -> usize {
        let attributes = message.attributes.iter();
        message.body.len()
            + attributes
                .map(|(name, value)| name.len() + "String".len() + value.len())
                .sum::<usize>()
    }
}

fn as_stored(message: PeekedMessage) -> StoredMessage {
    let mut stored = StoredMessage::new(message.body);
    stored.attributes = message
        .attributes
        .iter()
        .map(|(name, value)| (name.clone(), bytes_of(value)))
        .collect();
    stored.key = message.group_id;
    stored.dedup_id = message.deduplication_id;
    stored.provider_id = Some(message.message_id);
    stored.sequence = message.sequence_number;
    stored
}

fn bytes_of(value: &AttributeValue) -> Bytes {
    match value.as_str() {
        Some(text) => Bytes::from(text.to_owned()),
        None => Bytes::new(),
    }
}
