//! The metadata that queue sinks set beside a message.

use std::borrow::Cow;

use super::Message;
use crate::redelivery::Redelivery;

/// The content type of every message, whatever its hook's own.
const MESSAGE_CONTENT_TYPE: &str = "application/json";

impl Message<'_> {
    /// The one list of metadata names and values that every queue sink sends, in
    /// this order: as message attributes, as record headers, or the like.
    ///
    /// `ankusa_tenant_id` is the empty string without a tenant; a destination
    /// that refuses empty values leaves it out. `ankusa_dedupe_key` and
    /// `ankusa_replay_id` are there only when the message has them, and
    /// [`Redelivery::ATTRIBUTE`] only for a copy, so at most nine pairs come back.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&'static str, Cow<'_, str>)> {
        let mut attributes = Vec::with_capacity(8);
        attributes.extend([
            ("ankusa_id", Cow::Borrowed(&*self.id)),
            ("ankusa_source_id", Cow::Borrowed(&*self.source_id)),
            (
                "ankusa_tenant_id",
                Cow::Borrowed(self.tenant_id.as_deref().unwrap_or_default()),
            ),
            ("ankusa_message_version", Cow::Borrowed("1")),
            ("ankusa_idempotency_key", self.idempotency_key()),
            ("content_type", Cow::Borrowed(MESSAGE_CONTENT_TYPE)),
        ]);
        if let Some(key) = self.dedupe_key.as_deref() {
            attributes.push(("ankusa_dedupe_key", Cow::Borrowed(key)));
        }
        if let Some(replay_id) = self.replay_id.as_deref() {
            attributes.push(("ankusa_replay_id", Cow::Borrowed(replay_id)));
        }
        if let Some(redelivery) = &self.redelivery {
            let value = redelivery.to_attribute();
            attributes.push((Redelivery::ATTRIBUTE, Cow::Owned(value)));
        }
        attributes
    }
}
