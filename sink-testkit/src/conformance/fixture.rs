//! What an adapter's author implements.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{HostServices, Message, SinkPlugin};
use serde_json::Value;

use super::fault::FaultScript;
use super::nowhere::Unreachable;
use super::profile::Profile;

/// An adapter under test: a plugin, in each of its modes.
#[async_trait]
pub trait Adapter: Send + Sync + 'static {
    /// The adapter's name, such as `sink-sqs`.
    fn name(&self) -> &str;

    /// What each mode declares. The name of a mode is a table of the ledger.
    fn profiles(&self) -> Vec<Profile>;

    /// A fixture for one case in this mode. Called within the runtime of the case.
    ///
    /// # Errors
    ///
    /// What keeps the case from being played.
    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError>;

    /// The cases that fail in this mode because the server under the adapter does otherwise
    /// than the service that it stands for, with the reason of each. Such a case has to
    /// fail; its verdict is `not applicable`.
    fn divergences(&self, _profile: &Profile) -> Vec<Divergence> {
        Vec::new()
    }

    /// Why nothing of this adapter can run here, such as a server that is not there; then
    /// every case is ignored, with this line printed. Default: everything can.
    fn unavailable(&self) -> Option<String> {
        None
    }
}

/// Where a server does otherwise than the service that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The case that fails for it.
    pub case: &'static str,
    /// What the server does, and what the service does.
    pub reason: &'static str,
}

/// The surroundings of one case: destinations, a way to read them that is not the
/// adapter, and faults.
#[async_trait]
pub trait SinkFixture: Send + Sync {
    /// The plugin under test.
    fn plugin(&self) -> &'static SinkPlugin;

    /// The host that sinks are built in.
    fn services(&self) -> HostServices {
        HostServices::new()
    }

    /// Creates a destination that nobody else uses. `name` is made of lower-case letters
    /// and hyphens and is part of its own name, so that a name which begins like another
    /// still does.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn create(&self, name: &str) -> Result<Destination, FixtureError>;

    /// A destination that is well formed and does not exist.
    fn missing(&self) -> Destination;

    /// The least options of a sink that delivers there.
    fn options(&self, destination: &Destination) -> Value;

    /// Everything the destination accepted so far, in its order, read past the adapter
    /// and without taking it away. A destination that is missing has nothing.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError>;

    /// Every destination there is, by name, so that one created by the adapter is seen.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn destinations(&self) -> Result<Vec<String>, FixtureError>;

    /// Faults, where the fixture can play any.
    fn faults(&self) -> Option<&dyn FaultScript> {
        None
    }

    /// The options of a sink whose credentials may not deliver there, with
    /// [`Capability::ForbiddenDestination`](super::Capability::ForbiddenDestination).
    fn forbidden(&self, _destination: &Destination) -> Option<Value> {
        None
    }

    /// The options with other credentials that may deliver there too, and the name under
    /// which the destination records them, with
    /// [`Capability::Credentials`](super::Capability::Credentials).
    fn other_credentials(&self, _destination: &Destination) -> Option<(Value, String)> {
        None
    }

    /// The options with `user:password@` in the address of the server, with
    /// [`Capability::ServerAddress`](super::Capability::ServerAddress).
    fn with_userinfo(
        &self,
        _destination: &Destination,
        _user: &str,
        _password: &str,
    ) -> Option<Value> {
        None
    }

    /// The options of a sink that finds its credentials in the fixture's source, with
    /// [`Capability::CredentialSource`](super::Capability::CredentialSource). The source has
    /// some from the beginning.
    fn sourced(&self, _destination: &Destination) -> Option<Value> {
        None
    }

