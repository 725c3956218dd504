//! Faults of single entries of a batch.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::damage::Damage;

/// Which entries of a batch a fault is for.
#[derive(Clone)]
pub struct EntrySelector(Selection);

#[derive(Clone)]
enum Selection {
    All,
    Body(Arc<dyn Fn(&str) -> bool + Send + Sync>),
    Index(usize),
}

impl EntrySelector {
    /// Every entry.
    #[must_use]
    pub const fn all() -> Self {
        Self(Selection::All)
    }

    /// The entry at this place in the request, from 0.
    #[must_use]
    pub const fn index(index: usize) -> Self {
        Self(Selection::Index(index))
    }

    /// The entries with such a body. In the batches that carry no bodies it is asked about receipt handles.
    #[must_use]
    pub fn body(predicate: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Selection::Body(Arc::new(predicate)))
    }

    fn selects(&self, index: usize, body: Option<&str>) -> bool {
        match &self.0 {
            Selection::All => true,
            Selection::Body(predicate) => body.is_some_and(|body| predicate(body)),
            Selection::Index(wanted) => *wanted == index,
        }
    }
}

impl fmt::Debug for EntrySelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selection::All => f.write_str("All"),
            Selection::Body(_) => f.write_str("Body(..)"),
            Selection::Index(index) => write!(f, "Index({index})"),
        }
    }
}

/// What becomes of an entry.
#[derive(Clone, Debug)]
pub struct EntryFault(EntryEffect);

#[derive(Clone, Debug)]
pub(crate) enum EntryEffect {
    Damaged(Damage),
    Failed(Failure),
    InBothLists(Failure),
    Missing { stored: bool },
    Repeated,
}

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: String,
    sender_fault: bool,
}

impl EntryFault {
    /// Not done, and listed as failed with this code. Codes have no namespace here, such as `InternalError`.
    #[must_use]
    pub fn failed(code: impl Into<String>, sender_fault: bool) -> Self {
        Self(EntryEffect::Failed(Failure {
            code: code.into(),
            sender_fault,
        }))
    }

    /// Done, and listed both as successful and as failed with this code.
    #[must_use]
    pub fn in_both_lists(code: impl Into<String>, sender_fault: bool) -> Self {
        Self(EntryEffect::InBothLists(Failure {
            code: code.into(),
            sender_fault,
        }))
    }

    /// Not done, and in neither list.
    #[must_use]
    pub const fn missing() -> Self {
        Self(EntryEffect::Missing { stored: false })
    }

    /// Done, and in neither list.
    #[must_use]
    pub const fn missing_after_storing() -> Self {
        Self(EntryEffect::Missing { stored: true })
    }

    /// Done, and listed twice.
    #[must_use]
    pub const fn repeated() -> Self {
        Self(EntryEffect::Repeated)
    }

    /// Done, and listed with something wrong about it.
    #[must_use]
    pub const fn damaged(damage: Damage) -> Self {
        Self(EntryEffect::Damaged(damage))
    }
}

impl Failure {
    pub(crate) fn to_json(&self, id: &str) -> Value {
        json!({
            "Id": id,
            "SenderFault": self.sender_fault,
            "Code": self.code,
            "Message": "scripted by a test",
        })
    }
}

/// All that is to happen to the entries of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryFaults(Vec<(EntrySelector, EntryFault)>);

impl EntryFaults {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, selector: EntrySelector, fault: EntryFault) {
        self.0.push((selector, fault));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, index: usize, body: Option<&str>) -> Vec<&EntryEffect> {
        self.0
            .iter()
            .filter(|(selector, _)| selector.selects(index, body))
            .map(|(_, EntryFault(effect))| effect)
            .collect()
    }

    /// Whether a request holds an entry that something is to happen to.
    pub(crate) fn concern(&self, request: &Value) -> bool {
        let entries = request.get("Entries").and_then(Value::as_array);
        entries
            .into_iter()
            .flatten()
            .enumerate()
            .any(|(index, entry)| {
                let text = entry
                    .get("MessageBody")
                    .or_else(|| entry.get("ReceiptHandle"));
                !self.of(index, text.and_then(Value::as_str)).is_empty()
            })
    }
}
