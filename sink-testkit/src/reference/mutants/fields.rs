//! Mutants of fields and metadata.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dispatch_api::{Origin, Verification};

use super::tools::{
    altering, delivering, rebuilt, rebuilt_at, reconfigured, rewrite_attribute, rewrite_fields,
    rewriting,
};
use super::{Mutant, Seam};
use crate::reference::bare::Bare;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "SwappedIdAndKey",
        "sets the idempotency key where the id belongs",
        "fields_identity_at_its_place",
        "the metadata ankusa_id",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                let of = |name: &str| entry.attributes.iter().position(|(known, _)| known == name);
                let places = (of("ankusa_id"), of("ankusa_idempotency_key"));
                if let (Some(id), Some(key)) = places {
                    entry.attributes[id].1 = entry.attributes[key].1.clone();
                }
            })
        }),
    ),
    Mutant::new(
        "DefaultTenant",
        "names the tenant `default` where there is none",
        "fields_without_a_tenant",
        "the field tenant_id of a message without a tenant",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let tenant = envelope.tenant_id().unwrap_or("default").to_owned();
                let body = envelope.body().clone();
                rebuilt(&envelope, envelope.source_id(), Some(&tenant), body)
            })
        }),
    ),
    Mutant::new(
        "ClampsTime",
        "knows no time before 1970",
        "fields_time_of_any_size",
        "the field received_at of a time before 1970",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let received_at = envelope.received_at().max(0);
                let body = envelope.body().clone();
                let (source, tenant) = (envelope.source_id(), envelope.tenant_id());
                rebuilt_at(&envelope, received_at, source, tenant, body)
            })
        }),
    ),
    Mutant::new(
        "TrimsTheKey",
        "takes spaces around the sender's key away",
        "fields_sender_key_of_any_form",
        "the field dedupe_key of a key with spaces",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.dedupe_key() {
                Some(key) => envelope.clone().with_dedupe_key(key.trim()),
                None => envelope,
            })
        }),
    ),
    Mutant::new(
        "ContinuesTheTrace",
        "continues the trace with a span of its own",
        "fields_trace_context_unchanged",
        "the field traceparent of a traced hook",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.traceparent() {
                Some(parent) => {
                    let parent = parent.replace("-c41e07a95d3b6f28-", "-1111111111111111-");
                    let state = envelope.tracestate().map(str::to_owned);
                    envelope.clone().with_trace(parent, state)
                }
                None => envelope,
            })
        }),
    ),
    Mutant::new(
        "ForgetsTheRegion",
        "sends the instance without its region",
        "fields_origin_of_the_instance",
        "the field region of an instance of a region",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                let ctx = match ctx.origin() {
                    Some(origin) => {
                        let origin = Origin::new(&*origin.instance, None);
                        ctx.with_origin(origin)
                    }
                    None => ctx,
                };
                Box::pin(async move { inner.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "ForgivesTheFlag",
        "sends a flagged hook as a plain one",
        "fields_verification_as_the_host_found_it",
        "the field verification of a flagged hook",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.verification() {
                Some(verification) => {
                    let plain = Verification::new(&*verification.status, false);
                    envelope.clone().with_verification(plain)
                }
                None => envelope,
            })
        }),
    ),
    Mutant::new(
        "TidiesTheContentType",
        "writes the hook's content type in lower case",
        "fields_content_type_of_the_hook",
        "the field content_type of a type with parameters",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.content_type() {
                Some(content_type) => {
                    let tidy = content_type.to_ascii_lowercase();
                    envelope.clone().with_content_type(tidy)
                }
                None => envelope,
            })
        }),
    ),
    Mutant::new(
        "StickyOrigin",
        "keeps the origin of one delivery for those after it",
        "fields_of_one_delivery_do_not_stick",
        "the field instance of the delivery after it",
        Seam::Sink(|inner, _| {
            let kept: Mutex<Option<Origin>> = Mutex::default();
            delivering(inner, move |inner, envelope, ctx| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                *kept = ctx.origin().cloned().or(kept.take());
                let ctx = match &*kept {
                    Some(origin) => ctx.with_origin(origin.clone()),
                    None => ctx,
                };
                Box::pin(async move { inner.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "FirstSixOnly",
        "sends six pairs of metadata",
        "metadata_is_the_one_list",
        "the names of the metadata of a replay with a key",
        Seam::Wire(|inner, _| rewriting(inner, |entry| entry.attributes.truncate(6))),
    ),
    Mutant::new(
        "ContentTypeOfTheHook",
        "sets the hook's content type beside the message",
        "metadata_content_type_is_the_messages",
        "the metadata content_type",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                let body = String::from_utf8_lossy(&entry.body).into_owned();
                if body.contains("\"content_type\":\"text/plain\"") {
                    rewrite_attribute(entry, "content_type", "text/plain");
                }
            })
        }),
    ),
    Mutant::new(
        "AsciiMetadata",
        "replaces what is not ASCII beside the message",
        "metadata_beyond_ascii",
        "the metadata ankusa_",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                for (_, value) in &mut entry.attributes {
                    let text = String::from_utf8_lossy(value);
                    let ascii = text.replace(|c: char| !c.is_ascii(), "?");
                    *value = Bytes::from(ascii);
                }
            })
        }),
    ),
    Mutant::new(
        "ReplacesControlCharacters",
        "makes spaces of control characters in metadata",
        "metadata_control_character_refused",
        "it is refused; observed it was taken",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.dedupe_key() {
                Some(key) if !key.contains('\n') => {
                    let key = key.replace(char::is_control, " ");
                    envelope.clone().with_dedupe_key(key)
                }
                _ => envelope,
            })
        }),
    ),
    Mutant::new(
        "DropsControlCharacters",
        "leaves control characters out of metadata that the destination would carry",
        "metadata_control_character_refused",
        "the metadata ankusa_idempotency_key of U+0001 in metadata",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                for (_, value) in &mut entry.attributes {
                    let text = String::from_utf8_lossy(value);
                    // A line break is another case's.
                    let kept = text.replace(|c: char| c.is_control() && c != '\r' && c != '\n', "");
                    *value = Bytes::from(kept);
                }
            })
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "RefusesWhatIsTaken",
        "refuses control characters although the destination takes them",
        "metadata_control_character_refused",
        "deliver U+0001 in metadata: expected Ok",
        Seam::Sink(|_, parts| {
            let strict = reconfigured(&parts, |config| config.control_characters = false);
            Arc::new(Bare(strict))
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "SplitsMetadata",
        "ends metadata at a line break",
        "metadata_line_break_makes_no_second_pair",
        "metadata with a line break",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.dedupe_key() {
                Some(key) => {
                    let line = key.lines().next().unwrap_or_default().to_owned();
                    envelope.clone().with_dedupe_key(line)
                }
                None => envelope,
            })
        }),
    ),
    Mutant::new(
        "ReplacesBeyondAscii",
        "writes a question mark for what the destination does not take",
        "metadata_beyond_ascii",
        "metadata beyond ASCII",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.dedupe_key() {
                Some(key) => {
                    let key = key.replace(|c: char| !c.is_ascii(), "?");
                    envelope.clone().with_dedupe_key(key)
                }
                None => envelope,
            })
        }),
    )
    .in_mode("text-only"),
    Mutant::new(
        "AnotherOrderOfFields",
        "writes the fields of a message in another order",
        "wire_format_golden_vectors",
        "the bytes of the vector bare",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                rewrite_fields(entry, |fields| {
                    let version = fields.remove("v");
                    fields.extend(version.map(|version| ("v".to_owned(), version)));
                });
            })
        }),
    ),
];