    /// Takes what the source of credentials has.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn take_credentials(&self) -> Result<(), FixtureError> {
        Err(FixtureError::new(
            "this fixture has no source of credentials",
        ))
    }

    /// Puts other credentials into the source and ends those before them, which the destination
    /// refuses from now on. Returns the name under which the destination records the new ones.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn replace_credentials(&self) -> Result<String, FixtureError> {
        Err(FixtureError::new(
            "this fixture has no source of credentials",
        ))
    }

    /// The secrets within the options of [`SinkFixture::options`], to be looked for.
    fn secrets(&self, _destination: &Destination) -> Vec<String> {
        Vec::new()
    }

    /// What proved the credentials on the wire so far, such as signatures: to be looked
    /// for where it must not be.
    fn proofs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Options that each read well alone and contradict each other, to be merged over
    /// those of [`SinkFixture::options`], with the two keys that are in conflict. With
    /// [`Capability::Conflicts`](super::Capability::Conflicts).
    fn conflicts(&self, _destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        Vec::new()
    }

    /// Creates a destination that takes messages of at most `bytes`, with
    /// [`Capability::DestinationLimit`](super::Capability::DestinationLimit).
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn create_limited(&self, name: &str, _bytes: usize) -> Result<Destination, FixtureError> {
        self.create(name).await
    }

    /// Ends every connection and lets the destination begin anew with what it stored,
    /// with [`Capability::Restart`](super::Capability::Restart).
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn restart(&self) -> Result<(), FixtureError> {
        Err(FixtureError::new(
            "this fixture cannot restart its destination",
        ))
    }

    /// Closes every connection that nobody uses, unannounced, with
    /// [`Capability::IdleClose`](super::Capability::IdleClose).
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    async fn close_idle(&self) -> Result<(), FixtureError> {
        Err(FixtureError::new("this fixture closes no idle connections"))
    }

    /// Options of sinks whose server cannot be reached, each in a way of its own, with
    /// [`Capability::Unreachable`](super::Capability::Unreachable). A
    /// [`Nowhere`](super::Nowhere) has addresses for them. What needs another protocol, such as
    /// encryption that the server does not speak, is the fixture's to add.
    ///
    /// # Errors
    ///
    /// What went wrong; the case cannot be played.
    fn unreachable(&self, _destination: &Destination) -> Result<Vec<Unreachable>, FixtureError> {
        Ok(Vec::new())
    }

    /// Moves the destination's clock, with
    /// [`Capability::MovableClock`](super::Capability::MovableClock).
    fn advance(&self, _by: Duration) {}

    /// How many bytes the destination counts for a message of this body and these
    /// attributes, with
    /// [`Capability::MessageLimit`](super::Capability::MessageLimit).
    fn accounted(&self, message: &StoredMessage) -> usize {
        message.body.len()
            + message
                .attributes
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>()
    }
}

/// A destination of a fixture: a queue, a subject, a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    name: String,
}

impl Destination {
    /// The destination of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name at the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One message as the destination holds it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The body.
    pub body: Bytes,
    /// Its metadata, in the destination's order: what the sink set beside the message,
    /// without what the destination's protocol adds.
    pub attributes: Vec<(String, Bytes)>,
    /// What it is ordered or grouped by.
    pub key: Option<String>,
    /// What a repeat is recognised by.
    pub dedup_id: Option<String>,
    /// The destination's id of it, as a receipt names it.
    pub provider_id: Option<String>,
    /// Its place in the destination's order, as a receipt names it.
    pub sequence: Option<String>,
    /// Whose credentials sent it.
    pub sent_by: Option<String>,
}

impl StoredMessage {
    /// A message of this body and nothing else.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            attributes: Vec::new(),
            key: None,
            dedup_id: None,
            provider_id: None,
            sequence: None,
            sent_by: None,
        }
    }

    /// The body as a message of the wire format.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn message(&self) -> Result<Message<'_>, String> {
        Message::decode(&self.body).map_err(|error| error.to_string())
    }

    /// The id of the envelope that it carries; empty where the body is no message.
    #[must_use]
    pub fn envelope_id(&self) -> String {
        self.message()
            .map(|message| message.id.into_owned())
            .unwrap_or_default()
    }

    /// The value of an attribute as text.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(known, _)| known == name)
            .and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

impl fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.attributes.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("StoredMessage")
            .field("envelope_id", &self.envelope_id())
            .field("bytes", &self.body.len())
            .field("attributes", &names)
            .field("key", &self.key)
            .field("provider_id", &self.provider_id)
            .finish_non_exhaustive()
    }
}

/// What keeps a fixture from doing its part.
#[derive(Debug)]
pub struct FixtureError(Box<dyn Error + Send + Sync>);

impl FixtureError {
    /// An error of this text or cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for FixtureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for FixtureError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}
