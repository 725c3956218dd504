//! A server of its own for each case.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, SinkPlugin};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FaultScript, FixtureError, Nowhere, Profile, SinkFixture, StoredMessage,
    Unreachable,
};
use sink_testkit::sqs::{AttributeValue, Credentials, Operation, PeekedMessage, SqsServer};

use crate::script::{Script, seen, sends};

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";
const OTHER_SECRET: &str = "depot-s3cret-9d07ac15e3b862";

/// What options hold.
const OWN: [(&str, &str); 2] = [("AKIDHARBOR", SECRET), ("AKIDDEPOT", OTHER_SECRET)];
/// What the file of shared credentials has, one after the other.
const ROTATED: [(&str, &str); 3] = [
    ("AKIDQUAY1", "quay-s3cret-58a1f0b3c7d924"),
    ("AKIDQUAY2", "quay-s3cret-e90d4c12ab7f36"),
    ("AKIDQUAY3", "quay-s3cret-07b6d83f5e2a91"),
];

pub(crate) struct QueueFixture {
    server: Arc<SqsServer>,
    script: Script,
    is_fifo: bool,
    is_fair: bool,
    is_batched: bool,
    /// Where a sink finds keys that its options do not hold.
    shared_credentials: TempFile,
    /// How often those were replaced.
    rotations: AtomicUsize,
    nowhere: Nowhere,
}

/// Every key that the server knows at first.
fn known() -> impl Iterator<Item = Credentials> {
    let all = OWN.into_iter().chain(ROTATED);
    all.map(|(key, secret)| Credentials::new(key, secret))
}

/// A file of this case's own.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sink-sqs-conformance-{}-{count}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Has the profile `depot` with these keys, or no profile.
    fn write(&self, keys: Option<(&str, &str)>) -> std::io::Result<()> {
        let profile = keys.map(|(key, secret)| {
            format!("[depot]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
        });
        std::fs::write(&self.0, profile.unwrap_or_default())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // One that was never written is not there.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl QueueFixture {
    pub(crate) async fn start(profile: &Profile) -> Result<Self, FixtureError> {
        let server = SqsServer::builder().credentials(known()).start().await?;
        let shared_credentials = TempFile::new();
        shared_credentials.write(Some(ROTATED[0]))?;
        let server = Arc::new(server);
        Ok(Self {
            script: Script {
                server: Arc::clone(&server),
                elsewhere: SqsServer::start().await?,
            },
            server,
            is_fifo: profile.mode.starts_with("fifo"),
            is_fair: profile.mode.starts_with("fair"),
            shared_credentials,
            rotations: AtomicUsize::new(0),
            nowhere: Nowhere::open()?,
            is_batched: profile.batching.is_some(),
        })
    }

    fn destination(&self, name: &str) -> Destination {
        let suffix = if self.is_fifo { ".fifo" } else { "" };
        Destination::new(format!("{name}{suffix}"))
    }

    fn options_of(&self, destination: &Destination, key: &str, secret: &str) -> Value {
        let mut options = self.options_without_keys(destination);
        options["access_key_id"] = key.into();
        options["secret_access_key"] = secret.into();
        options
    }

    fn options_without_keys(&self, destination: &Destination) -> Value {
        let mut options = json!({
            "queue_url": self.server.queue_url(destination.name()),
            "region": "us-east-1",
            "batch": self.is_batched,
        });
        if self.is_fair {
            options["message_group_id"] = "{tenant_id}".into();
        }
        options
    }

    /// Whose credentials sent each envelope, by the record of requests: the last of them where
    /// others were refused.
    fn senders(&self) -> BTreeMap<String, String> {
        let mut senders = BTreeMap::new();
        for request in sends(&self.server).iter().map(seen) {
            if let Some(signer) = request.signed_by {
                for envelope in request.envelopes {
                    senders.insert(envelope, signer.clone());
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

    fn services(&self) -> HostServices {
        let file = self.shared_credentials.0.display().to_string();
        HostServices::new().with_environment(move |name| match name {
            "AWS_SHARED_CREDENTIALS_FILE" => Some(file.clone()),
            "AWS_CONFIG_FILE" => Some("/dev/null".to_owned()),
            // Whoever runs the tests may have keys of their own.
            name if name.starts_with("AWS_") => None,
            name => std::env::var(name).ok(),
        })
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

    fn with_userinfo(
        &self,
        destination: &Destination,
        user: &str,
        password: &str,
    ) -> Option<Value> {
        let mut options = self.options(destination);
        let url = options["queue_url"].as_str()?;
        let url = url.replacen("://", &format!("://{user}:{password}@"), 1);
        options["queue_url"] = url.into();
        Some(options)
    }

    fn sourced(&self, destination: &Destination) -> Option<Value> {
        let mut options = self.options_without_keys(destination);
        options["profile"] = "depot".into();
        Some(options)
    }

    async fn take_credentials(&self) -> Result<(), FixtureError> {
        Ok(self.shared_credentials.write(None)?)
    }

    async fn replace_credentials(&self) -> Result<String, FixtureError> {
        let last = self.rotations.fetch_add(1, Ordering::SeqCst);
        let (key, secret) = ROTATED[last + 1];
        self.shared_credentials.write(Some((key, secret)))?;
        let now = self.server.clock().now();
        self.server
            .set_credentials(known().enumerate().map(|(place, known)| {
                // Those of the options go on.
                match place.checked_sub(OWN.len()) {
                    Some(place) if place <= last => known.expiring_at(now),
                    _ => known,
                }
            }));
        Ok(key.to_owned())
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

    async fn close_idle(&self) -> Result<(), FixtureError> {
        self.restart().await
    }

    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        let at = |endpoint: String| {
            let mut options = self.options(destination);
            options["endpoint"] = endpoint.into();
            options
        };
        let plain = |address: &str| at(format!("http://{address}"));
        let encrypted = self.server.endpoint().replacen("http:", "https:", 1);
        let mut all = self.nowhere.without_a_connection(plain)?;
        all.push(self.nowhere.silent(plain)?.after_a_request());
        all.push(Unreachable::new(
            "a server that speaks no TLS",
            at(encrypted),
        ));
        Ok(all)
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
