//! An emulator's queues, made and read with plain requests that share no code with the crate,
//! and deleted when the run ends.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use dispatch_api::HostServices;
use serde_json::{Value, json};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};

pub(crate) const KEY: &str = "AKIDHARBOR";
pub(crate) const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";
const REGION: &str = "us-east-1";
const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

    /// None of those whose ways are known.
    #[allow(dead_code, reason = "for a test of this file alone")]
    pub(crate) fn none() -> Self {
        Self {
            emulator: "none".to_owned(),
            url: None,
        }
    }

    pub(crate) fn unavailable(&self) -> Option<String> {
        match &self.url {
            Some(_) => None,
            None => Some("SQS_EMULATOR_URL is not set".to_owned()),
        }
    }

    /// The queues of this run.
    pub(crate) fn queues(&self) -> Arc<Queues> {
        Queues::at(self.url.clone().unwrap_or_default())
    }
}

/// The queues that one run made at an emulator and has not deleted yet.
pub(crate) struct Queues {
    url: String,
    made: Mutex<BTreeSet<String>>,
}

impl Queues {
    /// None yet, at the emulator that listens here.
    pub(crate) fn at(url: String) -> Arc<Self> {
        Arc::new(Self {
            url,
            made: Mutex::default(),
        })
    }

    /// Deletes what this run made, and nothing else.
    async fn delete(&self) -> Result<(), FixtureError> {
        let made = std::mem::take(&mut *lock(&self.made));
        let client = Client::new(self.url.clone())?;
        let mut failed = Ok(());
        for url in made {
            let deleted = client.call("DeleteQueue", json!({ "QueueUrl": url })).await;
            if let Err(error) = deleted {
                failed = Err(error);
            }
        }
        failed
    }

    /// What a run comes to whose queues have to be gone at its end, however it ended.
    pub(crate) fn gone_after(&self, run: ExitCode) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let deleted = runtime
            .map_err(FixtureError::from)
            .and_then(|runtime| runtime.block_on(self.delete()));
        match deleted {
            Ok(()) => run,
            Err(error) => {
                eprintln!("queues of this run are left at the emulator: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Sends plain requests. Its connections are of one runtime.
struct Client {
    url: String,
    http: reqwest::Client,
}

impl Client {
    fn new(url: String) -> Result<Self, FixtureError> {
        Ok(Self {
            url,
            http: reqwest::Client::builder().no_proxy().build()?,
        })
    }

    async fn call(&self, operation: &str, request: Value) -> Result<Value, FixtureError> {
        let target = format!("AmazonSQS.{operation}");
        let body = request.to_string();
        let mut sending = self
            .http
            .post(&self.url)
            .header("content-type", CONTENT_TYPE)
            .header("x-amz-target", &target);
        for (name, value) in signature(&self.url, &target, &body)? {
            sending = sending.header(name, value);
        }
        let response = sending.body(body).send().await?;
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
}

/// The headers that sign a request.
fn signature(url: &str, target: &str, body: &str) -> Result<Vec<(String, String)>, FixtureError> {
    let identity = Credentials::new(KEY, SECRET, None, None, "tests").into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(REGION)
        .name("sqs")
        .time(HostServices::new().now())
        .settings(SigningSettings::default())
        .build()?
        .into();
    let headers = [("content-type", CONTENT_TYPE), ("x-amz-target", target)];
    let body = SignableBody::Bytes(body.as_bytes());
    let request = SignableRequest::new("POST", url, headers.into_iter(), body)?;
    let (signed, _) = sign(request, &params)?.into_parts();
    let headers = signed.headers();
    Ok(headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

pub(crate) struct Emulator {
    client: Client,
    queues: Arc<Queues>,
    /// Makes the names of this case's queues its own, also in a second run.
    run: u64,
    is_fifo: bool,
    /// The queues' URLs, which are the emulator's to choose.
    urls: Mutex<BTreeMap<String, String>>,
    /// How many queues of each name there are.
    made: Mutex<BTreeMap<String, usize>>,
}

impl Emulator {
    pub(crate) fn new(queues: Arc<Queues>, is_fifo: bool) -> Result<Self, FixtureError> {
        Ok(Self {
            client: Client::new(queues.url.clone())?,
            queues,
            run: fastrand::u64(..),
            is_fifo,
            urls: Mutex::default(),
            made: Mutex::default(),
        })
    }

    /// Where the emulator listens.
    pub(crate) fn url(&self) -> &str {
        &self.queues.url
    }

    pub(crate) fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}-{}{suffix}", self.run))
    }

    pub(crate) async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        // A case can ask for several of one name.
        let count = {
            let mut made = lock(&self.made);
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
        lock(&self.queues.made).insert(url.clone());
        lock(&self.urls).insert(destination.name().to_owned(), url);
        Ok(destination)
    }

    /// The URL of a queue, also of one that nobody made.
    pub(crate) fn queue_url(&self, destination: &Destination) -> String {
        let url = lock(&self.urls).get(destination.name()).cloned();
        url.unwrap_or_else(|| format!("{}/000000000000/{}", self.url(), destination.name()))
    }

    pub(crate) async fn call(
        &self,
        operation: &str,
        request: Value,
    ) -> Result<Value, FixtureError> {
        self.client.call(operation, request).await
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
