//! The faults that cases ask a fixture to play.

use std::sync::Arc;

use dispatch_api::EnvelopeId;

use super::fixture::Destination;
use crate::sqs::Gate;

/// One fault, played at a request of the sink.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The request waits at the gate of a [`Hold`](super::Hold) before anything is stored.
    HoldRequest(Arc<Gate>),
    /// The request is carried out; the reply waits at the gate.
    HoldReply(Arc<Gate>),
    /// The connection ends before anything is stored.
    LoseRequest,
    /// The request is carried out, and the connection ends without a reply.
    LoseReply,
    /// Nothing is stored, and no reply ever comes.
    Silence,
    /// Nothing is stored, and the reply is this row of the profile's error table.
    Row(String),
    /// Nothing is stored, and the reply is an error whose code nobody has seen before,
    /// with this status or the like: 400 the caller's fault, 500 the destination's.
    UnknownError(u16),
    /// Nothing is stored: a throttle, with this hint of when to come back, as the
    /// destination's protocol writes hints.
    Throttle(Option<String>),
    /// The request is carried out; the reply says success and is not to be understood.
    Garbage(Garbage),
    /// Nothing is stored; the reply is an error of something in between, such as a
    /// proxy's page.
    ForeignError(u16, String),
    /// Nothing is stored; the reply points to another host.
    Redirect,
    /// The request is carried out; the reply has a wrong digest of the body.
    WrongBodyDigest,
    /// The request is carried out; the reply has a wrong digest of the attributes.
    WrongAttributesDigest,
    /// The request is carried out; the reply has no digests.
    MissingDigests,
    /// These messages of a batch have an answer of their own; the rest is carried out.
    Entries(Vec<(EnvelopeId, EntryFault)>),
    /// The request is carried out; its results come in reverse, failures first.
    ReversedResults,
    /// The request is carried out; the reply has a result for an entry that nobody sent.
    ForeignResult,
}

/// A success that is not to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Garbage {
    /// No bytes at all.
    Empty,
    /// A web page.
    Html,
    /// The right syntax with the wrong types.
    WrongTypes,
    /// No id of the stored message.
    NoMessageId,
    /// Half of the right reply.
    Truncated,
}

/// What happens to one message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryFault {
    /// Not stored, and reported with this row of the profile's error table.
    Row(String),
    /// Stored, and not mentioned in the reply.
    Unmentioned,
    /// Stored, and reported both as stored and as failed.
    InBothLists,
    /// Stored, and reported twice.
    Twice,
    /// Stored, and reported with a wrong digest of the body.
    WrongBodyDigest,
}

/// The kinds of [`Fault`], for [`Profile::faults`](super::Profile::faults).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// [`Fault::HoldRequest`].
    HoldRequest,
    /// [`Fault::HoldReply`].
    HoldReply,
    /// [`Fault::LoseRequest`].
    LoseRequest,
    /// [`Fault::LoseReply`].
    LoseReply,
    /// [`Fault::Silence`].
    Silence,
    /// [`Fault::Row`].
    Row,
    /// [`Fault::UnknownError`].
    UnknownError,
    /// [`Fault::Throttle`] without a hint.
    Throttle,
    /// [`Fault::Throttle`] with a hint of seconds or a date, as HTTP writes it.
    ThrottleHint,
    /// [`Fault::Garbage`].
    Garbage,
    /// [`Fault::ForeignError`].
    ForeignError,
    /// [`Fault::Redirect`].
    Redirect,
    /// [`Fault::WrongBodyDigest`], [`Fault::WrongAttributesDigest`] and
    /// [`Fault::MissingDigests`].
    Digest,
    /// [`Fault::Entries`], [`Fault::ReversedResults`] and [`Fault::ForeignResult`].
    Entries,
    /// The fixture records requests: [`FaultScript::requests`].
    Requests,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::HoldRequest,
        Self::HoldReply,
        Self::LoseRequest,
        Self::LoseReply,
        Self::Silence,
        Self::Row,
        Self::UnknownError,
        Self::Throttle,
        Self::ThrottleHint,
        Self::Garbage,
        Self::ForeignError,
        Self::Redirect,
        Self::Digest,
        Self::Entries,
        Self::Requests,
    ];

    /// The kind in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HoldRequest => "holding a request",
            Self::HoldReply => "holding a reply",
            Self::LoseRequest => "losing a request",
            Self::LoseReply => "losing a reply",
            Self::Silence => "silence",
            Self::Row => "the error table",
            Self::UnknownError => "unknown errors",
            Self::Throttle => "a throttle",
            Self::ThrottleHint => "a throttle with a hint",
            Self::Garbage => "a success that is not to be understood",
            Self::ForeignError => "an error of something in between",
            Self::Redirect => "a redirect",
            Self::Digest => "wrong digests",
            Self::Entries => "answers of their own for messages of a batch",
            Self::Requests => "a record of requests",
        }
    }
}

/// How often a fault is played.
#[derive(Debug)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// Requests that pass first.
    pub after: u64,
    /// At how many requests it is played; `None`: until cleared.
    pub times: Option<u64>,
}

impl Rule {
    /// The fault once, at the next request.
    #[must_use]
    pub const fn once(fault: Fault) -> Self {
        Self {
            fault,
            after: 0,
            times: Some(1),
        }
    }

    /// The fault at every request until it is cleared.
    #[must_use]
    pub const fn always(fault: Fault) -> Self {
        Self {
            fault,
            after: 0,
            times: None,
        }
    }

    /// Lets this many requests pass first.
    #[must_use]
    pub const fn after(mut self, requests: u64) -> Self {
        self.after = requests;
        self
    }
}

/// A transport that plays faults between a sink and its destination, and records what
/// the sink sent.
pub trait FaultScript: Send + Sync {
    /// Adds a rule for requests to this destination. Rules are tried in the order in
    /// which they were added; one request plays at most one. A rule of
    /// [`Fault::Entries`] waits for a request that holds one of its messages.
    fn add(&self, destination: &Destination, rule: Rule);

    /// Removes all rules. What is held goes on.
    fn clear(&self);

    /// How many times a fault was played.
    fn played(&self) -> u64;

    /// The requests to this destination so far that carried messages, also those that a
    /// fault lost.
    fn requests(&self, destination: &Destination) -> Vec<SeenRequest>;

    /// Requests that arrived at the host that [`Fault::Redirect`] points to.
    fn strayed(&self) -> usize {
        0
    }
}

/// One request as it was on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenRequest {
    /// The envelope ids of its messages, in order.
    pub envelopes: Vec<String>,
    /// The entries' own ids, in order; empty where requests have one message.
    pub entry_ids: Vec<String>,
    /// Its size, as the destination counts it.
    pub bytes: usize,
    /// Whose credentials signed it.
    pub signed_by: Option<String>,
    /// The deduplication ids of its messages, in order.
    pub dedup_ids: Vec<Option<String>>,
    /// The keys of its messages, in order.
    pub keys: Vec<Option<String>>,
}

impl SeenRequest {
    /// A request of no messages and no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            envelopes: Vec::new(),
            entry_ids: Vec::new(),
            bytes: 0,
            signed_by: None,
            dedup_ids: Vec::new(),
            keys: Vec::new(),
        }
    }
}

impl Default for SeenRequest {
    fn default() -> Self {
        Self::new()
    }
}
