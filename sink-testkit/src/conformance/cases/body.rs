//! The body: every byte arrives as it was captured, inside the message or by its claim.

use std::num::NonZeroUsize;

use dispatch_api::{ClaimId, ClaimRef, DeliveryContext, ErrorClass, Outcome, Sink};

use super::carried::{Delivery, all_arrive_with, envelopes_arrive};
use super::steps::nothing_was_sent;
use crate::conformance::case::case;
use crate::conformance::{Case, Checked, Context, FaultKind, check_eq};

pub(super) const CASES: &[Case] = &[
    case!(
        body_empty_carried,
        "a body of no bytes arrives as a body of no bytes"
    ),
    case!(
        body_nul_and_control_bytes_exact,
        "zero bytes and control characters arrive, wherever they stand"
    ),
    case!(
        body_non_utf8_exact,
        "bytes that are no text arrive, and are never replaced"
    ),
    case!(
        body_every_byte_value_exact,
        "a body of every byte value and one of random bytes arrive"
    ),
    case!(
        body_of_every_remainder_exact,
        "bodies whose encoding ends in no, one or two padding characters arrive"
    ),
    case!(
        body_unicode_not_normalised,
        "composed and decomposed characters, byte order marks and joiners arrive as they were"
    ),
    case!(
        body_noncharacters_never_replaced,
        "characters that XML and some services forbid arrive as they were"
    ),
    case!(
        body_json_lone_surrogate_escape_exact,
        "JSON that no parser can read as text is carried and not read"
    ),
    case!(
        body_json_text_not_reserialised,
        "JSON arrives in its own notation: order, repeats, numbers, escapes and spaces"
    ),
    case!(
        body_that_looks_like_a_wrapper_exact,
        "a body that looks encoded or wrapped is not unwrapped"
    ),
    case!(
        body_line_endings_and_padding_exact,
        "line ends and white space around a body arrive as they were"
    ),
    case!(
        body_of_the_inline_limit_stays_inside,
        "a body of inline_max_bytes travels inside its message, and of one byte more by claim"
    ),
    case!(
        body_over_the_inline_limit_goes_by_claim,
        "a larger body is carried by its claim, with size and digest of the body"
    ),
    case!(
        body_of_a_signed_claim_keeps_its_signature,
        "a claim with expiry and signature travels whole"
    ),
    case!(
        body_without_its_claim_is_refused_unsent,
        "a larger body without a claim is an error of the configuration, and nothing is sent"
    )
    .needs_faults(&[FaultKind::Requests]),
];

async fn bodies_arrive(
    context: &Context<'_>,
    bodies: impl IntoIterator<Item = (&'static str, Vec<u8>)>,
) -> Checked {
    let envelopes: Vec<_> = bodies
        .into_iter()
        .map(|(label, body)| (label, context.envelope_of(body)))
        .collect();
    envelopes_arrive(context, envelopes).await
}

async fn texts_arrive(context: &Context<'_>, texts: &[(&'static str, &str)]) -> Checked {
    let bodies = texts.iter().map(|(label, text)| (*label, text.as_bytes()));
    bodies_arrive(context, bodies.map(|(label, body)| (label, body.to_vec()))).await
}

