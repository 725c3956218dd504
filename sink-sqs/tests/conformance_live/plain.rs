//! An emulator's queues, made and read with plain requests that share no code with the crate.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};

/// Which emulator the environment names, and where it listens.
pub(crate) struct Named {
    pub(crate) emulator: String,
    url: Option<String>,
}

impl Named {
    pub(crate) fn by_environment() -> Self {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            emulator: read("SQS_EMULATOR").unwrap_or_else(|| "moto".to_owned()),
            url: read("SQS_EMULATOR_URL"),
        }
    }

    pub(crate) fn unavailable(&self) -> Option<String> {
        match &self.url {
            Some(_) => None,
            None => Some("SQS_EMULATOR_URL is not set".to_owned()),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone().unwrap_or_default()
    }
}

pub(crate) struct Emulator {
    pub(crate) url: String,
    http: reqwest::Client,
    /// Makes the names of this case's queues its own, also in a second run.
    run: u64,
    is_fifo: bool,
    /// The queues' URLs, which are the emulator's to choose.
    urls: Mutex<BTreeMap<String, String>>,
    /// How many queues of each name there are.
    made: Mutex<BTreeMap<String, usize>>,
}

impl Emulator {
    pub(crate) fn new(url: String, is_fifo: bool) -> Result<Self, FixtureError> {
        Ok(Self {
            url,
            http: reqwest::Client::builder().no_proxy().build()?,
            run: fastrand::u64(..),
            is_fifo,
            urls: Mutex::default(),
            made: Mutex::default(),
        })
    }

    pub(crate) fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}-{}{suffix}", self.run))
    }

    pub(crate) async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        // A case can ask for several of one name.
        let count = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let count = made.entry(name.to_owned()).or_default();
            *count += 1;
            *count
        };
        let destination = match count {
            1 => self.destination(name),
            count => self.destination(&format!("{name}-{count}")),
        };
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
            .insert(destination.name().to_owned(), url);
        Ok(destination)
    }

    /// The URL of a queue, also of one that nobody made.
    pub(crate) fn queue_url(&self, destination: &Destination) -> String {
        let urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let url = urls.get(destination.name()).cloned();
        url.unwrap_or_else(|| format!("{}/000000000000/{}", self.url, destination.name()))
    }

    pub(crate) async fn call(
        &self,
        operation: &str,
        request: Value,
    ) -> Result<Value, FixtureError> {
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
    pub(crate) async fn take(&self, url: &str) -> Result<Vec<StoredMessage>, FixtureError> {
        let mut taken = Vec::new();
        loop {
            let request = json!({
                "QueueUrl": url,
                "MaxNumberOfMessages": 10,
                "WaitTimeSeconds": 0,
                "AttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            });
            let received = self.call("ReceiveMessage", request).await?;
            let messages = received["Messages"].as_array().cloned();
            let messages = messages.unwrap_or_default();
            if messages.is_empty() {
                return Ok(taken);
            }
            let numbered = messages.iter().enumerate();
            let entries: Vec<Value> = numbered
                .map(|(id, message)| {
                    json!({ "Id": id.to_string(), "ReceiptHandle": message["ReceiptHandle"] })
                })
                .collect();
            let request = json!({ "QueueUrl": url, "Entries": entries });
            self.call("DeleteMessageBatch", request).await?;
            taken.extend(messages.iter().map(as_stored));
        }
    }

    /// The queues of this case; others have theirs at the same emulator.
    pub(crate) async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let listed = self.call("ListQueues", json!({})).await?;
        let urls = listed["QueueUrls"].as_array().cloned().unwrap_or_default();
        let names = urls
            .iter()
            .filter_map(|url| url.as_str()?.rsplit('/').next());
        let run = self.run.to_string();
        Ok(names
            .filter(|name| name.contains(&run))
            .map(str::to_owned)
            .collect())
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
