//! The planner: what one message is made of, what it costs, and whether it fits.

use std::borrow::Cow;

use dispatch_api::{DeliveryContext, Envelope, Message, SinkError};

use crate::config::SqsSinkConfig;
use crate::digest::{self, DigestValue, HexDigest};
use crate::group::{Fault, check_id};
use crate::scratch::Scratch;

/// The data type of every attribute that this sink sends.
pub(crate) const DATA_TYPE: &str = "String";

/// One message, checked against every rule of the service that can be checked
/// without asking it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The message's JSON text.
    pub(crate) body: &'a str,
    /// The same as a JSON string.
    pub(crate) quoted_body: &'a str,
    /// Names and values, none of them empty.
    pub(crate) attributes: Vec<(&'static str, Cow<'a, str>)>,
    /// On a FIFO queue always, else only when configured.
    pub(crate) group_id: Option<String>,
    /// On a FIFO queue only.
    pub(crate) deduplication_id: Option<String>,
    /// The size as the service counts it.
    pub(crate) size: usize,
}

impl<'a> Entry<'a> {
    /// Plans the message that `envelope` and `ctx` make for the configured queue, and
    /// writes it into `scratch`, which is empty.
    ///
    /// # Errors
    ///
    /// `Permanent`: `MessageTooLarge`, `InvalidCharacters`, `InvalidGroupId` or
    /// `InvalidDeduplicationId`.
    pub(crate) fn plan(
        config: &SqsSinkConfig,
        envelope: &Envelope,
        ctx: &DeliveryContext,
        message: &'a Message<'_>,
        scratch: &'a mut Scratch,
    ) -> Result<Self, SinkError> {
        message.encode_quoted_into(&mut scratch.text, &mut scratch.quoted);
        let body = &*scratch.text;
        let mut attributes = message.attributes();
        // The service refuses an empty value, and has no other word for "none".
        attributes.retain(|(_, value)| !value.is_empty());
        let size = accounted_size(body, &attributes);
        let max = config.max_message_bytes();
        if size > max {
            return Err(too_large(size, max));
        }
        // The body needs no check: a message escapes what the service refuses. The last
        // first: the idempotency key is made of the dedupe key behind it, which is the one
        // to name.
        for (name, value) in attributes.iter().rev() {
            check_characters(name, value)?;
        }
        let is_fifo = config.queue().is_fifo();
        let group_id = config
            .grouping()
            .group_id(envelope)
            // A standard queue needs none, and has no empty one.
            .filter(|group_id| is_fifo || !group_id.is_empty());
        if let Some(group_id) = &group_id {
            check_id(group_id).map_err(invalid_group_id)?;
        }
        let deduplication_id = is_fifo.then(|| ctx.deduplication_id(envelope.id()));
        if let Some(id) = &deduplication_id {
            check_id(id).map_err(invalid_deduplication_id)?;
        }
        Ok(Self {
            body,
            quoted_body: &scratch.quoted,
            attributes,
            group_id,
            deduplication_id,
            size,
        })
    }

    /// The digest that the service answers for the body.
    pub(crate) fn body_md5(&self) -> HexDigest {
        digest::of_body(self.body)
    }

    /// The digest that the service answers for the attributes.
    pub(crate) fn attributes_md5(&self) -> Option<HexDigest> {
        digest::of_attributes(
            self.attributes
                .iter()
                .map(|(name, value)| (*name, DATA_TYPE, DigestValue::Text(value))),
        )
    }
}

/// The body and, of every attribute, name, data type and value, in UTF-8 bytes.
/// Neither JSON escapes nor the ids count.
fn accounted_size(body: &str, attributes: &[(&'static str, Cow<'_, str>)]) -> usize {
    let attributes: usize = attributes
        .iter()
        .map(|(name, value)| name.len() + DATA_TYPE.len() + value.len())
        .sum();
    body.len() + attributes
}

fn check_characters(name: &str, text: &str) -> Result<(), SinkError> {
    match first_refused(text) {
        None => Ok(()),
        Some(refused) => Err(SinkError::permanent(
            "InvalidCharacters",
            format!(
                "{name} holds U+{:04X}, which the service refuses: it takes tab, line feed, \
                 carriage return and everything from U+0020 but U+FFFE and U+FFFF",
                u32::from(refused)
            ),
        )),
    }
}

