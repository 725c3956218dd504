//! What goes over the wire between the reference sink and its broker.

use async_trait::async_trait;
use bytes::Bytes;

/// One request: messages for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The host that it goes to.
    pub host: String,
    /// The destination's name.
    pub destination: String,
    /// Whose request it is.
    pub key_id: String,
    /// A proof of the secret that belongs to the key.
    pub proof: String,
    /// The messages, in order.
    pub entries: Vec<Entry>,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name within the request.
    pub id: String,
    /// The message.
    pub body: Bytes,
    /// Its metadata.
    pub attributes: Vec<(String, Bytes)>,
    /// What it is ordered by.
    pub key: Option<String>,
    /// What a repeat is recognised by.
    pub dedup_id: Option<String>,
}

impl Entry {
    /// Its size as the broker counts it: body, and names and values of attributes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        accounted(&self.body, &self.attributes)
    }
}

/// The size of a message as the broker counts it.
pub(super) fn accounted(body: &[u8], attributes: &[(String, Bytes)]) -> usize {
    let attributes = attributes.iter();
    body.len()
        + attributes
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
}

/// A complete reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// 200, or what kind of failure it is.
    pub status: u16,
    /// When to come back.
    pub retry_after: Option<String>,
    /// Where else to go.
    pub location: Option<String>,
    /// The broker's id of the request.
    pub request_id: String,
    /// JSON.
    pub body: Vec<u8>,
}

impl Reply {
    /// A reply of this status and body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            ..Self::default()
        }
    }
}

/// No reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The request never left.
    #[error("the broker cannot be reached")]
    NotSent,
    /// The connection ended without a reply.
    #[error("the connection ended without a reply")]
    Lost,
}

/// A way to the broker.
#[async_trait]
pub trait Wire: Send + Sync + 'static {
    /// Sends a request and waits for the reply, however long it takes.
    ///
    /// # Errors
    ///
    /// [`WireError`] when there is none.
    async fn call(&self, request: Request) -> Result<Reply, WireError>;
}
