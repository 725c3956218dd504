//! What the three batch operations share.

use serde_json::{Map, Value, json};

use crate::sqs::entry_fault::{EntryEffect, EntryFaults, EntryText};
use crate::sqs::error::{ErrorCode, ServiceError};
use crate::sqs::limits::{MAX_BATCH_ENTRIES, is_batch_entry_id};
use crate::sqs::operations::{Call, Output};
use crate::sqs::state::State;
use crate::sqs::wire::Object;

/// An entry of a request, which has an id.
pub(super) trait Entry {
    fn id(&self) -> Option<&str>;
}

/// Checks what fails a batch as a whole: the number of entries and their ids.
pub(super) fn check_entries<E: Entry>(
    entries: Option<Vec<Object<E>>>,
) -> Result<Vec<E>, ServiceError> {
    let entries: Vec<E> = entries
        .unwrap_or_default()
        .into_iter()
        .map(|Object(entry)| entry)
        .collect();
    if entries.is_empty() {
        return Err(ServiceError::new(
            ErrorCode::EmptyBatchRequest,
            "a batch has at least one entry",
        ));
    }
    if entries.len() > MAX_BATCH_ENTRIES {
        return Err(ServiceError::new(
            ErrorCode::TooManyEntriesInBatchRequest,
            format!(
                "a batch has at most {MAX_BATCH_ENTRIES} entries, not {}",
                entries.len()
            ),
        ));
    }
    let mut seen = Vec::with_capacity(entries.len());
    for entry in &entries {
        let id = entry
            .id()
            .filter(|id| is_batch_entry_id(id))
            .ok_or_else(|| {
                ServiceError::new(
                    ErrorCode::InvalidBatchEntryId,
                    "the id of a batch entry is 1 to 80 letters, digits, hyphens and underscores",
                )
            })?;
        if seen.contains(&id) {
            return Err(ServiceError::new(
                ErrorCode::BatchEntryIdsNotDistinct,
                format!("the id {id} is repeated"),
            ));
        }
        seen.push(id);
    }
    Ok(entries)
}

/// The body of the message that an entry is about, where a fault may ask for it.
pub(super) fn message_of(
    state: &State,
    call: Call<'_>,
    queue: &str,
    handle: Option<&str>,
) -> Option<String> {
    if call.entry_faults.is_empty() {
        return None;
    }
    state.message_of(queue, handle?)
}

/// The answer to a batch, built entry by entry.
pub(super) struct BatchAnswer<'a> {
    faults: &'a EntryFaults,
    index: usize,
    successful: Vec<Value>,
    failed: Vec<Value>,
}

impl<'a> BatchAnswer<'a> {
    pub(super) const fn new(faults: &'a EntryFaults) -> Self {
        Self {
            faults,
            index: 0,
            successful: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Does one entry's work, unless a fault keeps it from being done, and notes what became of it.
    pub(super) fn entry(
        &mut self,
        id: Option<&str>,
        entry: EntryText<'_>,
        work: impl FnOnce() -> Result<Map<String, Value>, ServiceError>,
    ) {
        let effects = self.faults.of(self.index, entry);
        self.index += 1;
        let id = id.unwrap_or_default();
        let mut copies = 1;
        let mut also_failed = None;
        let mut damages = Vec::new();
        for effect in effects {
            match effect {
                EntryEffect::Failed(failure) => {
                    self.failed.push(failure.to_json(id));
                    return;
                }
                EntryEffect::Missing { stored: false } => return,
                EntryEffect::Missing { stored: true } => copies = 0,
                EntryEffect::Repeated => copies = 2,
                EntryEffect::InBothLists(failure) => also_failed = Some(failure),
                EntryEffect::Damaged(damage) => damages.push(damage),
            }
        }
        let (list, mut members) = match work() {
            Ok(members) => (&mut self.successful, members),
            Err(error) => (&mut self.failed, failed(&error)),
        };
        members.insert("Id".into(), id.into());
        for damage in damages {
            damage.apply_to_result(&mut members);
        }
        for _ in 0..copies {
            list.push(Value::Object(members.clone()));
        }
        if let Some(failure) = also_failed {
            self.failed.push(failure.to_json(id));
        }
    }

    /// A list that would be empty is left out.
    pub(super) fn finish(self) -> Output {
        let mut answer = Map::new();
        for (name, list) in [("Successful", self.successful), ("Failed", self.failed)] {
            if !list.is_empty() {
                answer.insert(name.into(), list.into());
            }
        }
        Output::Json(answer.into())
    }
}

fn failed(error: &ServiceError) -> Map<String, Value> {
    let members = json!({
        "SenderFault": true,
        "Code": error.code().entry_code(),
        "Message": error.message(),
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
