//! Faults between a source and its broker.

use std::sync::Arc;

use crate::conformance::{Destination, Gate};

/// What a source asks of its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Asking for messages.
    Receive,
    /// Consuming a message for good.
    Ack,
    /// Giving a message back, at once or later.
    Return,
    /// Extending a hold.
    Extend,
}

impl Operation {
    /// The word of reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Ack => "ack",
            Self::Return => "return",
            Self::Extend => "extend",
        }
    }
}

/// What happens to a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SourceFault {
    /// It arrives, and is carried out when the gate opens.
    HoldRequest(Arc<Gate>),
    /// It is carried out, and the answer comes when the gate opens.
    HoldReply(Arc<Gate>),
    /// The connection breaks before it is carried out.
    LoseRequest,
    /// It is carried out, and the connection breaks.
    LoseReply,
    /// It is not carried out and never answered.
    Silence,
    /// It is answered with this error of the profile's table.
    Row(String),
    /// It is answered with an internal error of the broker.
    Internal,
    /// It is answered with: somebody else has the message now.
    Gone,
    /// A message in the answer does not fit its digest.
    WrongDigest,
    /// Of the messages that it settles or extends, the one with this body fails, with an
    /// internal error; the others are carried out.
    Entry(String),
}

/// The kinds of [`SourceFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SourceFaultKind {
    /// [`SourceFault::HoldRequest`].
    HoldRequest,
    /// [`SourceFault::HoldReply`].
    HoldReply,
    /// [`SourceFault::LoseRequest`].
    LoseRequest,
    /// [`SourceFault::LoseReply`].
    LoseReply,
    /// [`SourceFault::Silence`].
    Silence,
    /// [`SourceFault::Row`].
    Row,
    /// [`SourceFault::Internal`].
    Internal,
    /// [`SourceFault::Gone`].
    Gone,
    /// [`SourceFault::WrongDigest`].
    WrongDigest,
    /// [`SourceFault::Entry`].
    Entry,
    /// No fault: a count of requests.
    Calls,
}

impl SourceFaultKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::HoldRequest,
        Self::HoldReply,
        Self::LoseRequest,
        Self::LoseReply,
        Self::Silence,
        Self::Row,
        Self::Internal,
        Self::Gone,
        Self::WrongDigest,
        Self::Entry,
        Self::Calls,
    ];

    /// The words of reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HoldRequest => "holding a request",
            Self::HoldReply => "holding a reply",
            Self::LoseRequest => "losing a request",
            Self::LoseReply => "losing a reply",
            Self::Silence => "silence",
            Self::Row => "the error table",
            Self::Internal => "an internal error",
            Self::Gone => "a hold that is gone",
            Self::WrongDigest => "a wrong digest",
            Self::Entry => "an answer of its own for a message of a batch",
            Self::Calls => "a count of requests",
        }
    }
}

/// Plays faults and counts requests.
pub trait SourceFaultScript: Send + Sync {
    /// Plays a fault at the next requests of this kind: so many times, or until
    /// [`clear`](SourceFaultScript::clear). An earlier rule that still has turns goes first.
    fn add(
        &self,
        destination: &Destination,
        operation: Operation,
        fault: SourceFault,
        times: Option<u64>,
    );

    /// Forgets every rule.
    fn clear(&self);

    /// How many faults were played.
    fn played(&self) -> u64;

    /// How many requests of this kind came; one that carries several messages counts once.
    fn calls(&self, destination: &Destination, operation: Operation) -> usize;
}
