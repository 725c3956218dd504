//! SendMessage and SendMessageBatch.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::batch::{BatchAnswer, Entry, check_entries};
use super::{Call, Output};
use crate::sqs::clock::Timestamp;
use crate::sqs::dedup::{Accepted, DeduplicationKey};
use crate::sqs::digest;
use crate::sqs::entry_fault::EntryText;
use crate::sqs::error::{ErrorCode, ServiceError, invalid_parameter, missing_parameter};
use crate::sqs::limits::{DELAY, is_group_or_deduplication_id, is_message_char};
use crate::sqs::message::{StoredMessage, TRACE_HEADER};
use crate::sqs::message_attributes::{self, AttributeValue, MessageAttributes, WireAttributes};
use crate::sqs::queue::Queue;
use crate::sqs::queue_attributes::Scope;
use crate::sqs::state::State;
use crate::sqs::wire::{Object, parse_input};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Single {
    queue_url: Option<String>,
    #[serde(flatten)]
    message: WireMessage,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    queue_url: Option<String>,
    entries: Option<Vec<Object<WireMessage>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireMessage {
    id: Option<String>,
    message_body: Option<String>,
    delay_seconds: Option<i64>,
    message_attributes: Option<WireAttributes>,
    message_system_attributes: Option<WireAttributes>,
    message_deduplication_id: Option<String>,
    message_group_id: Option<String>,
}

impl Entry for WireMessage {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

pub(super) fn send_message(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Single = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let queue = state.queue(&name, call.now)?;
    let Some(body) = input.message.body() else {
        return Err(missing_parameter("MessageBody"));
    };
    let body = body.to_owned();
    if queue.is_fifo() && input.message.message_group_id.is_none() {
        return Err(missing_parameter("MessageGroupId"));
    }
    let message = input.message.check(body, queue)?;
    message
        .send(state, &name, call.now)
        .map(|sent| Output::Json(sent.into()))
}

pub(super) fn send_message_batch(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Batch = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let entries = check_entries(input.entries)?;
    let limit = state.limits.batch_bytes;
    check_whole(&entries, limit, state.queue(&name, call.now)?)?;
    let mut answer = BatchAnswer::new(call.entry_faults);
    for entry in entries {
        let id = entry.id.clone();
        let body = entry.message_body.clone().unwrap_or_default();
        let shown = body.clone();
        let text = EntryText {
            text: Some(&shown),
            message: Some(&shown),
        };
        answer.entry(id.as_deref(), text, || {
            let message = entry.check(body, state.queue(&name, call.now)?)?;
            message.send(state, &name, call.now)
        });
    }
    Ok(answer.finish())
}

/// What fails a batch as a whole, before anything of it is stored.
fn check_whole(entries: &[WireMessage], limit: usize, queue: &Queue) -> Result<(), ServiceError> {
    if entries.iter().any(|entry| entry.body().is_none()) {
        return Err(missing_parameter("MessageBody"));
    }
    let total: usize = entries.iter().map(WireMessage::size).sum();
    if total > limit {
        return Err(ServiceError::new(
            ErrorCode::BatchRequestTooLong,
            format!("a batch is at most {limit} bytes long, not {total}"),
        ));
    }
    if let Some(fifo) = &queue.attributes.fifo {
        if entries.iter().any(|entry| entry.message_group_id.is_none()) {
            return Err(invalid_parameter(
                "every message of a FIFO queue needs a MessageGroupId",
            ));
        }
        let needs_id = !fifo.content_based_deduplication;
        if needs_id
            && entries
                .iter()
                .any(|entry| entry.message_deduplication_id.is_none())
        {
            return Err(no_deduplication_id());
        }
    }
    Ok(())
}

/// A message that the queue will take.
struct Outgoing {
    body: String,
    delay: Duration,
    attributes: MessageAttributes,
    trace_header: Option<AttributeValue>,
    group_id: Option<String>,
    deduplication_id: Option<String>,
    /// What makes another message a duplicate of this one.
    key: Option<DeduplicationKey>,
}

impl WireMessage {
    fn body(&self) -> Option<&str> {
        self.message_body.as_deref().filter(|body| !body.is_empty())
    }

    /// Bytes that count towards limits: the body and the message attributes ("Amazon SQS message quotas").
    fn size(&self) -> usize {
        self.message_body.as_ref().map_or(0, String::len)
            + self
                .message_attributes
                .as_ref()
                .map_or(0, message_attributes::size)
    }

    fn check(self, body: String, queue: &Queue) -> Result<Outgoing, ServiceError> {
        let size = self.size();
        let maximum = queue.attributes.maximum_message_size;
        if size > maximum {
            return Err(invalid_parameter(format!(
                "the message is {size} bytes long, more than the queue's maximum of {maximum}"
            )));
        }
        if !body.chars().all(is_message_char) {
            return Err(ServiceError::new(
                ErrorCode::InvalidMessageContents,
                "the body holds a character that is not allowed",
            ));
        }
        let delay = check_delay(self.delay_seconds, queue)?;
        let attributes = MessageAttributes::parse(self.message_attributes.unwrap_or_default())?;
        let trace_header = check_system(self.message_system_attributes.unwrap_or_default())?;
        check_id("MessageGroupId", self.message_group_id.as_deref())?;
        check_id(
            "MessageDeduplicationId",
            self.message_deduplication_id.as_deref(),
        )?;
        let deduplication_id = match (&queue.attributes.fifo, self.message_deduplication_id) {
            (None, Some(_)) => {
                return Err(invalid_parameter(
                    "MessageDeduplicationId is for FIFO queues only",
                ));
            }
            (None, None) => None,
            (Some(_), Some(id)) => Some(id),
            (Some(fifo), None) if fifo.content_based_deduplication => {
                Some(digest::content_id(&body))
            }
            (Some(_), None) => return Err(no_deduplication_id()),
        };
        let key = deduplication_id.clone().map(|id| DeduplicationKey {
            group: match queue.scope {
                Some(Scope::MessageGroup) => self.message_group_id.clone(),
                Some(Scope::Queue) | None => None,
            },
            id,
        });
        Ok(Outgoing {
            body,
            delay,
            attributes,
            trace_header,
            group_id: self.message_group_id,
            deduplication_id,
            key,
        })
    }
}

impl Outgoing {
    /// Stores the message, unless it is a duplicate, and returns the answer to its sender.
    fn send(
        self,
        state: &mut State,
        name: &str,
        now: Timestamp,
    ) -> Result<Map<String, Value>, ServiceError> {
        let mut answer = Map::new();
        answer.insert(
            "MD5OfMessageBody".into(),
            digest::body_md5(&self.body).into(),
        );
        if let Some(md5) = self.attributes.md5() {
            answer.insert("MD5OfMessageAttributes".into(), md5.into());
        }
        let system = self.trace_header.iter().map(|value| (TRACE_HEADER, value));
        if let Some(md5) = digest::attributes_md5(system) {
            answer.insert("MD5OfMessageSystemAttributes".into(), md5.into());
        }
        let accepted = self.store(state, name, now)?;
        answer.insert("MessageId".into(), accepted.message_id.into());
        if let Some(number) = accepted.sequence_number {
            answer.insert("SequenceNumber".into(), number.into());
        }
        Ok(answer)
    }

    fn store(
        self,
        state: &mut State,
        name: &str,
        now: Timestamp,
    ) -> Result<Accepted, ServiceError> {
        let queue = state.queue(name, now)?;
        if let Some(key) = &self.key
            && let Some(first) = queue.deduplication.find(key, now)
        {
            return Ok(first.clone());
        }
        let is_fifo = queue.is_fifo();
        let message = StoredMessage {
            id: state.uuid(),
            body: self.body,
            attributes: self.attributes.stored(),
            trace_header: self.trace_header,
            group_id: self.group_id,
            deduplication_id: self.deduplication_id,
            sequence_number: is_fifo.then(|| state.next_sequence()),
            sent_at: now,
            retained_from: now,
            visible_at: now.plus(self.delay),
            receive_count: 0,
            first_received_at: None,
            source_arn: None,
            receipt: None,
        };
        let accepted = Accepted {
            message_id: message.id.clone(),
            sequence_number: message.sequence_text(),
        };
        let queue = state.queue(name, now)?;
        if let Some(key) = self.key {
            queue.deduplication.remember(key, accepted.clone(), now);
        }
        queue.push(message);
        Ok(accepted)
    }
}

fn check_delay(seconds: Option<i64>, queue: &Queue) -> Result<Duration, ServiceError> {
    match seconds {
        None => Ok(queue.attributes.delay),
        Some(0) if queue.is_fifo() => Ok(queue.attributes.delay),
        Some(seconds) if queue.is_fifo() => Err(invalid_parameter(format!(
            "a message of a FIFO queue has no delay of its own, such as {seconds}"
        ))),
        Some(seconds) if DELAY.contains(&seconds) => {
            Ok(Duration::from_secs(seconds.unsigned_abs()))
        }
        Some(seconds) => Err(invalid_parameter(format!(
            "DelaySeconds must be between 0 and 900, not {seconds}"
        ))),
    }
}

fn check_id(name: &str, id: Option<&str>) -> Result<(), ServiceError> {
    match id {
        Some(id) if !is_group_or_deduplication_id(id) => Err(invalid_parameter(format!(
            "{name} must be 1 to 128 letters, digits and punctuation characters"
        ))),
        _ => Ok(()),
    }
}

fn check_system(attributes: WireAttributes) -> Result<Option<AttributeValue>, ServiceError> {
    if attributes.keys().any(|name| name != TRACE_HEADER) {
        return Err(invalid_parameter(format!(
            "{TRACE_HEADER} is the only system attribute that can be sent"
        )));
    }
    // The name begins with letters that are reserved for the service, so its check is not for this one.
    match attributes.into_values().next() {
        None => Ok(None),
        Some(Object(value)) => {
            let value = value.parse(TRACE_HEADER)?;
            if value.data_type() == "String" {
                Ok(Some(value))
            } else {
                Err(invalid_parameter(format!(
                    "{TRACE_HEADER} must be of the type String"
                )))
            }
        }
    }
}

fn no_deduplication_id() -> ServiceError {
    invalid_parameter(
        "a FIFO queue without content-based deduplication needs a MessageDeduplicationId",
    )
}
