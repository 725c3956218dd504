//! GetQueueAttributes and SetQueueAttributes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Call, Output};
use crate::sqs::clock::Timestamp;
use crate::sqs::error::{ServiceError, missing_parameter};
use crate::sqs::message::StoredMessage;
use crate::sqs::queue::Queue;
use crate::sqs::queue_attributes::{bad_name, is_known};
use crate::sqs::state::State;
use crate::sqs::wire::parse_input;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Get {
    queue_url: Option<String>,
    attribute_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Set {
    queue_url: Option<String>,
    attributes: Option<BTreeMap<String, String>>,
}

pub(super) fn get(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Get = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let queue = state.queue(&name, call.now)?;
    let wanted = input.attribute_names.unwrap_or_default();
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        return Err(bad_name(unknown));
    }
    let shown: Map<String, Value> = all(queue, call.now)
        .into_iter()
        .filter(|(name, _)| {
            wanted
                .iter()
                .any(|wanted| wanted == "All" || wanted == name)
        })
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    Ok(Output::Json(if shown.is_empty() {
        json!({})
    } else {
        json!({ "Attributes": shown })
    }))
}

pub(super) fn set(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Set = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let changes = input
        .attributes
        .filter(|changes| !changes.is_empty())
        .ok_or_else(|| missing_parameter("Attributes"))?;
    let changed = state.queue(&name, call.now)?.attributes.with(&changes)?;
    if changes.contains_key("RedrivePolicy") {
        state.check_redrive(&name, &changed)?;
    }
    state
        .queue(&name, call.now)?
        .set_attributes(changed, call.now);
    Ok(Output::Void)
}

fn all(queue: &Queue, now: Timestamp) -> BTreeMap<&'static str, String> {
    let count = |is: fn(&StoredMessage, Timestamp) -> bool| {
        queue
            .messages()
            .filter(|message| is(message, now))
            .count()
            .to_string()
    };
    let mut all = queue.attributes.to_map();
    all.extend([
        (
            "ApproximateNumberOfMessages",
            count(|message, now| !message.is_hidden(now)),
        ),
        (
            "ApproximateNumberOfMessagesDelayed",
            count(StoredMessage::is_delayed),
        ),
        (
            "ApproximateNumberOfMessagesNotVisible",
            count(StoredMessage::is_in_flight),
        ),
        ("CreatedTimestamp", queue.created_at.seconds().to_string()),
        (
            "LastModifiedTimestamp",
            queue.modified_at.seconds().to_string(),
        ),
        ("QueueArn", queue.arn.clone()),
    ]);
    all
}
