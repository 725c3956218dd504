//! What goes over the wire between a reference source and its broker.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use crate::conformance::source::Operation;
use crate::reference::WireError;

/// One request about one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueRequest {
    /// The place's name.
    pub place: String,
    /// Whose messages these are, where each group gets all.
    pub group: String,
    /// Whose request it is.
    pub key_id: String,
    /// A proof of the secret that belongs to the key.
    pub proof: String,
    /// What is asked.
    pub call: QueueCall,
}

/// What is asked of the broker.
///
/// Closed on purpose: the broker has to answer each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueCall {
    /// A subscription begins.
    Open,
    /// Spent messages go elsewhere from now on.
    SetRedrive(RedrivePolicy),
    /// Messages, please.
    Receive(ReceiveCall),
    /// These are consumed for good, by their handles.
    Ack(Vec<String>),
    /// These come back, each after its time.
    Return(Vec<HoldChange>),
    /// These are held on, each for its time from now on.
    Extend(Vec<HoldChange>),
}

impl QueueCall {
    /// What kind of request it is; `None` where no fault is played.
    #[must_use]
    pub const fn operation(&self) -> Option<Operation> {
        match self {
            Self::Open | Self::SetRedrive(_) => None,
            Self::Receive(_) => Some(Operation::Receive),
            Self::Ack(_) => Some(Operation::Ack),
            Self::Return(_) => Some(Operation::Return),
            Self::Extend(_) => Some(Operation::Extend),
        }
    }

    /// The handles that it names, in order.
    #[must_use]
    pub fn handles(&self) -> Vec<String> {
        match self {
            Self::Open | Self::SetRedrive(_) | Self::Receive(_) => Vec::new(),
            Self::Ack(handles) => handles.clone(),
            Self::Return(changes) | Self::Extend(changes) => {
                let handles = changes.iter().map(|change| change.handle.clone());
                handles.collect()
            }
        }
    }

    /// The same request about fewer messages.
    #[must_use]
    pub fn without(&self, is_left_out: impl Fn(&str) -> bool) -> Self {
        let mut rest = self.clone();
        match &mut rest {
            Self::Open | Self::SetRedrive(_) | Self::Receive(_) => {}
            Self::Ack(handles) => handles.retain(|handle| !is_left_out(handle)),
            Self::Return(changes) | Self::Extend(changes) => {
                changes.retain(|change| !is_left_out(&change.handle));
            }
        }
        rest
    }
}

/// After how many deliveries a message goes where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivePolicy {
    /// The deliveries, 1 and more.
    pub max_attempts: u32,
    /// The place of spent messages.
    pub dead_letter: String,
}

/// A request for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveCall {
    /// The most messages, 1 to 10.
    pub max: usize,
    /// How long to wait for a first one.
    pub wait: Duration,
    /// How long they are held; no end in a log.
    pub hold: Duration,
    /// This request's number, on its connection.
    pub number: u64,
    /// Earlier requests without an answer: what a log handed out there comes again.
    pub unanswered: Vec<u64>,
}

/// A message and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldChange {
    /// The message, by its handle.
    pub handle: String,
    /// The time from now on.
    pub time: Duration,
}

/// The broker's answer to a request.
///
/// Closed on purpose: the source has to understand each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueReply {
    /// It is done, and there is nothing to say.
    Done,
    /// Messages, and how long they were waited for.
    Messages {
        /// In order.
        messages: Vec<QueueMessage>,
        /// From the request's arrival to these messages.
        waited: Duration,
    },
    /// An answer for each message of the request, by position.
    Answers(Vec<EntryAnswer>),
    /// Nothing is done.
    Failed(QueueFailure),
}

/// A message as the broker hands it out.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMessage {
    /// The broker's id, the same over redeliveries.
    pub id: String,
    /// By what this delivery is settled.
    pub handle: String,
    /// The body.
    pub body: Bytes,
    /// The digest of the body.
    pub digest: String,
    /// Names and values beside it.
    pub attributes: Vec<(String, Bytes)>,
    /// What it is ordered by.
    pub key: Option<String>,
    /// How often it was delivered, this time included.
    pub receives: u32,
    /// When it was put.
    pub sent_at: SystemTime,
}

impl fmt::Debug for QueueMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMessage")
            .field("id", &self.id)
            .field("handle", &self.handle)
            .field("bytes", &self.body.len())
            .field("key", &self.key)
            .field("receives", &self.receives)
            .finish_non_exhaustive()
    }
}

/// What became of one message of a request.
///
/// Closed on purpose: the source has to understand each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAnswer {
    /// As asked.
    Done,
    /// The handle is not the message's any more.
    Gone,
    /// Nothing, for this code.
    Failed(String),
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFailure {
    /// The broker's name of it.
    pub code: String,
    /// When to come back.
    pub pause: Option<Duration>,
}

impl QueueFailure {
    /// A failure of this code.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            pause: None,
        }
    }
}

/// A connection to the broker.
#[async_trait]
pub trait QueueWire: Send + Sync + 'static {
    /// Sends a request and waits for the reply, however long it takes.
    ///
    /// # Errors
    ///
    /// [`WireError`] when there is none.
    async fn call(&self, request: QueueRequest) -> Result<QueueReply, WireError>;
}
