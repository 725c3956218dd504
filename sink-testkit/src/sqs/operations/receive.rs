//! ReceiveMessage.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Call, Output};
use crate::sqs::digest;
use crate::sqs::error::{ErrorCode, ServiceError, invalid_parameter};
use crate::sqs::limits::{RECEIVE_COUNT, VISIBILITY, WAIT, is_group_or_deduplication_id};
use crate::sqs::queue_attributes;
use crate::sqs::shared::Shared;
use crate::sqs::state::{Delivered, Found, Receive};
use crate::sqs::wire::parse_input;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    queue_url: Option<String>,
    max_number_of_messages: Option<i64>,
    wait_time_seconds: Option<i64>,
    visibility_timeout: Option<i64>,
    #[serde(default)]
    message_system_attribute_names: Option<Vec<String>>,
    attribute_names: Option<Vec<String>>,
    message_attribute_names: Option<Vec<String>>,
    receive_request_attempt_id: Option<String>,
}

/// Names that a receive may ask for.
const SYSTEM_ATTRIBUTES: [&str; 10] = [
    "All",
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
];

pub(super) async fn receive_message(
    shared: &Shared,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Input = parse_input(members)?;
    let (name, wait, is_fifo) = {
        let state = &mut *shared.state();
        let name = call.queue_name(state, input.queue_url.as_deref())?;
        let queue = state.queue(&name, call.now)?;
        input.check(queue.is_fifo())?;
        let wait = seconds(input.wait_time_seconds).unwrap_or(queue.attributes.receive_wait);
        (name, wait, queue.is_fifo())
    };
    let maximum = input
        .max_number_of_messages
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(1);
    let deadline = call.now.plus(wait);
    let mut changes = shared.changes();
    loop {
        changes.mark_unchanged();
        let now = shared.clock.timestamp();
        let (found, next_visible, sender) = {
            let state = &mut *shared.state();
            let queue = state.queue(&name, now)?;
            let visibility =
                seconds(input.visibility_timeout).unwrap_or(queue.attributes.visibility_timeout);
            let receive = Receive {
                maximum,
                visibility,
                attempt_id: input.receive_request_attempt_id.as_deref(),
            };
            let found = state.receive(&name, receive, now)?;
            let next_visible = state.queue(&name, now)?.next_visible(now);
            (found, next_visible, state.site.account.clone())
        };
        match found {
            Found::Messages(messages) if !messages.is_empty() => {
                shared.announce();
                return Ok(Output::Json(json!({
                    "Messages": messages
                        .into_iter()
                        .map(|delivered| input.to_json(delivered, &sender))
                        .collect::<Vec<_>>(),
                })));
            }
            // Only a short poll of a standard queue is told so ("ReceiveMessage").
            Found::TooManyInFlight if wait.is_zero() && !is_fifo => {
                return Err(ServiceError::new(
                    ErrorCode::OverLimit,
                    "the queue has too many messages in flight",
                ));
            }
            _ if now >= deadline => return Ok(Output::Json(json!({}))),
            _ => {}
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = shared.clock.sleep_until(deadline.min(next_visible)) => {}
        }
    }
}

impl Input {
    fn check(&self, is_fifo: bool) -> Result<(), ServiceError> {
        in_range(
            "MaxNumberOfMessages",
            self.max_number_of_messages,
            RECEIVE_COUNT,
        )?;
        in_range("WaitTimeSeconds", self.wait_time_seconds, WAIT)?;
        in_range("VisibilityTimeout", self.visibility_timeout, VISIBILITY)?;
        let system = self.message_system_attribute_names.iter().flatten();
        let system = system.filter(|name| !is_system_attribute(name));
        // The older list shares its names with those of queue attributes, which mean nothing here.
        let older = self.attribute_names.iter().flatten();
        let older =
            older.filter(|name| !is_system_attribute(name) && !queue_attributes::is_known(name));
        if let Some(name) = system.chain(older).next() {
            return Err(invalid_parameter(format!("unknown attribute {name}")));
        }
        match &self.receive_request_attempt_id {
            Some(_) if !is_fifo => Err(invalid_parameter(
                "ReceiveRequestAttemptId is for FIFO queues only",
            )),
            Some(id) if !is_group_or_deduplication_id(id) => Err(invalid_parameter(
                "ReceiveRequestAttemptId must be 1 to 128 letters, digits and punctuation characters",
            )),
            _ => Ok(()),
        }
    }

    fn to_json(&self, delivered: Delivered, sender: &str) -> Value {
        let Delivered { handle, message } = delivered;
        let mut json = Map::new();
        json.insert("MessageId".into(), message.id.clone().into());
        json.insert("ReceiptHandle".into(), handle.into());
        json.insert("MD5OfBody".into(), digest::body_md5(&message.body).into());
        let system: Map<String, Value> = message
            .system_attributes(sender)
            .into_iter()
            .filter(|(name, _)| self.wants_system(name))
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if !system.is_empty() {
            json.insert("Attributes".into(), system.into());
        }
        if let Some(wanted) = &self.message_attribute_names {
            // The digest is of what is shown, not of what is stored.
            let shown = message.attributes.select(wanted);
            if let (Some(attributes), Some(md5)) = (shown.to_json(), shown.md5()) {
                json.insert("MessageAttributes".into(), attributes);
                json.insert("MD5OfMessageAttributes".into(), md5.into());
            }
        }
        json.insert("Body".into(), message.body.into());
        json.into()
    }

    fn wants_system(&self, name: &str) -> bool {
        self.message_system_attribute_names
            .iter()
            .chain(&self.attribute_names)
            .flatten()
            .any(|wanted| wanted == "All" || wanted == name)
    }
}

fn is_system_attribute(name: &str) -> bool {
    SYSTEM_ATTRIBUTES.contains(&name)
}

fn in_range(
    name: &str,
    value: Option<i64>,
    range: RangeInclusive<i64>,
) -> Result<(), ServiceError> {
    match value {
        Some(value) if !range.contains(&value) => Err(invalid_parameter(format!(
            "{name} must be between {} and {}, not {value}",
            range.start(),
            range.end()
        ))),
        _ => Ok(()),
    }
}

fn seconds(value: Option<i64>) -> Option<Duration> {
    value.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
}