/// The first character that may stand neither in a body nor in an attribute's value.
fn first_refused(text: &str) -> Option<char> {
    // Without a branch, so that a long body is read many bytes at once. U+FFFE and
    // U+FFFF begin with this byte.
    let is_suspicious = text
        .bytes()
        .fold(false, |found, byte| found | (byte < 0x20) | (byte == 0xef));
    if !is_suspicious {
        return None;
    }
    text.chars().find(|c| {
        !matches!(c,
            '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    })
}

fn too_large(size: usize, max: usize) -> SinkError {
    SinkError::permanent(
        "MessageTooLarge",
        format!(
            "the message of {size} bytes, attributes included, is over the maximum of {max}: \
             lower inline_max_bytes, so that large bodies go through the claim check, or raise \
             max_message_bytes if the queue takes more"
        ),
    )
}

fn invalid_group_id(fault: Fault) -> SinkError {
    SinkError::permanent(
        "InvalidGroupId",
        format!("the message group id is refused: {fault}; set message_group_id"),
    )
}

fn invalid_deduplication_id(fault: Fault) -> SinkError {
    SinkError::permanent(
        "InvalidDeduplicationId",
        format!(
            "the deduplication id is refused: {fault}; it is the envelope's id, on a replay \
             with the replay's id behind it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use dispatch_api::{HeaderField, HostServices};
    use proptest::prelude::*;
    use serde_json::Value;

    const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";
    const STANDARD: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks";
    const FIFO: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo";

    fn config(queue_url: &str) -> SqsSinkConfig {
        SqsSinkConfig::builder(queue_url, "us-east-1")
            .build(&HostServices::new())
            .unwrap()
    }

    fn envelope() -> Envelope {
        Envelope::new(ID.parse().unwrap(), "harbor", 1_767_225_600_123, "{}").with_tenant("quay-7")
    }

    /// Plans, and hands the entry to `look` while the message lives.
    fn plan<T>(
        config: &SqsSinkConfig,
        envelope: &Envelope,
        ctx: &DeliveryContext,
        look: impl FnOnce(Entry<'_>) -> T,
    ) -> Result<T, SinkError> {
        let message = Message::for_delivery(envelope, ctx, config.inline_max_bytes()).unwrap();
        Entry::plan(config, envelope, ctx, &message, &mut Scratch::default()).map(look)
    }

    fn check(
        config: &SqsSinkConfig,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<usize, SinkError> {
        config.preflight(envelope, ctx)
    }

    fn direct() -> DeliveryContext {
        DeliveryContext::direct()
    }

    #[test]
    fn a_fifo_message_has_a_group_and_a_deduplication_id() {
        plan(&config(FIFO), &envelope(), &direct(), |entry| {
            assert_eq!(entry.group_id.as_deref(), Some("quay-7/harbor"));
            assert_eq!(entry.deduplication_id.as_deref(), Some(ID));
        })
        .unwrap();
    }

    #[test]
    fn a_replay_changes_the_deduplication_id_and_not_the_group() {
        let ctx = direct().with_replay_id("rp-3");
        plan(&config(FIFO), &envelope(), &ctx, |entry| {
            assert_eq!(entry.group_id.as_deref(), Some("quay-7/harbor"));
            let id = entry.deduplication_id.unwrap();
            assert_eq!(id, format!("{ID}:replay:rp-3"));
        })
        .unwrap();
    }

    #[test]
    fn a_standard_message_has_a_group_only_when_configured_and_never_a_deduplication_id() {
        plan(&config(STANDARD), &envelope(), &direct(), |entry| {
            assert_eq!((entry.group_id, entry.deduplication_id), (None, None));
        })
        .unwrap();
        let fair = SqsSinkConfig::builder(STANDARD, "us-east-1")
            .message_group_id("{tenant_id}")
            .build(&HostServices::new())
            .unwrap();
        plan(&fair, &envelope(), &direct(), |entry| {
            assert_eq!(entry.group_id.as_deref(), Some("quay-7"));
            assert_eq!(entry.deduplication_id, None);
        })
        .unwrap();
    }

    #[test]
    fn an_empty_group_is_no_group_on_a_standard_queue_and_refused_on_a_fifo_queue() {
        let without_tenant = Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}");
        let grouped = |queue_url| {
            SqsSinkConfig::builder(queue_url, "us-east-1")
                .message_group_id("{tenant_id}")
                .build(&HostServices::new())
                .unwrap()
        };
        plan(&grouped(STANDARD), &without_tenant, &direct(), |entry| {
            assert_eq!(entry.group_id, None);
        })
        .unwrap();
        let error = check(&grouped(FIFO), &without_tenant, &direct()).unwrap_err();
        assert_eq!(error.code(), "InvalidGroupId");
    }

    #[test]
    fn a_group_that_sqs_refuses_is_a_permanent_error_of_its_own() {
        for source in ["two words", "é", &"s".repeat(122)] {
            let envelope =
                Envelope::new(ID.parse().unwrap(), source, 0, "{}").with_tenant("quay-7");
            let error = check(&config(FIFO), &envelope, &direct()).unwrap_err();
            assert_eq!(error.code(), "InvalidGroupId", "{error}");
            assert!(!error.to_string().contains(source));
        }
        let closest = Envelope::new(ID.parse().unwrap(), "s".repeat(121), 0, "{}");
        check(&config(FIFO), &closest.with_tenant("quay-7"), &direct()).unwrap();
    }

    #[test]
    fn a_replay_id_that_makes_no_deduplication_id_is_refused_on_fifo_only() {
        for replay_id in ["two words", &"r".repeat(85)] {
            let ctx = direct().with_replay_id(replay_id);
            let error = check(&config(FIFO), &envelope(), &ctx).unwrap_err();
            assert_eq!(error.code(), "InvalidDeduplicationId", "{error}");
            check(&config(STANDARD), &envelope(), &ctx).unwrap();
        }
        // 36 of the id, 8 of the word between, 84 of the replay's id.
        let ctx = direct().with_replay_id("r".repeat(84));
        check(&config(FIFO), &envelope(), &ctx).unwrap();
    }

    #[test]
    fn a_refused_character_is_named_with_its_attribute_and_never_its_value() {
        for (key, code_point) in [
            ("canary\u{ffff}", "U+FFFF"),
            ("canary\u{fffe}", "U+FFFE"),
            ("canary\u{b}", "U+000B"),
            ("canary\0", "U+0000"),
        ] {
            let envelope = envelope().with_dedupe_key(key);
            let error = check(&config(STANDARD), &envelope, &direct()).unwrap_err();
            assert_eq!(error.code(), "InvalidCharacters");
            assert!(error.text().contains("ankusa_dedupe_key"), "{error}");
            assert!(error.text().contains(code_point), "{error}");
            assert!(!error.to_string().contains("canary"));
        }
    }

    #[test]
    fn every_other_character_passes() {
        let envelope = envelope().with_dedupe_key("\t\n\r é€🌊\u{7f}\u{9f}\u{fffd}\u{1fffe}");
        check(&config(STANDARD), &envelope, &direct()).unwrap();
    }

    #[test]
    fn empty_values_are_left_out_and_nothing_else_is() {
        let envelope = Envelope::new(ID.parse().unwrap(), "harbor", 0, "{}").with_dedupe_key("");
        plan(&config(STANDARD), &envelope, &direct(), |entry| {
            let names: Vec<_> = entry.attributes.iter().map(|(name, _)| *name).collect();
            assert_eq!(
                names,
                [
                    "ankusa_id",
                    "ankusa_source_id",
                    "ankusa_message_version",
                    "ankusa_idempotency_key",
                    "content_type",
                ]
            );
        })
        .unwrap();
    }

    #[test]
    fn exactly_the_maximum_fits_and_one_byte_more_does_not() {
        let envelope = envelope().with_dedupe_key("é".repeat(40));
        let size = plan(&config(STANDARD), &envelope, &direct(), |entry| entry.size).unwrap();
        let with_max = |max: usize| {
            SqsSinkConfig::builder(STANDARD, "us-east-1")
                .max_message_bytes(max as u64)
                .build(&HostServices::new())
                .unwrap()
        };
        check(&with_max(size), &envelope, &direct()).unwrap();
        let error = check(&with_max(size - 1), &envelope, &direct()).unwrap_err();
        assert_eq!(error.code(), "MessageTooLarge");
        assert!(error.text().contains(&size.to_string()), "{error}");
        assert!(error.text().contains(&(size - 1).to_string()), "{error}");
    }

    /// The service's formula, applied to what is sent.
    fn recount(request: &[u8]) -> usize {
        let request: Value = serde_json::from_slice(request).unwrap();
        let mut size = request["MessageBody"].as_str().unwrap().len();
        for (name, attribute) in request["MessageAttributes"].as_object().unwrap() {
            size += name.len();
            for part in ["DataType", "StringValue"] {
                size += attribute[part].as_str().unwrap().len();
            }
        }
        size
    }

    proptest! {
        #[test]
        fn no_message_holds_a_character_that_the_service_refuses(
            text in proptest::collection::vec(any::<char>().prop_union(prop::char::range('\0', '\u{1f}')).or(prop::char::range('\u{fff0}', '\u{ffff}')), 0..20),
        ) {
            let text: String = text.into_iter().collect();
            let envelope = envelope()
                .with_content_type(&*text)
                .with_headers([HeaderField::new("a", &*text)])
                .with_trace(&*text, Some(text.clone()));
            let body = plan(&config(STANDARD), &envelope, &direct(), |entry| entry.body.to_owned());
            prop_assert_eq!(first_refused(&body.unwrap()), None);
        }

        #[test]
        fn the_planned_size_is_that_of_the_request_recounted(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            source in "[a-z]{1,8}",
            tenant in proptest::option::of("[ -~é€🌊]{0,20}"),
            key in proptest::option::of("[ -~\t\né€🌊]{0,40}"),
            replay in proptest::option::of("[!-~]{0,20}"),
            fifo in any::<bool>(),
        ) {
            let mut envelope = Envelope::new(ID.parse().unwrap(), source, 5, body);
            if let Some(tenant) = tenant { envelope = envelope.with_tenant(tenant); }
            if let Some(key) = key { envelope = envelope.with_dedupe_key(key); }
            let mut ctx = direct();
            if let Some(replay) = replay { ctx = ctx.with_replay_id(replay); }
            let config = SqsSinkConfig::builder(if fifo { FIFO } else { STANDARD }, "us-east-1")
                .message_group_id("all")
                .build(&HostServices::new())
                .unwrap();
            let (size, request) = plan(&config, &envelope, &ctx, |entry| {
                (entry.size, protocol::send_message(config.queue().as_str(), &protocol::members(&entry)))
            }).unwrap();
            prop_assert_eq!(size, recount(&request));
        }
    }
}
