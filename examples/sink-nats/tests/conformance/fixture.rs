//! Streams of a case's own, on a server that it has for itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, SinkPlugin};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, FaultScript, FixtureError, Nowhere, SinkFixture, StoredMessage, Unreachable,
};
use tokio::sync::Mutex;

use crate::adapter::{DUPLICATE_WINDOW, MAX_MESSAGE_BYTES, TEMPLATE};
use crate::live::client::{Client, Raw};
use crate::live::proxy::Proxy;
use crate::live::servers::{Borrowed, Servers};
use crate::script::Script;

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";
const OTHER_SECRET: &str = "depot-s3cret-9d07ac15e3b862";

pub(crate) struct StreamFixture {
    borrowed: std::sync::Mutex<Borrowed>,
    /// Where the server listens, past the proxy.
    address: String,
    proxy: Proxy,
    script: Arc<Script>,
    services: HostServices,
    /// Tells this case's streams from those of others on the same server.
    prefix: String,
    has_template: bool,
    /// What was read already, by stream.
    read: Mutex<BTreeMap<String, Vec<StoredMessage>>>,
    nowhere: Nowhere,
}

impl StreamFixture {
    pub(crate) async fn start(servers: Arc<Servers>, mode: &str) -> Result<Self, FixtureError> {
        static CASES: AtomicU64 = AtomicU64::new(1);
        let runtime = servers.runtime();
        let borrowed = tokio::task::spawn_blocking(move || servers.borrow()).await??;
        let address = borrowed.server().address();
        let script = Arc::new(Script::default());
        let watch = Arc::clone(&script);
        Ok(Self {
            proxy: Proxy::start(&runtime, address.clone(), watch).await?,
            borrowed: std::sync::Mutex::new(borrowed),
            address,
            script,
            services: HostServices::new(),
            prefix: format!("c{}-", CASES.fetch_add(1, Ordering::Relaxed)),
            has_template: mode == TEMPLATE,
            read: Mutex::default(),
            nowhere: Nowhere::open()?,
        })
    }

    fn destination(&self, name: &str) -> Destination {
        Destination::new(format!("{}{name}", self.prefix))
    }

    fn options_of(&self, destination: &Destination, user: &str, password: &str) -> Value {
        let name = destination.name();
        let (subject, window) = match self.has_template {
            true => (format!("{name}.{{tenant_id}}.{{source_id}}"), 0),
            false => (name.to_owned(), DUPLICATE_WINDOW.as_millis() as u64),
        };
        json!({
            "servers": [self.proxy.address()],
            "subject": subject,
            "user": user,
            "password": password,
            "max_message_bytes": MAX_MESSAGE_BYTES,
            "duplicate_window_ms": window,
        })
    }

