//! Sizes: the limit is on what the destination counts, and what is over it is refused
//! unsent.

use std::num::NonZeroUsize;

use dispatch_api::{ClaimId, ClaimRef, Envelope, ErrorClass, HeaderField, Outcome};

use super::carried::{Delivery, all_arrive, all_arrive_with, expected, inline_max};
use super::steps::nothing_was_sent;
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Destination, Duplicates, FaultKind, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        size_exact_limit_accepted,
        "a message of exactly max_message_bytes arrives"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_one_byte_over_refused_unsent,
        "one byte more is refused for good without a request, and the error names both sizes"
    )
    .needs_capabilities(&[Capability::MessageLimit])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        size_largest_promised_message_accepted,
        "a message as large as the guarantees promise arrives"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_counts_headers,
        "the headers of the hook count toward the limit"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_counts_metadata,
        "the metadata beside the message counts toward the limit"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_counts_the_encoded_body,
        "the body counts as it is encoded, not as it was captured"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_counts_escapes,
        "a character that is escaped counts as its escape"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(size_multibyte_counts_bytes, "bytes count, not characters")
        .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_of_a_claimed_body_does_not_count,
        "a body that goes by claim may be larger than any message"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        size_follows_destination_limit,
        "a destination's own smaller limit refuses that message for good, and no other"
    )
    .needs_capabilities(&[Capability::DestinationLimit]),
    case!(
        size_limits_are_reported_as_configured,
        "the sink says the limits that its options set"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
];

/// What the destination counts for this envelope at a first attempt.
async fn counted(
    context: &Context<'_>,
    destination: &Destination,
    envelope: &Envelope,
) -> Checked<usize> {
    let sink = context.build(destination)?;
    let ctx = context.first_attempt();
    let stored = expected(context.profile(), inline_max(&*sink), envelope, &ctx)?;
    Ok(context.fixture().accounted(&stored))
}

/// Two copies of `make` of equal size: with a limit of that size the first arrives, with
/// one byte less the second is refused.
async fn limit_is_exact(context: &Context<'_>, make: impl Fn() -> Envelope) -> Checked {
    let destination = context.destination().await?;
    let (taken, refused) = (make(), make());
    let size = counted(context, &destination, &taken).await?;
    let roomy = context.build_set(&destination, "max_message_bytes", size)?;
    let delivery = Delivery::new("exactly the limit", taken, context.first_attempt());
    let inline_max = inline_max(&*context.build(&destination)?);
    all_arrive_with(context, &destination, &*roomy, inline_max, &[delivery]).await?;
    let tight = context.build_set(&destination, "max_message_bytes", size - 1)?;
    let error = context.deliver_err(&*tight, &refused).await?;
    check_eq("class", &ErrorClass::Permanent, &error.class())?;
    check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn size_exact_limit_accepted(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let envelope = context.envelope();
    let size = counted(context, &destination, &envelope).await?;
    let sink = context.build_set(&destination, "max_message_bytes", size)?;
    let delivery = Delivery::new("exactly the limit", envelope, context.first_attempt());
    all_arrive(context, &destination, &*sink, &[delivery]).await?;
    Ok(())
}

async fn size_one_byte_over_refused_unsent(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let envelope = context.envelope();
    let size = counted(context, &destination, &envelope).await?;
    let sink = context.build_set(&destination, "max_message_bytes", size - 1)?;
    let error = context.deliver_err(&*sink, &envelope).await?;
    check_eq("class", &ErrorClass::Permanent, &error.class())?;
    check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
    for (what, bytes) in [("size", size), ("limit", size - 1)] {
        check(
            error.text().contains(&bytes.to_string()),
            "the text of the refusal",
            format!("it names the {what}"),
            "it does not",
        )?;
    }
    nothing_was_sent(context, &destination).await
}

async fn size_largest_promised_message_accepted(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let Some(limit) = sink.guarantees().max_message_bytes else {
        return check(false, "guarantees", "a largest message", "none");
    };
    let fill = |bytes| [HeaderField::new("X-Fill", "x".repeat(bytes))];
    let envelope = context.envelope();
    let bare = envelope.clone().with_headers(fill(0));
    let size = counted(context, &destination, &bare).await?;
    let full = envelope.with_headers(fill(limit - size));
    let delivery = Delivery::new("the largest message", full, context.first_attempt());
    all_arrive(context, &destination, &*sink, &[delivery]).await?;
    Ok(())
}

async fn size_counts_headers(context: &Context<'_>) -> Checked {
    let header = HeaderField::new("X-Large", "v".repeat(700));
    let make = || context.envelope().with_headers([header.clone()]);
    limit_is_exact(context, make).await
}

async fn size_counts_metadata(context: &Context<'_>) -> Checked {
    let make = || context.envelope().with_dedupe_key("k".repeat(200));
    limit_is_exact(context, make).await
}

async fn size_counts_the_encoded_body(context: &Context<'_>) -> Checked {
    let body = context.random_bytes(900);
    limit_is_exact(context, || context.envelope_of(body.clone())).await
}

async fn size_counts_escapes(context: &Context<'_>) -> Checked {
    let header = HeaderField::new("X-Escaped", "\"\u{1}\\\u{fffe}".repeat(40));
    let make = || context.envelope().with_headers([header.clone()]);
    limit_is_exact(context, make).await
}

async fn size_multibyte_counts_bytes(context: &Context<'_>) -> Checked {
    let header = HeaderField::new("X-Wide", "\u{20ac}\u{1f30a}".repeat(40));
    let make = || context.envelope().with_headers([header.clone()]);
    limit_is_exact(context, make).await
}

async fn size_of_a_claimed_body_does_not_count(context: &Context<'_>) -> Checked {
    const INLINE_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");
    let destination = context.destination().await?;
    let mut options = context.fixture().options(&destination);
    options["inline_max_bytes"] = INLINE_MAX.get().into();
    options["max_message_bytes"] = 3_000.into();
    let sink = context.build_with(options)?;
    let id = ClaimId::new(1_767_225_600_123, 1, 0);
    let claim = ClaimRef::new("quay-7", id).expect("the tenant is a word");
    let delivery = Delivery::new(
        "a body larger than any message",
        context.envelope_of(vec![b'x'; 3_001]),
        context.first_attempt().with_claim(claim),
    );
    all_arrive_with(context, &destination, &*sink, INLINE_MAX, &[delivery]).await?;
    Ok(())
}

async fn size_follows_destination_limit(context: &Context<'_>) -> Checked {
    context.step("create a destination of 4096 bytes");
    let created = context.fixture().create_limited("hooks", 4_096).await;
    let destination = created.map_err(|error| {
        crate::conformance::Failure::of_kit("create a destination", error.to_string())
    })?;
    let sink = context.build(&destination)?;
    let large = context.envelope_of(vec![b'x'; 4_096]);
    let error = context.deliver_err(&*sink, &large).await?;
    check_eq("class", &ErrorClass::Permanent, &error.class())?;
    check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
    let small = context.envelope();
    context.deliver_ok(&*sink, &small).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn size_limits_are_reported_as_configured(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let mut options = context.fixture().options(&destination);
    options["inline_max_bytes"] = 333.into();
    options["max_message_bytes"] = 5_000.into();
    let sink = context.build_with(options)?;
    let reported = sink.guarantees().max_message_bytes;
    check_eq("max_message_bytes", &Some(5_000), &reported)?;
    let reported = sink.inline_max_bytes().map(NonZeroUsize::get);
    check_eq("inline_max_bytes", &Some(333), &reported)
}
