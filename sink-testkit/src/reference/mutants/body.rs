//! Mutants of the body.

use std::num::NonZeroUsize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatch_api::{ClaimRef, DeliveryContext, SinkError};
use serde_json::Value;

use super::tools::{altering, delivering, reconfigured, rewrite_text, rewriting, with_body};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "EmptyBecomesNull",
        "sends null for an empty body",
        "body_empty_carried",
        "the body of an empty body",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match envelope.body().is_empty() {
                true => with_body(&envelope, "null"),
                false => envelope,
            })
        }),
    ),
    Mutant::new(
        "CString",
        "cuts a body at its first zero byte",
        "body_nul_and_control_bytes_exact",
        "the body of a zero byte",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let body = envelope.body();
                let end = body.iter().position(|byte| *byte == 0);
                let cut = body.slice(..end.unwrap_or(body.len()));
                with_body(&envelope, cut)
            })
        }),
    ),
    Mutant::new(
        "LossyUtf8",
        "replaces what is no text",
        "body_non_utf8_exact",
        "the body of bytes that begin no character",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let text = String::from_utf8_lossy(envelope.body()).into_owned();
                with_body(&envelope, text)
            })
        }),
    ),
    Mutant::new(
        "UrlSafeBase64",
        "writes the body in the alphabet for URLs",
        "body_every_byte_value_exact",
        "only messages of the wire format",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                rewrite_text(entry, |text| match text.split_once("\"body_base64\":\"") {
                    Some((before, rest)) => {
                        let (body, after) = rest.split_once('"').unwrap_or((rest, ""));
                        let body = body.replace('+', "-").replace('/', "_");
                        format!("{before}\"body_base64\":\"{body}\"{after}")
                    }
                    None => text,
                });
            })
        }),
    ),
    Mutant::new(
        "UnpaddedBase64",
        "leaves the padding away",
        "body_of_every_remainder_exact",
        "only messages of the wire format",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                rewrite_text(entry, |text| text.replace("=\"", "\"").replace("=\"", "\""));
            })
        }),
    ),
    Mutant::new(
        "BomStripper",
        "takes a byte order mark away",
        "body_unicode_not_normalised",
        "the body of a byte order mark in front",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                match envelope.body().strip_prefix(b"\xef\xbb\xbf") {
                    Some(rest) => with_body(&envelope, rest.to_vec()),
                    None => envelope,
                }
            })
        }),
    ),
    Mutant::new(
        "ReplacesNoncharacters",
        "replaces what XML forbids",
        "body_noncharacters_never_replaced",
        "the body of U+FFFE",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                match std::str::from_utf8(envelope.body()) {
                    Ok(text) => {
                        let text = text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
                        with_body(&envelope, text)
                    }
                    Err(_) => envelope,
                }
            })
        }),
    ),
    Mutant::new(
        "ParsesJson",
        "refuses a body that begins like JSON and is none",
        "body_json_lone_surrogate_escape_exact",
        "deliver the escape of half a pair",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let body = envelope.body();
                    let is_json = serde_json::from_slice::<Value>(body).is_ok();
                    if body.starts_with(b"{\"") && !is_json {
                        return Err(SinkError::permanent("InvalidBody", "it is no JSON"));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "WritesJsonAnew",
        "reads a JSON body and writes it anew",
        "body_json_text_not_reserialised",
        "the body of",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                match serde_json::from_slice::<Value>(envelope.body()) {
                    Ok(value) => with_body(&envelope, value.to_string()),
                    Err(_) => envelope,
                }
            })
        }),
    ),
    Mutant::new(
        "SniffingDecoder",
        "decodes a body that looks like base64",
        "body_that_looks_like_a_wrapper_exact",
        "the body of a base64 text",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| match STANDARD.decode(envelope.body()) {
                Ok(decoded) => with_body(&envelope, decoded),
                Err(_) => envelope,
            })
        }),
    ),
    Mutant::new(
        "Trimmer",
        "takes white space around a body away",
        "body_line_endings_and_padding_exact",
        "the body of",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let trimmed = envelope.body().trim_ascii().to_vec();
                with_body(&envelope, trimmed)
            })
        }),
    ),
    Mutant::new(
        "InlineOffByOne",
        "sends a body of the limit by claim",
        "body_of_the_inline_limit_stays_inside",
        "the body of the limit: expected inside the message",
        Seam::Sink(|inner, parts| {
            let strict = reconfigured(&parts, |config| {
                let less = config.inline_max_bytes.get() - 1;
                config.inline_max_bytes = NonZeroUsize::new(less).unwrap_or(NonZeroUsize::MIN);
            });
            delivering(inner, move |_, envelope, ctx| {
                let strict = std::sync::Arc::clone(&strict);
                Box::pin(async move { strict.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "InlinesWhatIsClaimed",
        "sends a large body inside its message although it has a claim",
        "body_over_the_inline_limit_goes_by_claim",
        "the body of a claimed body: expected by this claim",
        Seam::Sink(|inner, parts| {
            let roomy = reconfigured(&parts, |config| config.inline_max_bytes = NonZeroUsize::MAX);
            delivering(inner, move |inner, envelope, ctx| {
                let sink = match ctx.claim() {
                    Some(_) => std::sync::Arc::clone(&roomy),
                    None => inner,
                };
                Box::pin(async move { sink.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "StripsTheSignature",
        "sends the claim without its expiry and signature",
        "body_of_a_signed_claim_keeps_its_signature",
        "expected by this claim",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                let ctx = match ctx.claim() {
                    Some(claim) => unsigned(claim, &ctx),
                    None => ctx,
                };
                Box::pin(async move { inner.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "InlinesForWantOfAClaim",
        "sends a large body inside its message when there is no claim",
        "body_without_its_claim_is_refused_unsent",
        "expected an error; observed Ok",
        Seam::Sink(|inner, parts| {
            let roomy = reconfigured(&parts, |config| config.inline_max_bytes = NonZeroUsize::MAX);
            delivering(inner, move |inner, envelope, ctx| {
                let sink = match ctx.claim() {
                    None => std::sync::Arc::clone(&roomy),
                    Some(_) => inner,
                };
                Box::pin(async move { sink.deliver(&envelope, &ctx).await })
            })
        }),
    ),
];

fn unsigned(claim: &ClaimRef, ctx: &DeliveryContext) -> DeliveryContext {
    let id = claim.id().clone();
    match ClaimRef::new(claim.tenant(), id) {
        Ok(claim) => ctx.clone().with_claim(claim),
        Err(_) => ctx.clone(),
    }
}
