//! What a delivery will cost, and whether it can be sent at all, without sending it.

use dispatch_api::{DeliveryContext, Envelope, Message, SinkError};

use crate::config::SqsSinkConfig;
use crate::entry::Entry;
use crate::scratch::with_scratch;

impl SqsSinkConfig {
    /// What the service will count for this delivery, in bytes, if it can be sent
    /// at all. Asks nobody.
    ///
    /// # Errors
    ///
    /// Those that a delivery meets before its request: `MessageTooLarge`,
    /// `InvalidCharacters`, `InvalidGroupId`, `InvalidDeduplicationId` and
    /// `ClaimCheckMissing`.
    pub fn preflight(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<usize, SinkError> {
        let message = Message::for_delivery(envelope, ctx, self.inline_max_bytes())?;
        with_scratch(|scratch| {
            Entry::plan(self, envelope, ctx, &message, scratch).map(|entry| entry.size)
        })
    }
}
