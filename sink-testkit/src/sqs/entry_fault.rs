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
    Message(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

/// What an entry says of its message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryText<'a> {
    /// Its body, or else its receipt handle.
    pub(crate) text: Option<&'a str>,
    /// The body of the message that it is about, whichever it carries.
    pub(crate) message: Option<&'a str>,
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

    /// The entries whose message has such a body, in the batches of receipt handles too.
    #[must_use]
    pub fn message(predicate: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Selection::Message(Arc::new(predicate)))
    }

    fn selects(&self, index: usize, entry: EntryText<'_>) -> bool {
        match &self.0 {
            Selection::All => true,
            Selection::Body(predicate) => entry.text.is_some_and(|text| predicate(text)),
            Selection::Index(wanted) => *wanted == index,
            Selection::Message(predicate) => entry.message.is_some_and(|body| predicate(body)),
        }
    }
}

impl fmt::Debug for EntrySelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selection::All => f.write_str("All"),
            Selection::Body(_) => f.write_str("Body(..)"),
            Selection::Index(index) => write!(f, "Index({index})"),
            Selection::Message(_) => f.write_str("Message(..)"),
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

    pub(crate) fn of(&self, index: usize, entry: EntryText<'_>) -> Vec<&EntryEffect> {
        self.0
            .iter()
            .filter(|(selector, _)| selector.selects(index, entry))
            .map(|(_, EntryFault(effect))| effect)
            .collect()
    }

    /// Whether a request holds an entry that something is to happen to. `message_of` finds the body of the
    /// message of a receipt handle.
    pub(crate) fn concern(
        &self,
        request: &Value,
        message_of: impl Fn(&str) -> Option<String>,
    ) -> bool {
        let entries = request.get("Entries").and_then(Value::as_array);
        entries
            .into_iter()
            .flatten()
            .enumerate()
            .any(|(index, entry)| {
                let member = |name: &str| entry.get(name).and_then(Value::as_str);
                let (body, handle) = (member("MessageBody"), member("ReceiptHandle"));
                let message = handle.and_then(&message_of);
                let entry = EntryText {
                    text: body.or(handle),
                    message: body.or(message.as_deref()),
                };
                !self.of(index, entry).is_empty()
            })
    }
}
