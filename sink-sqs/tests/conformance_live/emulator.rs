//! Queues of an emulator, made and read with plain requests that share no code with the
//! sink.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::SinkPlugin;
use serde_json::{Value, json};
use sink_testkit::conformance::{Destination, FixtureError, Profile, SinkFixture, StoredMessage};
use tokio::sync::Mutex;

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";

pub(crate) struct EmulatorFixture {
    url: String,
    http: reqwest::Client,
    /// Makes the names of this case's queues its own, also in a second run.
    run: u64,
    is_fifo: bool,
    is_batched: bool,
    queues: Mutex<BTreeMap<String, Queue>>,
    /// The queues' URLs, which are the emulator's to choose.
    urls: std::sync::Mutex<BTreeMap<String, String>>,
}

#[derive(Default)]
struct Queue {
    url: String,
    /// What was read, and so taken away.
    read: Vec<StoredMessage>,
}

impl EmulatorFixture {
    pub(crate) fn new(url: String, profile: &Profile) -> Result<Self, FixtureError> {
        Ok(Self {
            url,
            http: reqwest::Client::builder().no_proxy().build()?,
            run: fastrand::u64(..),
            is_fifo: profile.mode.starts_with("fifo"),
            is_batched: profile.batching.is_some(),
            queues: Mutex::default(),
            urls: std::sync::Mutex::default(),
        })
    }

    fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}-{}{suffix}", self.run))
    }

    async fn call(&self, operation: &str, request: Value) -> Result<Value, FixtureError> {
        let response = self
            .http
            .post(&self.url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{operation}"))
            // Emulators take the region from it, and verify nothing.
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDHARBOR/20260101/us-east-1/sqs/aws4_request, \
                 SignedHeaders=host, Signature=00",
            )
            .body(request.to_string())
            .send()
            .await?;
        let status = response.status();
        let text = response.text().await?;
        if !status.is_success() {
            return Err(FixtureError::new(format!("{operation}: {status}: {text}")));
        }
        match text.is_empty() {
            true => Ok(Value::Null),
            false => Ok(serde_json::from_str(&text)?),
        }
    }

    /// Takes away everything that can be received now.
    async fn take(&self, queue: &mut Queue) -> Result<(), FixtureError> {
        loop {
            let request = json!({
                "QueueUrl": queue.url,
                "MaxNumberOfMessages": 10,
                "WaitTimeSeconds": 0,
                "AttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            });
            let received = self.call("ReceiveMessage", request).await?;
            let messages = received["Messages"].as_array().cloned();
            let messages = messages.unwrap_or_default();
            if messages.is_empty() {
                return Ok(());
            }
            let numbered = messages.iter().enumerate();
            let entries: Vec<Value> = numbered
                .map(|(id, message)| {
                    json!({ "Id": id.to_string(), "ReceiptHandle": message["ReceiptHandle"] })
                })
                .collect();
            let request = json!({ "QueueUrl": queue.url, "Entries": entries });
            self.call("DeleteMessageBatch", request).await?;
            queue.read.extend(messages.iter().map(as_stored));
        }
    }
}

#[async_trait]
impl SinkFixture for EmulatorFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_sqs::PLUGIN
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        let destination = self.destination(name);
        let attributes = match self.is_fifo {
            true => json!({ "FifoQueue": "true" }),
            false => json!({}),
        };
        let request = json!({ "QueueName": destination.name(), "Attributes": attributes });
        let created = self.call("CreateQueue", request).await?;
        let url = created["QueueUrl"].as_str().unwrap_or_default().to_owned();
        self.urls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(destination.name().to_owned(), url.clone());
        let queue = Queue {
            url,
            read: Vec::new(),
        };
        let mut queues = self.queues.lock().await;
        queues.insert(destination.name().to_owned(), queue);
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        let urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let url = urls.get(destination.name()).cloned();
        let missing = || format!("{}/000000000000/{}", self.url, destination.name());
        json!({
            "queue_url": url.unwrap_or_else(missing),
            "endpoint": self.url,
            "region": "us-east-1",
            "access_key_id": "AKIDHARBOR",
            "secret_access_key": SECRET,
            "max_message_bytes": 262_144,
            "batch": self.is_batched,
        })
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        vec![SECRET.to_owned()]
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let mut queues = self.queues.lock().await;
        let Some(queue) = queues.get_mut(destination.name()) else {
            return Ok(Vec::new());
        };
        self.take(queue).await?;
        Ok(queue.read.clone())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let listed = self.call("ListQueues", json!({})).await?;
        let urls = listed["QueueUrls"].as_array().cloned().unwrap_or_default();
        let names = urls
            .iter()
            .filter_map(|url| url.as_str()?.rsplit('/').next());
        let run = self.run.to_string();
        // Others have theirs at the same emulator.
        Ok(names
            .filter(|name| name.contains(&run))
            .map(str::to_owned)
            .collect())
    }

    fn accounted(&self, message: &StoredMessage) -> usize {
        let attributes = message.attributes.iter();
        message.body.len()
            + attributes
                .map(|(name, value)| name.len() + "String".len() + value.len())
                .sum::<usize>()
    }
}

fn as_stored(message: &Value) -> StoredMessage {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut stored = StoredMessage::new(text(&message["Body"]).unwrap_or_default());
    let attributes = message["MessageAttributes"].as_object();
    stored.attributes = attributes
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let value = text(&value["StringValue"]).unwrap_or_default();
            (name.clone(), Bytes::from(value))
        })
        .collect();
    let system = &message["Attributes"];
    stored.key = text(&system["MessageGroupId"]);
    stored.dedup_id = text(&system["MessageDeduplicationId"]);
    stored.provider_id = text(&message["MessageId"]);
    stored.sequence = text(&system["SequenceNumber"]);
    stored
}
