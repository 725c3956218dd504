//! A message as a queue keeps it, and as a test may look at it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::clock::Timestamp;
use super::message_attributes::{AttributeValue, MessageAttributes};

/// The name of the one system attribute that a sender may set.
pub(crate) const TRACE_HEADER: &str = "AWSTraceHeader";

#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) attributes: MessageAttributes,
    pub(crate) trace_header: Option<AttributeValue>,
    pub(crate) group_id: Option<String>,
    pub(crate) deduplication_id: Option<String>,
    pub(crate) sequence_number: Option<u128>,
    pub(crate) sent_at: Timestamp,
    /// When it began to age.
    pub(crate) retained_from: Timestamp,
    pub(crate) visible_at: Timestamp,
    pub(crate) receive_count: u32,
    pub(crate) first_received_at: Option<Timestamp>,
    pub(crate) source_arn: Option<String>,
    /// The last receive from the queue it is in.
    pub(crate) receipt: Option<Receipt>,
}

/// One receive of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) number: u64,
    pub(crate) received_at: Timestamp,
    /// Whether its visibility was changed since.
    pub(crate) changed: bool,
}

impl StoredMessage {
    pub(crate) fn is_hidden(&self, now: Timestamp) -> bool {
        self.visible_at > now
    }

    pub(crate) fn is_in_flight(&self, now: Timestamp) -> bool {
        self.receipt.is_some() && self.is_hidden(now)
    }

    pub(crate) fn is_delayed(&self, now: Timestamp) -> bool {
        self.receipt.is_none() && self.is_hidden(now)
    }

    /// The system attributes that a receive can ask for, all of them.
    pub(crate) fn system_attributes(&self, sender_id: &str) -> BTreeMap<&'static str, String> {
        let optional = [
            (
                "ApproximateFirstReceiveTimestamp",
                self.first_received_at.map(|at| at.millis().to_string()),
            ),
            ("SequenceNumber", self.sequence_text()),
            ("MessageDeduplicationId", self.deduplication_id.clone()),
            ("MessageGroupId", self.group_id.clone()),
            (
                TRACE_HEADER,
                self.trace_header
                    .as_ref()
                    .and_then(|value| value.as_str().map(str::to_owned)),
            ),
            ("DeadLetterQueueSourceArn", self.source_arn.clone()),
        ];
        let mut all = BTreeMap::from([
            ("SenderId", sender_id.to_owned()),
            ("SentTimestamp", self.sent_at.millis().to_string()),
            ("ApproximateReceiveCount", self.receive_count.to_string()),
        ]);
        all.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        all
    }

    pub(crate) fn sequence_text(&self) -> Option<String> {
        self.sequence_number.map(|number| format!("{number:020}"))
    }

    pub(crate) fn peek(&self, now: Timestamp, sender_id: &str) -> PeekedMessage {
        PeekedMessage {
            message_id: self.id.clone(),
            body: self.body.clone(),
            attributes: self.attributes.clone().into_map(),
            system_attributes: self
                .system_attributes(sender_id)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            group_id: self.group_id.clone(),
            deduplication_id: self.deduplication_id.clone(),
            sequence_number: self.sequence_text(),
            receive_count: self.receive_count,
            visibility: if self.is_in_flight(now) {
                Visibility::InFlight
            } else if self.is_hidden(now) {
                Visibility::Delayed
            } else {
                Visibility::Visible
            },
            visible_at: self.visible_at.to_system(),
            sent_at: self.sent_at.to_system(),
        }
    }
}

/// A stored message, read past the protocol: looking changes nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PeekedMessage {
    /// The id that the send answered with.
    pub message_id: String,
    /// The text as it was sent.
    pub body: String,
    /// The message attributes as they are kept; numbers are trimmed.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The system attributes that a receive would show now, all of them.
    pub system_attributes: BTreeMap<String, String>,
    /// The message group id.
    pub group_id: Option<String>,
    /// The deduplication id, given or made from the content.
    pub deduplication_id: Option<String>,
    /// The sequence number, 20 digits; FIFO queues only.
    pub sequence_number: Option<String>,
    /// How often it was received, in this queue and in those it came from.
    pub receive_count: u32,
    /// Whether a receive could take it.
    pub visibility: Visibility,
    /// When it becomes visible, or became so.
    pub visible_at: SystemTime,
    /// When it was sent.
    pub sent_at: SystemTime,
}

/// Whether a message can be received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Visibility {
    /// Sent with a delay that has not passed.
    Delayed,
    /// Received, and hidden from other receives.
    InFlight,
    /// There to be received; on a FIFO queue its group may still be locked.
    Visible,
}
