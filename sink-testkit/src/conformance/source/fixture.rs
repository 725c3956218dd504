//! What an adapter's author writes: where a source comes from, and what its broker holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    Consumer, ConsumerReport, ConsumerSettings, Received, Settlement, Sink, Source, Stop,
    Subscription,
};
use futures_util::future::BoxFuture;

use super::fault::SourceFaultScript;
use super::profile::SourceProfile;
use crate::conformance::{Destination, Divergence, FixtureError, StoredMessage};

/// An adapter under test: its modes, and a fixture for each case.
#[async_trait]
pub trait SourceAdapter: Send + Sync + 'static {
    /// Its name, for the output and for `<NAME>_REQUIRE_LIVE`.
    fn name(&self) -> &str;

    /// Every mode in which the suite runs.
    fn profiles(&self) -> Vec<SourceProfile>;

    /// A fixture for one case. It is dropped after it.
    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError>;

    /// Cases that a broker which stands for another is known to fail.
    fn divergences(&self, _profile: &SourceProfile) -> Vec<Divergence> {
        Vec::new()
    }

    /// Why the suite cannot run here, when it cannot.
    fn unavailable(&self) -> Option<String> {
        None
    }
}

/// How a source is built for a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceOptions {
    /// Sources of one group compete; each group gets every message, where there are groups.
    pub group: String,
    /// How long a delivery is held without an extension.
    pub hold: Duration,
    /// How long a receive waits for a first message.
    pub wait: Duration,
}

impl SourceOptions {
    /// The options that a profile declares, in the group `workers`.
    #[must_use]
    pub fn new(profile: &SourceProfile) -> Self {
        Self {
            group: "workers".to_owned(),
            hold: profile.hold,
            wait: profile.wait,
        }
    }

    /// In another group.
    #[must_use]
    pub fn in_group(mut self, group: &str) -> Self {
        group.clone_into(&mut self.group);
        self
    }

    /// With another hold.
    #[must_use]
    pub const fn with_hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// With another wait.
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// A message as a producer that shares no code with the source puts it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawMessage {
    /// The body.
    pub body: Bytes,
    /// Names and values beside it, in order.
    pub attributes: Vec<(String, String)>,
    /// The key whose messages stay in order.
    pub key: Option<String>,
}

impl RawMessage {
    /// A body and nothing else.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            attributes: Vec::new(),
            key: None,
        }
    }

    /// With an attribute more.
    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: &str) -> Self {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a key.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}

impl fmt::Debug for RawMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMessage")
            .field("bytes", &self.body.len())
            .field("attributes", &self.attributes.len())
            .field("key", &self.key)
            .finish()
    }
}

/// A handler in a box, so that a fixture can pass it on.
pub type BoxedHandler = Arc<dyn Fn(Received) -> BoxFuture<'static, Settlement> + Send + Sync>;

/// One broker, or a part of one that nobody else uses, and sources on it.
///
/// What is put and read here goes past the source under test: it shares no code with it.
#[async_trait]
pub trait SourceFixture: Send + Sync {
    /// Makes an empty place for messages, of a name that no other case has. `name` is a part
    /// of it.
    async fn create(&self, name: &str) -> Result<Destination, FixtureError>;

    /// A place that is not there.
    fn missing(&self) -> Destination;

    /// Every place that is there.
    async fn destinations(&self) -> Result<Vec<String>, FixtureError>;

    /// A source on it, not opened, or why these options make none.
    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String>;

    /// Puts messages, in order.
    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError>;

    /// How many messages are not consumed for good by the group, whether somebody holds them
    /// or not.
    async fn unsettled(
        &self,
        destination: &Destination,
        group: &str,
    ) -> Result<usize, FixtureError>;

    /// What is there to read, for a place that nobody consumes.
    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError>;

    /// How many messages are handed out and not settled, with
    /// [`SourceCapability::InHand`](super::SourceCapability::InHand).
    async fn in_hand(
        &self,
        _destination: &Destination,
        _group: &str,
    ) -> Result<usize, FixtureError> {
        Err(FixtureError::new("this fixture does not see what is held"))
    }

    /// A source whose credentials may not receive, with
    /// [`SourceCapability::Forbidden`](super::SourceCapability::Forbidden).
    fn forbidden(&self, _destination: &Destination) -> Option<Arc<dyn Source>> {
        None
    }

    /// A sink to the same place, for [`SourceCapability::Copies`](super::SourceCapability::Copies).
    fn sink(&self, _destination: &Destination) -> Option<Arc<dyn Sink>> {
        None
    }

    /// Faults on the wire, where the profile declares some.
    fn faults(&self) -> Option<&dyn SourceFaultScript> {
        None
    }

    /// Ends every hold behind the back of who has it, with
    /// [`SourceCapability::Expire`](super::SourceCapability::Expire).
    async fn expire(&self, _destination: &Destination) -> Result<(), FixtureError> {
        Err(FixtureError::new("this fixture cannot end a hold"))
    }

    /// Restarts the broker, with
    /// [`SourceCapability::Restart`](super::SourceCapability::Restart). What was stored is
    /// kept.
    async fn restart(&self) -> Result<(), FixtureError> {
        Err(FixtureError::new("this fixture cannot restart its broker"))
    }

    /// What must not be shown anywhere.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs a consumer over a subscription of this fixture.
    async fn consume(
        &self,
        subscription: Arc<dyn Subscription>,
        settings: ConsumerSettings,
        handler: BoxedHandler,
        stop: Stop,
    ) -> ConsumerReport {
        let handler = move |received: Received| handler(received);
        Consumer::new(settings)
            .run(subscription, handler, stop)
            .await
    }
}
