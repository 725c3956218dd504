//! Streams of a case's own, on a server that it has for itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{HostServices, Source};
use serde_json::{Value, json};
use sink_nats::NatsSource;
use sink_testkit::conformance::source::{
    RawMessage, SourceFaultScript, SourceFixture, SourceOptions, SourceProfile,
};
use sink_testkit::conformance::{Destination, FixtureError, StoredMessage};

use crate::adapter::WORK_QUEUE;
use crate::live::client::Client;
use crate::live::proxy::Proxy;
use crate::live::servers::{Borrowed, Servers};
use crate::script::Script;
use crate::tuned::Tuned;

const SECRET: &str = "harbor-s3cret-41c09be77d2f4a";

pub(crate) struct StreamFixture {
    borrowed: Mutex<Borrowed>,
    /// Where the server listens, past the proxy.
    address: String,
    proxy: Proxy,
    script: Arc<Script>,
    /// The profile's.
    options: SourceOptions,
    timeout: Duration,
    is_work_queue: bool,
    /// Tells this case's streams from those of others on the same server.
    prefix: String,
    /// How many places of each name there are.
    made: Mutex<BTreeMap<String, usize>>,
}

impl StreamFixture {
    pub(crate) async fn start(
        servers: Arc<Servers>,
        profile: &SourceProfile,
    ) -> Result<Self, FixtureError> {
        static CASES: AtomicU64 = AtomicU64::new(1);
        let runtime = servers.runtime();
        let borrowed = tokio::task::spawn_blocking(move || servers.borrow()).await??;
        let address = borrowed.server().address();
        let script = Arc::new(Script::default());
        let watch = Arc::clone(&script);
        Ok(Self {
            proxy: Proxy::start(&runtime, address.clone(), watch).await?,
            borrowed: Mutex::new(borrowed),
            address,
            script,
            options: SourceOptions::new(profile),
            timeout: profile.timeout,
            is_work_queue: profile.mode == WORK_QUEUE,
            prefix: format!("c{}-", CASES.fetch_add(1, Ordering::Relaxed)),
            made: Mutex::default(),
        })
    }

    fn destination(&self, name: &str) -> Destination {
        Destination::new(format!("{}{name}", self.prefix))
    }

    fn source_of(
        &self,
        destination: &Destination,
        options: &SourceOptions,
        (user, password): (&str, &str),
    ) -> Result<Arc<dyn Source>, String> {
        let stream = destination.name();
        let durable = self.durable(&options.group);
        let source = NatsSource::builder([self.proxy.address()], stream, durable)
            .ack_wait(options.hold)
            .wait(options.wait)
            .timeout_ms(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX))
            .user(user, password)
            // A connection of its own: a source in a case stands for a program.
            .build(&HostServices::new());
        Ok(Arc::new(Tuned {
            source: source.map_err(|problems| problems.to_string())?,
            address: self.address.clone(),
            hold: options.hold,
        }))
    }

    /// The durable consumer of a group. A work queue has one, whoever consumes it.
    fn durable<'a>(&'a self, group: &'a str) -> &'a str {
        match self.is_work_queue {
            true => &self.options.group,
            false => group,
        }
    }

    async fn consumer(
        &self,
        destination: &Destination,
        group: &str,
    ) -> Result<Option<Value>, FixtureError> {
        let mut client = Client::connect(&self.address).await?;
        let durable = self.durable(group);
        client.consumer(destination.name(), durable).await
    }
}

/// A number of a server's description.
fn number(info: &Value, key: &str) -> Result<usize, FixtureError> {
    let number = info[key].as_u64();
    let number = number.ok_or_else(|| FixtureError::new(format!("no {key} in {info}")))?;
    Ok(usize::try_from(number)?)
}

#[async_trait]
impl SourceFixture for StreamFixture {
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
        let retention = match self.is_work_queue {
            true => "workqueue",
            false => "limits",
        };
        let config = json!({
            "name": destination.name(), "subjects": [destination.name()], "storage": "file",
            "retention": retention, "discard": "old", "num_replicas": 1,
            "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
            "max_msg_size": -1,
        });
        let mut client = Client::connect(&self.address).await?;
        client.create(&config).await?;
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let mut client = Client::connect(&self.address).await?;
        let mut names = client.names().await?;
        // Cases before this one left theirs.
        names.retain(|name| name.starts_with(&self.prefix));
        Ok(names)
    }

    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        self.source_of(destination, options, ("harbor", SECRET))
    }

    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError> {
        let mut client = Client::connect(&self.address).await?;
        for message in messages {
            let (attributes, body) = (&message.attributes, &message.body);
            let published = client.publish(destination.name(), attributes, body);
            published.await?;
        }
        Ok(())
    }

    async fn unsettled(
        &self,
        destination: &Destination,
        group: &str,
    ) -> Result<usize, FixtureError> {
        if let Some(info) = self.consumer(destination, group).await? {
            return Ok(number(&info, "num_pending")? + number(&info, "num_ack_pending")?);
        }
        // A consumer that is made later gets all of it.
        let mut client = Client::connect(&self.address).await?;
        client.count(destination.name()).await
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let stream = destination.name();
        let mut client = Client::connect(&self.address).await?;
        let last = client.last(stream).await?.unwrap_or_default();
        let mut stored = Vec::new();
        for sequence in 1..=last {
            let raw = client.message(stream, sequence).await?;
            let mut message = StoredMessage::new(raw.payload);
            message.attributes = raw.headers;
            message.provider_id = Some(format!("{stream}/{sequence}"));
            message.sequence = Some(sequence.to_string());
            stored.push(message);
        }
        Ok(stored)
    }

    async fn in_hand(&self, destination: &Destination, group: &str) -> Result<usize, FixtureError> {
        match self.consumer(destination, group).await? {
            Some(info) => number(&info, "num_ack_pending"),
            None => Ok(0),
        }
    }

    fn forbidden(&self, destination: &Destination) -> Option<Arc<dyn Source>> {
        let user = ("stranger", "stranger-s3cret-5be0c7");
        self.source_of(destination, &self.options, user).ok()
    }

    fn faults(&self) -> Option<&dyn SourceFaultScript> {
        Some(&*self.script)
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        let mut borrowed = self
            .borrowed
            .lock()
            .map_err(|_| FixtureError::new("a restart panicked before"))?;
        borrowed.restart_in_order();
        Ok(())
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}
