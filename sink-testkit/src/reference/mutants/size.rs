//! Mutants of sizes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use dispatch_api::{Outcome, SinkError};

use super::tools::{Patched, answering, counting, delivering, metadata_bytes, reconfigured};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "OffByOneStrict",
        "refuses a message of exactly the limit",
        "size_exact_limit_accepted",
        "deliver exactly the limit",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, _| {
                message.encode().len() + metadata_bytes(message) + 1
            })
        }),
    ),
    Mutant::new(
        "OffByOneLoose",
        "sends a message of one byte over the limit",
        "size_one_byte_over_refused_unsent",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, _| {
                message.encode().len() + metadata_bytes(message) - 1
            })
        }),
    ),
    Mutant::new(
        "SendsThenFails",
        "refuses what is too large after it was sent",
        "size_one_byte_over_refused_unsent",
        "requests",
        Seam::Sink(|inner, parts| {
            let unlimited = reconfigured(&parts, |config| config.max_message_bytes = usize::MAX);
            delivering(inner, move |inner, envelope, ctx| {
                let unlimited = Arc::clone(&unlimited);
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    let is_too_large = answer
                        .as_ref()
                        .is_err_and(|error| error.code() == "MessageTooLarge");
                    if is_too_large {
                        let _ = unlimited.deliver(&envelope, &ctx).await;
                    }
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "PromisesTooMuch",
        "promises larger messages than it sends",
        "size_largest_promised_message_accepted",
        "deliver the largest message",
        Seam::Sink(|inner, _| {
            let promise = |mut guarantees: dispatch_api::Guarantees| {
                let limit = guarantees.max_message_bytes;
                guarantees.max_message_bytes = limit.map(|bytes| bytes + 1);
                guarantees
            };
            Patched::new(inner).guarantees(promise).sink()
        }),
    ),
    Mutant::new(
        "HeaderBlindCounter",
        "counts a message without its headers",
        "size_counts_headers",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, _| {
                let mut bare = message.clone();
                bare.headers.clear();
                bare.encode().len() + metadata_bytes(message)
            })
        }),
    ),
    Mutant::new(
        "MetadataBlindCounter",
        "counts a message without its metadata",
        "size_counts_metadata",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| counting(inner, &parts, |message, _| message.encode().len())),
    ),
    Mutant::new(
        "PreEncodingCounter",
        "counts the body as it was captured",
        "size_counts_the_encoded_body",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, envelope| {
                let body = envelope.body().len();
                let encoded = body.div_ceil(3) * 4;
                let all = message.encode().len() + metadata_bytes(message);
                all.saturating_sub(encoded - body)
            })
        }),
    ),
    Mutant::new(
        "EscapeBlindCounter",
        "counts an escaped character as the character",
        "size_counts_escapes",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, _| {
                let text = message.encode();
                let escapes = text.matches("\\\\").count() + text.matches("\\\"").count();
                text.len() + metadata_bytes(message) - escapes
            })
        }),
    ),
    Mutant::new(
        "CharCounter",
        "counts characters",
        "size_multibyte_counts_bytes",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            counting(inner, &parts, |message, _| {
                message.encode().chars().count() + metadata_bytes(message)
            })
        }),
    ),
    Mutant::new(
        "CountsTheClaimedBody",
        "refuses a claimed body that is larger than a message",
        "size_of_a_claimed_body_does_not_count",
        "deliver a body larger than any message",
        Seam::Sink(|inner, parts| {
            let limit = parts.config.max_message_bytes;
            delivering(inner, move |inner, envelope, ctx| {
                Box::pin(async move {
                    if envelope.body().len() > limit {
                        return Err(SinkError::permanent("MessageTooLarge", "a large body"));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "RetriesWhatIsTooLarge",
        "takes the destination's refusal of a size for a fault that passes",
        "size_follows_destination_limit",
        "class: expected Permanent",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| match answer {
                Err(error) if error.code() == "MessageTooLarge" && error.status().is_some() => {
                    let text = error.text().to_owned();
                    Err(SinkError::transient(Outcome::NotStored, "Refused", text))
                }
                answer => answer,
            })
        }),
    ),
    Mutant::new(
        "StaleLimits",
        "says the default limit whatever is configured",
        "size_limits_are_reported_as_configured",
        "inline_max_bytes",
        Seam::Sink(|inner, _| {
            let default = NonZeroUsize::new(8_192).unwrap_or(NonZeroUsize::MIN);
            Patched::new(inner).inline_max_bytes(default).sink()
        }),
    ),
];
