//! Integrity: the digests of what the destination says that it stored.

use dispatch_api::{Answer, DeliveryContext, HeaderField};

use super::steps::{check_unknown, deliver_together, failed, few, succeeded};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, EntryFault, Fault, FaultKind, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        body_digest_mismatch_is_error,
        "a wrong digest of the body leaves the outcome unknown"
    )
    .needs_capabilities(&[Capability::Digests])
    .needs_faults(&[FaultKind::Digest]),
    case!(
        attributes_digest_mismatch_is_error,
        "a wrong digest of the attributes leaves the outcome unknown"
    )
    .needs_capabilities(&[Capability::Digests])
    .needs_faults(&[FaultKind::Digest]),
    case!(
        missing_digest_is_error,
        "a success without a digest leaves the outcome unknown"
    )
    .needs_capabilities(&[Capability::Digests])
    .needs_faults(&[FaultKind::Digest]),
    case!(
        digests_are_checked_for_direct_deliveries,
        "a direct delivery is confirmed like one of a dispatcher"
    )
    .needs_capabilities(&[Capability::Digests])
    .needs_faults(&[FaultKind::Digest]),
    case!(
        honest_digests_are_accepted,
        "digests of whatever set of attributes and bytes are taken as right when they are"
    )
    .needs_capabilities(&[Capability::Digests]),
    case!(
        a_digest_mismatch_fails_its_own_caller_only,
        "a wrong digest of one message of a batch says nothing about the others"
    )
    .needs_capabilities(&[Capability::Digests, Capability::Batching])
    .needs_faults(&[FaultKind::Digest, FaultKind::Entries]),
];

async fn deliver_with(
    context: &Context<'_>,
    fault: Fault,
    ctx: &DeliveryContext,
    step: &str,
) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play(&destination, fault)?;
    let answer = context.deliver_in(&*sink, &context.envelope(), ctx).await;
    check_unknown(step, &failed(step, answer)?)?;
    let after = context.deliver(&*sink, &context.envelope()).await;
    succeeded("the delivery after it", after)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn body_digest_mismatch_is_error(context: &Context<'_>) -> Checked {
    let ctx = context.first_attempt();
    deliver_with(
        context,
        Fault::WrongBodyDigest,
        &ctx,
        "a wrong digest of the body",
    )
    .await
}

async fn attributes_digest_mismatch_is_error(context: &Context<'_>) -> Checked {
    let ctx = context.first_attempt();
    deliver_with(
        context,
        Fault::WrongAttributesDigest,
        &ctx,
        "a wrong digest of the attributes",
    )
    .await
}

async fn missing_digest_is_error(context: &Context<'_>) -> Checked {
    let ctx = context.first_attempt();
    deliver_with(context, Fault::MissingDigests, &ctx, "no digest").await
}

async fn digests_are_checked_for_direct_deliveries(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for (step, fault) in [
        ("a wrong digest of the body", Fault::WrongBodyDigest),
        (
            "a wrong digest of the attributes",
            Fault::WrongAttributesDigest,
        ),
        ("no digest", Fault::MissingDigests),
    ] {
        let step = format!("{step}, delivered directly");
        context.play(&destination, fault)?;
        let ctx = DeliveryContext::direct();
        let answer = context.deliver_in(&*sink, &context.envelope(), &ctx).await;
        check_unknown(&step, &failed(&step, answer)?)?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn honest_digests_are_accepted(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let every_byte: Vec<u8> = (0..=255).collect();
    let envelopes = [
        context.envelope(),
        context.envelope_of(Vec::new()),
        context.envelope_of(every_byte),
        context.envelope_of("naïve \u{1f6a2}"),
        context.envelope_from(None, "harbor", "no tenant"),
        context.envelope_from(Some("zebra"), "aardvark", "other names"),
        context.envelope().with_headers([]),
        context.envelope().with_dedupe_key("parcel-1"),
        context
            .envelope()
            .with_headers([HeaderField::new("X-Harbor-Name", "Zürich \u{1f6a2}")]),
    ];
    let replayed = context.first_attempt().with_replay_id("replay-1");
    for (index, envelope) in envelopes.iter().enumerate() {
        let step = format!("honest digests of envelope {index}");
        for ctx in [&context.first_attempt(), &replayed] {
            let answer = context.deliver_in(&*sink, envelope, ctx).await;
            succeeded(&step, answer)?;
        }
    }
    check_eq("acknowledged", &envelopes.len(), &context.acknowledged())
}

async fn a_digest_mismatch_fails_its_own_caller_only(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes = few(context);
    let wrong = vec![(envelopes[1].id(), EntryFault::WrongBodyDigest)];
    context.play(&destination, Fault::Entries(wrong))?;
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with one wrong digest");
        check_one(&step, index == 1, answer)?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

fn check_one(step: &str, is_wrong: bool, answer: Answer) -> Checked {
    if is_wrong {
        check_unknown(step, &failed(step, answer)?)
    } else {
        succeeded(step, answer).map(drop)
    }
}