async fn body_empty_carried(context: &Context<'_>) -> Checked {
    let bare = context.envelope_of("").with_headers([]);
    let envelopes = [
        ("an empty body", context.envelope_of("")),
        ("an empty body without headers", bare),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn body_nul_and_control_bytes_exact(context: &Context<'_>) -> Checked {
    let controls: Vec<u8> = (0x01..=0x1f).chain([0x7f]).collect();
    let bodies = [
        ("a zero byte", b"\0".to_vec()),
        ("text with a zero byte within", b"a\0b".to_vec()),
        ("text between zero bytes", b"\0\0text\0".to_vec()),
        ("all control characters", controls),
    ];
    bodies_arrive(context, bodies).await
}

async fn body_non_utf8_exact(context: &Context<'_>) -> Checked {
    let bodies = [
        ("bytes that begin no character", vec![0xff, 0xfe, 0xfd]),
        ("a character that breaks off", vec![b'a', 0xe2, 0x82]),
        ("a lone continuation byte", vec![b'a', 0x80, b'b']),
        ("an overlong slash", vec![0xc0, 0xaf]),
        ("a surrogate in UTF-8", vec![0xed, 0xa0, 0x80]),
    ];
    bodies_arrive(context, bodies).await
}

async fn body_every_byte_value_exact(context: &Context<'_>) -> Checked {
    let bodies = [
        ("every byte value", (0..=0xff).collect()),
        ("random bytes", context.random_bytes(3_000)),
    ];
    bodies_arrive(context, bodies).await
}

async fn body_of_every_remainder_exact(context: &Context<'_>) -> Checked {
    let labels = ["1 byte", "2 bytes", "3 bytes", "4 bytes", "5 bytes"];
    let bodies = labels.into_iter().zip(1..);
    bodies_arrive(context, bodies.map(|(label, n)| (label, vec![0xfb; n]))).await
}

async fn body_unicode_not_normalised(context: &Context<'_>) -> Checked {
    let texts = [
        ("a composed character", "caf\u{e9}"),
        ("a decomposed character", "cafe\u{301}"),
        ("a joined emoji", "\u{1f469}\u{200d}\u{1f680}"),
        ("a byte order mark in front", "\u{feff}{}"),
        ("marks of direction", "a\u{202e}b\u{200f}c"),
        ("a ligature and wide forms", "\u{fb01}\u{ff21}"),
    ];
    texts_arrive(context, &texts).await
}

async fn body_noncharacters_never_replaced(context: &Context<'_>) -> Checked {
    let texts = [
        ("U+FFFE", "x\u{fffe}y"),
        ("U+FFFF", "x\u{ffff}y"),
        (
            "U+0000 to U+0008",
            "\u{0}\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}",
        ),
        ("U+000B and U+000C", "x\u{b}\u{c}y"),
        ("U+1FFFE", "x\u{1fffe}y"),
    ];
    texts_arrive(context, &texts).await
}

async fn body_json_lone_surrogate_escape_exact(context: &Context<'_>) -> Checked {
    let texts = [
        ("the escape of half a pair", r#"{"name":"\ud800"}"#),
        ("the escapes of a pair", r#"{"name":"\ud83c\udf0a"}"#),
        ("JSON that breaks off", r#"{"name":"#),
    ];
    texts_arrive(context, &texts).await
}

async fn body_json_text_not_reserialised(context: &Context<'_>) -> Checked {
    let texts = [
        ("keys out of order", r#"{"z":1,"a":2}"#),
        ("a repeated key", r#"{"a":1,"a":2}"#),
        (
            "numbers of several notations",
            r#"[1.0,1e3,-0,12345678901234567890]"#,
        ),
        ("an escaped slash", r#"{"url":"https:\/\/harbor.example"}"#),
        ("spaces within", "{ \"a\" : [ 1 , 2 ] }"),
    ];
    texts_arrive(context, &texts).await
}

async fn body_that_looks_like_a_wrapper_exact(context: &Context<'_>) -> Checked {
    let texts = [
        ("a base64 text", "aGVsbG8gaGFyYm9y"),
        (
            "a message of the wire format",
            r#"{"v":1,"id":"x","source_id":"y","received_at":0,"size":0,"body_base64":""}"#,
        ),
        (
            "a notification",
            r#"{"Type":"Notification","Message":"{}"}"#,
        ),
        (
            "a claim",
            "urn:ankusa:claim:v1:quay-7:01KDVDNA3V24H36H2NCSVRG000",
        ),
    ];
    texts_arrive(context, &texts).await
}

async fn body_line_endings_and_padding_exact(context: &Context<'_>) -> Checked {
    let texts = [
        ("carriage returns and line feeds", "a\r\nb\r\n"),
        ("lone carriage returns", "a\rb\r"),
        ("a line feed at the end", "a\n"),
        ("spaces and tabs around", " \t a \t "),
        ("nothing but white space", " \r\n\t"),
    ];
    texts_arrive(context, &texts).await
}

/// So that bodies on both sides of the limit are small.
const INLINE_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

fn claimed(context: &Context<'_>) -> Checked<DeliveryContext> {
    let id = ClaimId::new(1_767_225_600_123, 0x1122_3344_5566_7788, 5);
    let claim = ClaimRef::new("quay-7", id).expect("the tenant is a word");
    Ok(context.first_attempt().with_claim(claim))
}

async fn arrive_around_the_limit(context: &Context<'_>, deliveries: &[Delivery]) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "inline_max_bytes", INLINE_MAX.get())?;
    all_arrive_with(context, &destination, &*sink, INLINE_MAX, deliveries).await?;
    Ok(())
}

async fn body_of_the_inline_limit_stays_inside(context: &Context<'_>) -> Checked {
    let limit = INLINE_MAX.get();
    let within = context.envelope_of(vec![b'x'; limit]);
    let beyond = context.envelope_of(vec![b'x'; limit + 1]);
    let deliveries = [
        Delivery::new("the limit", within, claimed(context)?),
        Delivery::new("one byte over the limit", beyond, claimed(context)?),
    ];
    arrive_around_the_limit(context, &deliveries).await
}

async fn body_over_the_inline_limit_goes_by_claim(context: &Context<'_>) -> Checked {
    let large = context.envelope_of(context.random_bytes(4 * INLINE_MAX.get()));
    let delivery = Delivery::new("a claimed body", large, claimed(context)?);
    arrive_around_the_limit(context, &[delivery]).await
}

async fn body_of_a_signed_claim_keeps_its_signature(context: &Context<'_>) -> Checked {
    let text = format!(
        "urn:ankusa:claim:v2:quay-7:01KDVDNA3V24H36H2NCSVRG005:1798761600:{}",
        "Qx_-7".repeat(8) + "QQQ"
    );
    let claim: ClaimRef = text.parse().expect("the reference is well formed");
    let large = context.envelope_of(vec![b'x'; 2 * INLINE_MAX.get()]);
    let ctx = context.first_attempt().with_claim(claim);
    let delivery = Delivery::new("a body with a signed claim", large, ctx);
    arrive_around_the_limit(context, &[delivery]).await
}

async fn body_without_its_claim_is_refused_unsent(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "inline_max_bytes", INLINE_MAX.get())?;
    let sink: &dyn Sink = &*sink;
    let large = context.envelope_of(vec![b'x'; INLINE_MAX.get() + 1]);
    let error = context.deliver_err(sink, &large).await?;
    check_eq("class", &ErrorClass::Config, &error.class())?;
    check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
    check_eq("code", &"ClaimCheckMissing", &error.code())?;
    nothing_was_sent(context, &destination).await
}
