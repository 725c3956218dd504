//! DeleteMessage and DeleteMessageBatch.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::batch::{BatchAnswer, Entry, check_entries, message_of};
use super::{Call, Output};
use crate::sqs::entry_fault::EntryText;
use crate::sqs::error::{ServiceError, missing_parameter};
use crate::sqs::queue::bad_handle;
use crate::sqs::state::State;
use crate::sqs::wire::{Object, parse_input};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Single {
    queue_url: Option<String>,
    receipt_handle: Option<String>,
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
}

impl Entry for WireEntry {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

pub(super) fn delete_message(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Single = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let handle = present(input.receipt_handle.as_deref())?;
    delete(state, call, &name, handle)?;
    Ok(Output::Void)
}

pub(super) fn delete_message_batch(
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
            delete(state, call, &name, handle.unwrap_or_default())?;
            Ok(Map::new())
        });
    }
    Ok(answer.finish())
}

pub(super) fn present(handle: Option<&str>) -> Result<&str, ServiceError> {
    handle
        .filter(|handle| !handle.is_empty())
        .ok_or_else(|| missing_parameter("ReceiptHandle"))
}

fn delete(state: &mut State, call: Call<'_>, name: &str, handle: &str) -> Result<(), ServiceError> {
    let uid = state.queue(name, call.now)?.uid;
    let handle = state.decode_handle(handle, uid).ok_or_else(bad_handle)?;
    state.queue(name, call.now)?.delete(handle, call.now)
}
