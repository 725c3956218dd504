//! Identity: by what a repeat is recognised, what a replay changes, what a receipt names,
//! and what deliveries are grouped by.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use dispatch_api::{DeliveryContext, Envelope, Sink};

use super::carried::{Delivery, all_arrive};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Destination, Failure, FaultKind, StoredMessage, check,
    check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        dedup_id_is_the_same_from_every_instance,
        "a sink that is built anew recognises what an earlier one delivered"
    )
    .needs_capabilities(&[Capability::Dedup])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        dedup_id_is_the_same_at_every_attempt,
        "a later attempt, direct or not, is the same message"
    )
    .needs_capabilities(&[Capability::Dedup])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        dedup_ids_of_similar_envelopes_differ,
        "envelopes whose ids differ in one character are two messages"
    )
    .needs_capabilities(&[Capability::Dedup]),
    case!(
        a_replay_is_stored_again,
        "a replay is stored although the original was, and differs in its replay alone"
    ),
    case!(
        a_repeat_of_a_replay_is_recognised,
        "each replay is stored once, however often it is attempted"
    )
    .needs_capabilities(&[Capability::Dedup]),
    case!(
        a_repeat_after_the_window_is_stored_again,
        "repeats are recognised for as long as the guarantees say, and no longer"
    )
    .needs_capabilities(&[Capability::Dedup, Capability::MovableClock]),
    case!(
        the_receipt_names_the_stored_message,
        "each of many receipts names the message that was stored for its delivery"
    )
    .needs_capabilities(&[Capability::Receipt])
    .otherwise(|context| Box::pin(the_receipt_is_empty(context))),
    case!(receipts_are_unique, "no two messages have one receipt")
        .needs_capabilities(&[Capability::Receipt]),
    case!(
        the_receipt_of_a_repeat_names_the_first,
        "the receipt of a recognised repeat names the message that is stored"
    )
    .needs_capabilities(&[Capability::Dedup, Capability::Receipt]),
    case!(
        the_key_is_one_for_tenant_and_source,
        "deliveries of one tenant and source have one key, and of others have others"
    )
    .needs_capabilities(&[Capability::KeyOfSource]),
    case!(
        the_key_is_what_is_declared,
        "the key that arrives with a message is made of its tenant, and of its source where the profile says so"
    )
    .needs_capabilities(&[Capability::Key])
    .otherwise(|context| Box::pin(there_is_no_key(context))),
    case!(
        a_replay_keeps_the_key,
        "a replay is ordered with what it repeats"
    )
    .needs_capabilities(&[Capability::Key]),
    case!(
        the_attempt_leaves_no_trace,
        "the message of a later attempt is the message of the first"
    ),
];

/// All deduplication ids that were on the wire.
fn dedup_ids(
    context: &Context<'_>,
    destination: &Destination,
) -> Checked<BTreeSet<Option<String>>> {
    let requests = context.faults()?.requests(destination);
    Ok(requests
        .into_iter()
        .flat_map(|request| request.dedup_ids)
        .collect())
}

async fn deliver_by(
    context: &Context<'_>,
    sink: &dyn Sink,
    envelope: &Envelope,
    ctx: &DeliveryContext,
) -> Checked {
    context.step("deliver");
    let answer = context.deliver_in(sink, envelope, ctx).await;
    answer
        .map(drop)
        .map_err(|error| Failure::new("deliver", "Ok", error.to_string()))
}

async fn one_is_stored(context: &Context<'_>, destination: &Destination) -> Checked {
    let ids = dedup_ids(context, destination)?;
    check_eq("distinct deduplication ids on the wire", &1, &ids.len())?;
    let stored = context.quiet(destination).await?;
    check_eq("stored messages", &1, &stored.len())
}

async fn dedup_id_is_the_same_from_every_instance(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let envelope = context.envelope();
    let first = context.build(&destination)?;
    context.deliver_ok(&*first, &envelope).await?;
    let second = context.build(&destination)?;
    context.deliver_ok(&*second, &envelope).await?;
    drop((first, second));
    let third = context.build(&destination)?;
    context.deliver_ok(&*third, &envelope).await?;
    one_is_stored(context, &destination).await
}

