//! What was received.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::lease::Lease;
use crate::message::{DecodeError, Message};

/// A received message, as a handler gets it. Cheap to clone.
///
/// `Debug` shows ids, names and sizes, never the body or a value.
#[derive(Clone)]
pub struct Received {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    id: String,
    body: Bytes,
    attributes: Vec<(String, Bytes)>,
    group: Option<String>,
    redelivery_count: Option<u32>,
    sent_at: Option<SystemTime>,
    lease: Lease,
}

impl Received {
    /// A message with the broker's id of it and its body, without attributes, group and
    /// count.
    #[must_use]
    pub fn new(id: impl Into<String>, body: impl Into<Bytes>, lease: Lease) -> Self {
        Self {
            inner: Arc::new(Inner {
                id: id.into(),
                body: body.into(),
                attributes: Vec::new(),
                group: None,
                redelivery_count: None,
                sent_at: None,
                lease,
            }),
        }
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.inner)
    }

    /// Sets the metadata beside the body.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Vec<(String, Bytes)>) -> Self {
        self.inner().attributes = attributes;
        self
    }

    /// Sets what it is ordered by.
    #[must_use]
    pub fn with_group(mut self, group: Option<String>) -> Self {
        self.inner().group = group;
        self
    }

    /// Sets how often it was delivered.
    #[must_use]
    pub fn with_redelivery_count(mut self, count: Option<u32>) -> Self {
        self.inner().redelivery_count = count;
        self
    }

    /// Sets when it was sent.
    #[must_use]
    pub fn with_sent_at(mut self, sent_at: Option<SystemTime>) -> Self {
        self.inner().sent_at = sent_at;
        self
    }

    /// The broker's id of the message, the same over redeliveries.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The body as it was stored: for foreign producers, and for what
    /// [`Received::message`] does not understand.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.inner.body
    }

    /// The metadata beside the body.
    #[must_use]
    pub fn attributes(&self) -> &[(String, Bytes)] {
        &self.inner.attributes
    }

    /// The value of an attribute, where it is there and is text.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.inner.attributes.iter();
        let (_, value) = attributes.find(|(known, _)| known == name)?;
        std::str::from_utf8(value).ok()
    }

    /// What it is ordered by at the broker, or grouped by for fairness.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.inner.group.as_deref()
    }

    /// How often the broker has delivered it, the first time being 1; `None` where the
    /// broker did not say. It counts every receive, also those that nobody settled.
    #[must_use]
    pub fn redelivery_count(&self) -> Option<u32> {
        self.inner.redelivery_count
    }

    /// When it was sent, by the broker's clock.
    #[must_use]
    pub fn sent_at(&self) -> Option<SystemTime> {
        self.inner.sent_at
    }

    /// For how long it is one's own.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    /// The body as a message of the wire format.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn message(&self) -> Result<Message<'_>, DecodeError> {
        Message::decode(&self.inner.body)
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes = self.inner.attributes.iter();
        let names: Vec<&str> = attributes.map(|(name, _)| &**name).collect();
        f.debug_struct("Received")
            .field("id", &self.inner.id)
            .field("bytes", &self.inner.body.len())
            .field("attributes", &names)
            .field("group", &self.inner.group)
            .field("redelivery_count", &self.inner.redelivery_count)
            .field("lease", &self.inner.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_and_sizes_and_no_values() {
        let received = Received::new("m-1", "a secret body", Lease::unlimited())
            .with_attributes(vec![("token".to_owned(), Bytes::from("a secret value"))])
            .with_redelivery_count(Some(2));
        let shown = format!("{received:?}");
        assert!(
            shown.contains("bytes: 13") && shown.contains("token"),
            "{shown}"
        );
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_count_that_the_broker_did_not_give_is_unknown_and_not_zero() {
        let received = Received::new("m-1", "", Lease::unlimited());
        assert_eq!(received.redelivery_count(), None);
    }
}
