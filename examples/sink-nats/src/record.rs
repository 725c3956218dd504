//! The planner: what one message is made of, what it costs, and whether it may be sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use dispatch_api::{DeliveryContext, Envelope, Message, SinkError};

use crate::config::NatsSinkConfig;

/// The header by which a stream recognises a repeat.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// One message, checked against everything that can be checked without asking the server.
pub(crate) struct Record {
    pub(crate) subject: String,
    /// The subject as it is configured, for errors: it names no tenant.
    pub(crate) template: Arc<str>,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
    /// The size as the server counts it: headers and payload.
    pub(crate) size: usize,
}

impl Record {
    /// Plans the message that `envelope` and `ctx` make.
    ///
    /// # Errors
    ///
    /// `Permanent`: `InvalidSubject`, `InvalidHeader` or `MessageTooLarge`; `Config`:
    /// `ClaimCheckMissing`.
    pub(crate) fn plan(
        config: &NatsSinkConfig,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Self, SinkError> {
        let message = Message::for_delivery(envelope, ctx, config.inline_max_bytes())?;
        let subject = config.subject_template().expand(envelope)?;
        let message_id = ctx.deduplication_id(envelope.id());
        let attributes = message.attributes();
        // The last first: the idempotency key is made of the dedupe key behind it, which is
        // the one to name.
        for (name, value) in attributes.iter().rev() {
            check_header(name, value)?;
        }
        check_header(MESSAGE_ID, &message_id)?;
        let mut headers = HeaderMap::new();
        let mut size = "NATS/1.0\r\n\r\n".len();
        let mut add = |name: &'static str, value: &str| {
            size += name.len() + ": \r\n".len() + value.len();
            headers.insert(name, value);
        };
        if config.duplicate_window() != Some(Duration::ZERO) {
            add(MESSAGE_ID, &message_id);
        }
        for (name, value) in &attributes {
            add(name, value);
        }
        drop(attributes);
        let payload = Bytes::from(message.encode());
        size += payload.len();
        let record = Self {
            subject,
            template: config.subject_template().shared(),
            headers,
            payload,
            size,
        };
        if let Some(max) = config.max_message_bytes() {
            record.check_size(max, "max_message_bytes")?;
        }
        Ok(record)
    }