fn later_attempt(context: &Context<'_>) -> DeliveryContext {
    let attempt = context.first_attempt().attempt_number().get() + 2;
    DeliveryContext::attempt(NonZeroU32::new(attempt).unwrap_or(NonZeroU32::MIN))
}

async fn dedup_id_is_the_same_at_every_attempt(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let envelope = context.envelope();
    let sink = context.build(&destination)?;
    for ctx in [
        context.first_attempt(),
        later_attempt(context),
        DeliveryContext::direct(),
    ] {
        deliver_by(context, &*sink, &envelope, &ctx).await?;
    }
    one_is_stored(context, &destination).await
}

async fn dedup_ids_of_similar_envelopes_differ(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for _ in 0..3 {
        let envelope = context.envelope_of("the same");
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.wait_for(&destination, 3).await?;
    let stored = context.quiet(&destination).await?;
    check_eq("stored messages", &3, &stored.len())
}

async fn a_replay_is_stored_again(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope().with_dedupe_key("mv-88");
    let replay = |id| context.first_attempt().with_replay_id(id);
    let deliveries = [
        Delivery::new("the original", envelope.clone(), context.first_attempt()),
        Delivery::new("a replay", envelope.clone(), replay("rp-1")),
        Delivery::new("another replay", envelope, replay("rp-2")),
    ];
    all_arrive(context, &destination, &*sink, &deliveries).await?;
    Ok(())
}

async fn a_repeat_of_a_replay_is_recognised(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    for replay_id in ["rp-1", "rp-1", "rp-2", "rp-1"] {
        let ctx = context.first_attempt().with_replay_id(replay_id);
        deliver_by(context, &*sink, &envelope, &ctx).await?;
    }
    let stored = context.quiet(&destination).await?;
    check_eq("stored replays", &2, &stored.len())
}

async fn a_repeat_after_the_window_is_stored_again(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let Some(window) = sink.guarantees().dedup_window else {
        return check(false, "guarantees", "a window of deduplication", "none");
    };
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    // What the deliveries themselves take is far below a third.
    context.fixture().advance(window * 2 / 3);
    context.deliver_ok(&*sink, &envelope).await?;
    let within = context.stored(&destination).await?;
    check_eq("messages within the window", &1, &within.len())?;
    context.fixture().advance(window + Duration::from_secs(1));
    context.deliver_ok(&*sink, &envelope).await?;
    let after = context.quiet(&destination).await?;
    check_eq("messages after the window", &2, &after.len())
}

async fn deliver_twelve(
    context: &Context<'_>,
) -> Checked<Vec<(dispatch_api::Receipt, StoredMessage)>> {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let deliveries: Vec<Delivery> = (0..12)
        .map(|_| Delivery::new("one of twelve", context.envelope(), context.first_attempt()))
        .collect();
    all_arrive(context, &destination, &*sink, &deliveries).await
}

async fn the_receipt_names_the_stored_message(context: &Context<'_>) -> Checked {
    for (receipt, stored) in deliver_twelve(context).await? {
        check(
            receipt.provider_id.is_some() || receipt.sequence.is_some(),
            "a receipt",
            "an id or a place",
            "neither",
        )?;
        check_eq("a receipt's id", &stored.provider_id, &receipt.provider_id)?;
        check_eq("a receipt's place", &stored.sequence, &receipt.sequence)?;
    }
    Ok(())
}

async fn the_receipt_is_empty(context: &Context<'_>) -> Checked {
    for (receipt, _) in deliver_twelve(context).await? {
        check_eq(
            "an undeclared receipt",
            &dispatch_api::Receipt::new(),
            &receipt,
        )?;
    }
    Ok(())
}

async fn receipts_are_unique(context: &Context<'_>) -> Checked {
    let pairs = deliver_twelve(context).await?;
    let receipts = pairs.iter().map(|(receipt, _)| receipt);
    let distinct: BTreeSet<_> = receipts
        .map(|receipt| (receipt.provider_id.as_ref(), receipt.sequence.as_ref()))
        .collect();
    check_eq("distinct receipts", &pairs.len(), &distinct.len())
}

async fn the_receipt_of_a_repeat_names_the_first(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    let repeated = context.deliver_ok(&*sink, &envelope).await?;
    let stored = context.wait_for(&destination, 1).await?;
    check_eq("stored messages", &1, &stored.len())?;
    check_eq(
        "the id in the receipt of the repeat",
        &stored[0].provider_id,
        &repeated.provider_id,
    )
}

async fn the_key_is_one_for_tenant_and_source(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let places = [
        (Some("quay-7"), "harbor"),
        (Some("quay-7"), "depot"),
        (Some("quay-8"), "harbor"),
        (None, "harbor"),
    ];
    let mut deliveries = Vec::new();
    for (tenant, source) in places {
        for label in ["the first of a place", "the second of a place"] {
            let envelope = context.envelope_from(tenant, source, "{}");
            deliveries.push(Delivery::new(label, envelope, context.first_attempt()));
        }
    }
    let pairs = all_arrive(context, &destination, &*sink, &deliveries).await?;
    let keys: Vec<_> = pairs.iter().map(|(_, stored)| stored.key.clone()).collect();
    for pair in keys.chunks(2) {
        check(pair[0].is_some(), "the key", "one", "none")?;
        check_eq("the key of one tenant and source", &pair[0], &pair[1])?;
    }
    let distinct: BTreeSet<_> = keys.iter().collect();
    check_eq(
        "distinct keys of tenants and sources",
        &places.len(),
        &distinct.len(),
    )
}

/// What is stored for messages of these tenants, each from these sources.
async fn of_tenants_and_sources<'t>(
    context: &Context<'_>,
    tenants: &[Option<&'t str>],
    sources: &[&'t str],
) -> Checked<Vec<(Option<&'t str>, &'t str, StoredMessage)>> {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let places: Vec<(Option<&str>, &str)> = tenants
        .iter()
        .flat_map(|tenant| sources.iter().map(|source| (*tenant, *source)))
        .collect();
    let deliveries: Vec<_> = places
        .iter()
        .map(|(tenant, source)| {
            let envelope = context.envelope_from(*tenant, source, "{}");
            Delivery::new("a delivery of a place", envelope, context.first_attempt())
        })
        .collect();
    let pairs = all_arrive(context, &destination, &*sink, &deliveries).await?;
    let stored = places.into_iter().zip(pairs);
    Ok(stored
        .map(|((tenant, source), (_, stored))| (tenant, source, stored))
        .collect())
}

const TENANTS: [Option<&str>; 3] = [Some("quay-7"), Some("quay-8"), None];
const SOURCES: [&str; 2] = ["harbor", "depot"];

async fn the_key_is_what_is_declared(context: &Context<'_>) -> Checked {
    for (tenant, source, stored) in of_tenants_and_sources(context, &TENANTS, &SOURCES).await? {
        let expected = context.profile().key.key(tenant, source);
        check_eq("the key of a message", &expected, &stored.key)?;
    }
    Ok(())
}

async fn there_is_no_key(context: &Context<'_>) -> Checked {
    for (_, _, stored) in of_tenants_and_sources(context, &TENANTS, &SOURCES).await? {
        check_eq("an undeclared key", &None, &stored.key)?;
    }
    Ok(())
}

async fn a_replay_keeps_the_key(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    let replay = context.first_attempt().with_replay_id("rp-1");
    let deliveries = [
        Delivery::new("the original", envelope.clone(), context.first_attempt()),
        Delivery::new("a replay", envelope, replay),
    ];
    let pairs = all_arrive(context, &destination, &*sink, &deliveries).await?;
    check(pairs[0].1.key.is_some(), "the key", "one", "none")?;
    check_eq("the key of a replay", &pairs[0].1.key, &pairs[1].1.key)
}

/// Each attempt goes to a destination of its own, which knows nothing of the others.
async fn the_attempt_leaves_no_trace(context: &Context<'_>) -> Checked {
    let envelope = context.envelope().with_dedupe_key("mv-88");
    for (label, name, ctx) in [
        ("the first attempt", "hooks-one", context.first_attempt()),
        ("the third attempt", "hooks-three", later_attempt(context)),
        (
            "a direct delivery",
            "hooks-direct",
            DeliveryContext::direct(),
        ),
    ] {
        let destination = context.named_destination(name).await?;
        let sink = context.build(&destination)?;
        let delivery = Delivery::new(label, envelope.clone(), ctx);
        all_arrive(context, &destination, &*sink, &[delivery]).await?;
    }
    Ok(())
}