    async fn create_with(&self, name: &str, more: Value) -> Result<Destination, FixtureError> {
        let destination = self.destination(name);
        let subject = match self.has_template {
            true => format!("{}.>", destination.name()),
            false => destination.name().to_owned(),
        };
        let mut config = json!({
            "name": destination.name(), "subjects": [subject], "storage": "file",
            "retention": "limits", "discard": "old", "num_replicas": 1, "max_consumers": -1,
            "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msg_size": -1,
            "duplicate_window": DUPLICATE_WINDOW.as_nanos() as u64,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let mut client = Client::connect(&self.address).await?;
        client.create(&config).await?;
        Ok(destination)
    }

    fn as_stored(&self, stream: &str, raw: Raw) -> StoredMessage {
        let mut stored = StoredMessage::new(raw.payload);
        for (name, value) in raw.headers {
            match &*name {
                "Nats-Msg-Id" => stored.dedup_id = Some(text(&value)),
                _ => stored.attributes.push((name, value)),
            }
        }
        stored.key = key_of(&raw.subject);
        stored.provider_id = Some(format!("{stream}/{}", raw.sequence));
        stored.sequence = Some(raw.sequence.to_string());
        stored.sent_by = self.script.sender(&stored.envelope_id());
        stored
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Tenant and source of a subject of the template, as a key; none of a constant one.
pub(crate) fn key_of(subject: &str) -> Option<String> {
    let mut tokens = subject.split('.').skip(1).map(|token| match token {
        "%" => String::new(),
        _ => unescaped(token),
    });
    Some(format!("{}/{}", tokens.next()?, tokens.next()?))
}

/// A token with its `%` and hex digits read back.
fn unescaped(token: &str) -> String {
    let mut parts = token.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        bytes.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
        bytes.extend_from_slice(rest.as_bytes());
    }
    text(&bytes)
}

#[async_trait]
impl SinkFixture for StreamFixture {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_nats::PLUGIN
    }

    fn services(&self) -> HostServices {
        self.services.clone()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.create_with(name, json!({})).await
    }

    async fn create_limited(&self, name: &str, bytes: usize) -> Result<Destination, FixtureError> {
        self.create_with(name, json!({ "max_msg_size": bytes }))
            .await
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        self.options_of(destination, "harbor", SECRET)
    }

    fn forbidden(&self, destination: &Destination) -> Option<Value> {
        Some(self.options_of(destination, "stranger", "stranger-s3cret-5be0c7"))
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        let options = self.options_of(destination, "depot", OTHER_SECRET);
        Some((options, "depot".to_owned()))
    }

    fn with_userinfo(
        &self,
        destination: &Destination,
        user: &str,
        password: &str,
    ) -> Option<Value> {
        let mut options = self.options(destination);
        let server = format!("nats://{user}:{password}@{}", self.proxy.address());
        options["servers"] = json!([server]);
        Some(options)
    }

    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        vec![SECRET.to_owned()]
    }

    /// A password proves itself.
    fn proofs(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }

    fn conflicts(&self, _destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        let wide = json!({ "inline_max_bytes": 5_000, "max_message_bytes": 4_000 });
        vec![
            (wide, ["inline_max_bytes", "max_message_bytes"]),
            (json!({ "token": "another-s3cret-0c5e" }), ["token", "user"]),
        ]
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let stream = destination.name();
        let mut read = self.read.lock().await;
        let known = read.entry(stream.to_owned()).or_default();
        let mut client = Client::connect(&self.address).await?;
        let last = client.last(stream).await?.unwrap_or_default();
        for sequence in known.len() as u64 + 1..=last {
            let raw = client.message(stream, sequence).await?;
            known.push(self.as_stored(stream, raw));
        }
        Ok(known.clone())
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let mut client = Client::connect(&self.address).await?;
        let mut names = client.names().await?;
        // Cases before this one left theirs.
        names.retain(|name| name.starts_with(&self.prefix));
        Ok(names)
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        Some(&*self.script)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        let mut borrowed = self
            .borrowed
            .lock()
            .map_err(|_| FixtureError::new("a restart panicked before"))?;
        borrowed.restart();
        Ok(())
    }

    async fn close_idle(&self) -> Result<(), FixtureError> {
        self.proxy.cut().await;
        Ok(())
    }

    /// A server speaks first, so that no message leaves for one that does not.
    fn unreachable(&self, destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        let at = |address: &str| {
            let mut options = self.options(destination);
            options["servers"] = json!([address]);
            options
        };
        let mut all = self.nowhere.without_a_connection(at)?;
        all.push(self.nowhere.silent(at)?);
        Ok(all)
    }

    /// Headers as they are written, and the payload.
    fn accounted(&self, message: &StoredMessage) -> usize {
        let line = |name: &str, value: &[u8]| name.len() + ": \r\n".len() + value.len();
        let mut bytes = "NATS/1.0\r\n\r\n".len() + message.body.len();
        for (name, value) in &message.attributes {
            bytes += line(name, value);
        }
        if !self.has_template {
            let mut id = message.envelope_id();
            if let Some(replay) = message.attribute("ankusa_replay_id") {
                id = format!("{id}:replay:{replay}");
            }
            bytes += line("Nats-Msg-Id", Bytes::from(id).as_ref());
        }
        bytes
    }
}
