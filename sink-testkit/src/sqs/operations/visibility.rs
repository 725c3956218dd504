//! ChangeMessageVisibility and ChangeMessageVisibilityBatch.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::batch::{BatchAnswer, Entry, check_entries, message_of};
use super::delete::present;
use super::{Call, Output};
use crate::sqs::entry_fault::EntryText;
use crate::sqs::error::{ServiceError, invalid_parameter, missing_parameter};
use crate::sqs::limits::VISIBILITY;
use crate::sqs::queue::bad_handle;
use crate::sqs::state::State;
use crate::sqs::wire::{Object, parse_input};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Single {
    queue_url: Option<String>,
    receipt_handle: Option<String>,
    visibility_timeout: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    queue_url: Option<String>,
    entries: Option<Vec<Object<WireEntry>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireEntry {
    id: Option<String>,
    receipt_handle: Option<String>,
    visibility_timeout: Option<i64>,
}

impl Entry for WireEntry {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

pub(super) fn change_message_visibility(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Single = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let handle = present(input.receipt_handle.as_deref())?;
    let seconds = input
        .visibility_timeout
        .ok_or_else(|| missing_parameter("VisibilityTimeout"))?;
    change(state, call, &name, handle, seconds)?;
    Ok(Output::Void)
}

pub(super) fn change_message_visibility_batch(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Batch = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let entries = check_entries(input.entries)?;
    for entry in &entries {
        present(entry.receipt_handle.as_deref())?;
    }
    let mut answer = BatchAnswer::new(call.entry_faults);
    for entry in &entries {
        let handle = entry.receipt_handle.as_deref();
        let message = message_of(state, call, &name, handle);
        let text = EntryText {
            text: handle,
            message: message.as_deref(),
        };
        answer.entry(entry.id(), text, || {
            let seconds = entry
                .visibility_timeout
                .ok_or_else(|| missing_parameter("VisibilityTimeout"))?;
            change(state, call, &name, handle.unwrap_or_default(), seconds)?;
            Ok(Map::new())
        });
    }
    Ok(answer.finish())
}

fn change(
    state: &mut State,
    call: Call<'_>,
    name: &str,
    handle: &str,
    seconds: i64,
) -> Result<(), ServiceError> {
    let uid = state.queue(name, call.now)?.uid;
    let handle = state.decode_handle(handle, uid).ok_or_else(bad_handle)?;
    if !VISIBILITY.contains(&seconds) {
        return Err(invalid_parameter(format!(
            "VisibilityTimeout must be between 0 and 43200, not {seconds}"
        )));
    }
    let visibility = Duration::from_secs(seconds.unsigned_abs());
    state
        .queue(name, call.now)?
        .change_visibility(handle, visibility, call.now)
}
