//! The planner: what one message is made of, what it costs, and whether it may be sent.

use std::fmt;

use bytes::Bytes;
use dispatch_api::{DeliveryContext, Envelope, Message, SinkError};
use rdkafka::message::{Header, OwnedHeaders};

use crate::config::KafkaSinkConfig;

/// One message, checked against everything that can be checked without asking a broker.
pub(crate) struct Record {
    /// Tenant and source: their messages go to one partition.
    pub(crate) key: Bytes,
    pub(crate) headers: OwnedHeaders,
    pub(crate) payload: String,
    /// Unix milliseconds; `None`: the client's own time.
    pub(crate) timestamp: Option<i64>,
    /// Key, names and values of headers, and payload.
    pub(crate) size: usize,
}

impl Record {
    /// Plans the message that `envelope` and `ctx` make.
    ///
    /// # Errors
    ///
    /// `Permanent`: `MessageTooLarge`; `Config`: `ClaimCheckMissing`.
    pub(crate) fn plan(
        config: &KafkaSinkConfig,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Self, SinkError> {
        let message = Message::for_delivery(envelope, ctx, config.inline_max_bytes())?;
        let tenant = envelope.tenant_id().unwrap_or_default();
        let key = match ctx.redelivery().and_then(|copy| copy.key.clone()) {
            Some(key) => key,
            None => format!("{tenant}/{}", envelope.source_id()).into(),
        };
        let attributes = message.attributes();
        let mut headers = OwnedHeaders::new_with_capacity(attributes.len());
        let mut size = key.len();
        let mut add = |name: &str, value: &[u8]| {
            size += name.len() + value.len();
            let header = Header {
                key: name,
                value: Some(value),
            };
            headers = std::mem::take(&mut headers).insert(header);
        };
        for (name, value) in &attributes {
            add(name, value.as_bytes());
        }
        // What other producers put beside the original of a copy.
        for (name, value) in ctx
            .redelivery()
            .into_iter()
            .flat_map(|copy| &copy.attributes)
        {
            if !attributes.iter().any(|(known, _)| known == name) {
                add(name, value);
            }
        }
        let payload = message.encode();
        size += payload.len();
        let max = config.max_message_bytes();
        if size > max {
            return Err(too_large(size, max));
        }
        Ok(Self {
            key,
            headers,
            payload,
            // A record takes no time before 1970, and 0 stands for none.
            timestamp: Some(envelope.received_at()).filter(|at| *at > 0),
            size,
        })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

fn too_large(size: usize, max: usize) -> SinkError {
    SinkError::permanent(
        "MessageTooLarge",
        format!(
            "the message of {size} bytes, key and headers included, is over max_message_bytes \
             ({max}): lower inline_max_bytes, so that large bodies go through the claim check, or \
             raise max_message_bytes if the topic takes more"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::message::Headers as _;
    use serde_json::json;

    const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";

    fn config(max: usize) -> KafkaSinkConfig {
        KafkaSinkConfig::from_options(&json!({
            "brokers": ["127.0.0.1"], "topic": "hooks", "max_message_bytes": max,
        }))
        .unwrap()
    }

    fn plan(envelope: &Envelope) -> Record {
        Record::plan(&config(1_000_000), envelope, &DeliveryContext::direct()).unwrap()
    }

    fn headers(record: &Record) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let all = record.headers.iter();
        all.map(|header| (header.key.to_owned(), text(header.value.unwrap())))
            .collect()
    }

    #[test]
    fn the_payload_is_the_message_the_headers_its_attributes_and_the_key_tenant_and_source() {
        let envelope = Envelope::new(ID.parse().unwrap(), "harbor", 1_767_225_600_123, "{}")
            .with_tenant("quay-7")
            .with_dedupe_key("line\nbreak");
        let ctx = DeliveryContext::direct();
        let record = plan(&envelope);
        let message =
            Message::for_delivery(&envelope, &ctx, dispatch_api::DEFAULT_INLINE_MAX_BYTES).unwrap();
        assert_eq!(record.payload, message.encode());
        assert_eq!(&*record.key, b"quay-7/harbor");
        assert_eq!(record.timestamp, Some(1_767_225_600_123));
        let expected: Vec<_> = message
            .attributes()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into_owned()))
            .collect();
        assert_eq!(headers(&record), expected);
    }

    #[test]
    fn a_missing_tenant_is_an_empty_header_and_an_empty_half_of_the_key() {
        let record = plan(&Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}"));
        assert_eq!(&*record.key, b"/harbor");
        assert_eq!(record.timestamp, None);
        assert!(headers(&record).contains(&("ankusa_tenant_id".to_owned(), String::new())));
    }

    #[test]
    fn exactly_the_maximum_fits_and_one_byte_more_does_not() {
        let envelope = Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}").with_tenant("é");
        let size = plan(&envelope).size;
        let ctx = DeliveryContext::direct();
        let with = |max: usize| {
            let options = json!({
                "brokers": ["127.0.0.1"], "topic": "hooks", "max_message_bytes": max,
            });
            let config = KafkaSinkConfig::from_options(&options).unwrap();
            Record::plan(&config, &envelope, &ctx)
        };
        with(size).unwrap();
        let error = with(size - 1).unwrap_err();
        assert_eq!(error.code(), "MessageTooLarge");
        assert!(
            error.text().contains(&format!("of {size} bytes")),
            "{error}"
        );
    }

    #[test]
    fn a_body_over_the_inline_maximum_needs_a_claim() {
        let config = KafkaSinkConfig::from_options(&json!({
            "brokers": ["127.0.0.1"], "topic": "hooks", "inline_max_bytes": 1,
        }))
        .unwrap();
        let envelope = Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}");
        let error = Record::plan(&config, &envelope, &DeliveryContext::direct()).unwrap_err();
        assert_eq!(error.code(), "ClaimCheckMissing");
    }
}