    /// Checks the size against a maximum, called `limit`.
    pub(crate) fn check_size(&self, max: usize, limit: &str) -> Result<(), SinkError> {
        if self.size <= max {
            return Ok(());
        }
        Err(SinkError::permanent(
            "MessageTooLarge",
            format!(
                "the message of {} bytes, headers included, is over {limit} ({max}): lower \
                 inline_max_bytes, so that large bodies go through the claim check, or raise \
                 {limit}",
                self.size
            ),
        ))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// A line break would begin another header, or end the headers.
fn check_header(name: &str, value: &str) -> Result<(), SinkError> {
    match value.find(['\r', '\n', '\0']) {
        None => Ok(()),
        Some(at) => Err(SinkError::permanent(
            "InvalidHeader",
            format!(
                "{name} holds U+{:04X}, which a header cannot carry: it takes neither line \
                 breaks nor NUL",
                u32::from(value.as_bytes()[at])
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";

    fn config(more: serde_json::Value) -> NatsSinkConfig {
        let mut options = json!({"servers": ["127.0.0.1"], "subject": "hooks.{tenant_id}"});
        options
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        NatsSinkConfig::from_options(&options).unwrap()
    }

    fn envelope() -> Envelope {
        Envelope::new(ID.parse().unwrap(), "harbor", 1_767_225_600_123, "{}").with_tenant("quay-7")
    }

    fn plan(envelope: &Envelope, ctx: &DeliveryContext) -> Result<Record, SinkError> {
        Record::plan(&config(json!({})), envelope, ctx)
    }

    fn header<'a>(record: &'a Record, name: &'static str) -> Option<&'a str> {
        record.headers.get(name).map(|value| value.as_str())
    }

    #[test]
    fn the_payload_is_the_message_and_the_headers_its_attributes() {
        let ctx = DeliveryContext::direct();
        let envelope = envelope().with_dedupe_key("d1");
        let record = plan(&envelope, &ctx).unwrap();
        let message =
            Message::for_delivery(&envelope, &ctx, dispatch_api::DEFAULT_INLINE_MAX_BYTES).unwrap();
        assert_eq!(record.payload, message.encode().as_bytes());
        assert_eq!(record.subject, "hooks.quay-7");
        for (name, value) in message.attributes() {
            assert_eq!(header(&record, name), Some(&*value), "{name}");
        }
        assert_eq!(header(&record, "Nats-Msg-Id"), Some(ID));
        assert_eq!(record.headers.len(), 8);
    }

    #[test]
    fn a_missing_tenant_is_an_empty_header_and_a_token_of_its_own() {
        let envelope = Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}");
        let record = plan(&envelope, &DeliveryContext::direct()).unwrap();
        assert_eq!(header(&record, "ankusa_tenant_id"), Some(""));
        assert_eq!(record.subject, "hooks.%");
    }

    #[test]
    fn a_replay_has_an_id_of_its_own() {
        let ctx = DeliveryContext::direct().with_replay_id("rp-3");
        let record = plan(&envelope(), &ctx).unwrap();
        let expected = format!("{ID}:replay:rp-3");
        assert_eq!(header(&record, "Nats-Msg-Id"), Some(&*expected));
        assert_eq!(header(&record, "ankusa_replay_id"), Some("rp-3"));
    }

    #[test]
    fn a_window_of_zero_leaves_the_id_out_and_counts_as_much_less() {
        let ctx = DeliveryContext::direct();
        let with_id = plan(&envelope(), &ctx).unwrap();
        let config = config(json!({"duplicate_window_ms": 0}));
        let without = Record::plan(&config, &envelope(), &ctx).unwrap();
        assert_eq!(header(&without, "Nats-Msg-Id"), None);
        assert_eq!(
            with_id.size - without.size,
            "Nats-Msg-Id: \r\n".len() + ID.len()
        );
    }

    #[test]
    fn a_line_break_or_nul_in_a_header_is_refused_by_name_and_never_quoted() {
        for (key, code_point) in [
            ("canary\r\nX: 1", "U+000D"),
            ("canary\n", "U+000A"),
            ("canary\0", "U+0000"),
        ] {
            let error =
                plan(&envelope().with_dedupe_key(key), &DeliveryContext::direct()).unwrap_err();
            assert_eq!(error.code(), "InvalidHeader");
            assert!(error.text().contains("ankusa_dedupe_key"), "{error}");
            assert!(error.text().contains(code_point), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let ctx = DeliveryContext::direct().with_replay_id("a\nb");
        let error = plan(&envelope(), &ctx).unwrap_err();
        assert!(error.text().contains("ankusa_replay_id"), "{error}");
        let tenant = envelope().with_tenant("a\nb");
        let error = plan(&tenant, &DeliveryContext::direct()).unwrap_err();
        assert!(error.text().contains("ankusa_tenant_id"), "{error}");
    }

    #[test]
    fn exactly_the_maximum_fits_and_one_byte_more_does_not() {
        let ctx = DeliveryContext::direct();
        let size = plan(&envelope(), &ctx).unwrap().size;
        let with = |max: usize| {
            Record::plan(
                &config(json!({"max_message_bytes": max})),
                &envelope(),
                &ctx,
            )
        };
        with(size).unwrap();
        let error = with(size - 1).unwrap_err();
        assert_eq!(error.code(), "MessageTooLarge");
        assert!(
            error.text().contains(&format!("of {size} bytes")),
            "{error}"
        );
        assert!(error.text().contains(&format!("({})", size - 1)), "{error}");
    }

    #[test]
    fn a_body_over_the_inline_maximum_needs_a_claim() {
        let config = config(json!({"inline_max_bytes": 1}));
        let error = Record::plan(&config, &envelope(), &DeliveryContext::direct()).unwrap_err();
        assert_eq!(error.code(), "ClaimCheckMissing");
    }
}
