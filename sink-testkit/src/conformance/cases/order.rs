//! Order: deliveries of one key arrive in theirs.

use std::pin::pin;

use dispatch_api::{Envelope, ErrorClass, Outcome, Sink};

use super::carried::{Delivery, all_arrive, check_bytes};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Destination, Duplicates, EntryFault, Fault, FaultKind,
    Hold, StoredMessage, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        order_kept_for_one_key_when_awaited,
        "deliveries of one key that are awaited one by one arrive in that order"
    )
    .needs_capabilities(&[Capability::Order])
    .otherwise(|context| Box::pin(an_unordered_sink_says_so(context))),
    case!(
        order_kept_when_pipelined,
        "deliveries of one key arrive in the order of their first poll"
    )
    .needs_capabilities(&[Capability::PipelinedOrder]),
    case!(
        order_kept_with_concurrent_keys,
        "each key's deliveries arrive in order while other keys are delivered beside them"
    )
    .needs_capabilities(&[Capability::Order]),
    case!(
        order_inside_one_request,
        "the messages of a key are in the request in the order of their first poll"
    )
    .needs_capabilities(&[Capability::PipelinedOrder, Capability::Batching])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        one_request_per_key_at_a_time,
        "no second request with messages of a key leaves while the first has no answer"
    )
    .needs_capabilities(&[Capability::PipelinedOrder, Capability::Batching])
    .needs_faults(&[FaultKind::HoldReply, FaultKind::Requests]),
    case!(
        a_blocked_key_does_not_block_others,
        "while one key's request has no answer, another key is delivered"
    )
    .needs_capabilities(&[Capability::Order, Capability::Key, Capability::ParallelRequests])
    .needs_faults(&[FaultKind::HoldRequest]),
    case!(
        a_failed_head_is_answered_for_itself,
        "one message of a key that fails in a batch takes none of its neighbours with it, and they keep their order"
    )
    .needs_capabilities(&[Capability::Order, Capability::Batching])
    .needs_faults(&[FaultKind::Entries, FaultKind::Row]),
    case!(
        the_key_is_the_tenants_and_the_sources,
        "tenant and source make the key: the same for each of their messages, another for any other"
    )
    .needs_capabilities(&[Capability::Order, Capability::Key]),
    case!(
        a_key_that_does_not_fit_is_refused_unsent,
        "a tenant or source that makes no key of the destination is Permanent, and is never cut"
    )
    .needs_capabilities(&[Capability::BoundedKey])
    .otherwise(|context| Box::pin(any_tenant_arrives_whole(context))),
    case!(
        the_key_is_the_same_after_a_rebuild,
        "another instance of the sink gives the same key"
    )
    .needs_capabilities(&[Capability::Key]),
];

/// The numbers that `numbered` wrote into the bodies, in the order of arrival.
fn numbers(stored: &[StoredMessage], of: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for message in stored {
        let Ok(message) = message.message() else {
            continue;
        };
        let dispatch_api::Content::Inline(body) = &message.content else {
            continue;
        };
        let text = String::from_utf8_lossy(body);
        if let Some(number) = text.strip_prefix(of) {
            numbers.extend(number.trim_start_matches('-').parse::<usize>());
        }
    }
    numbers
}

fn numbered(context: &Context<'_>, tenant: &str, number: usize) -> Envelope {
    context.envelope_from(Some(tenant), "harbor", format!("{tenant}-{number}"))
}

async fn arrived_in_order(
    context: &Context<'_>,
    destination: &Destination,
    tenants: &[&str],
    each: usize,
) -> Checked {
    let stored = context.wait_for(destination, tenants.len() * each).await?;
    for tenant in tenants {
        let expected: Vec<usize> = (0..each).collect();
        let step = format!("order of {tenant}");
        check_eq(&step, &expected, &numbers(&stored, tenant))?;
    }
    Ok(())
}

async fn order_kept_for_one_key_when_awaited(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for number in 0..6 {
        let envelope = numbered(context, "acme", number);
        context.deliver_ok(&*sink, &envelope).await?;
    }
    arrived_in_order(context, &destination, &["acme"], 6).await
}

async fn an_unordered_sink_says_so(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    check_eq(
        "the sink's promise",
        &dispatch_api::Ordering::None,
        &sink.guarantees().ordering,
    )?;
    for number in 0..3 {
        let envelope = numbered(context, "acme", number);
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn order_kept_when_pipelined(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..25)
        .map(|number| numbered(context, "acme", number))
        .collect();
    let answers = context.deliver_all(&*sink, &envelopes).await;
    check(
        answers.iter().all(Result::is_ok),
        "answers",
        "25 times Ok",
        "an error",
    )?;
    arrived_in_order(context, &destination, &["acme"], 25).await
}

async fn order_kept_with_concurrent_keys(context: &Context<'_>) -> Checked {
    const TENANTS: [&str; 5] = ["acme", "borealis", "cobalt", "dune", "ember"];
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.step("5 keys deliver 6 messages each, one by one");
    let keys = TENANTS.map(|tenant| {
        let sink = &sink;
        async move {
            for number in 0..6 {
                for _ in 0..context.random(4) {
                    tokio::task::yield_now().await;
                }
                let envelope = numbered(context, tenant, number);
                context.deliver_ok(&**sink, &envelope).await?;
            }
            Ok(())
        }
    });
    for answered in futures_util::future::join_all(keys).await {
        answered?;
    }
    arrived_in_order(context, &destination, &TENANTS, 6).await
}

async fn order_inside_one_request(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..6)
        .map(|number| numbered(context, "acme", number))
        .collect();
    context.deliver_all(&*sink, &envelopes).await;
    let requests = context.faults()?.requests(&destination);
    let sent: Vec<String> = requests
        .into_iter()
        .flat_map(|request| request.envelopes)
        .collect();
    let expected: Vec<String> = envelopes
        .iter()
        .map(|envelope| envelope.id().to_string())
        .collect();
    check_eq("the messages on the wire", &expected, &sent)
}

async fn one_request_per_key_at_a_time(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let limit = context
        .profile()
        .batching
        .as_ref()
        .map_or(1, |b| b.max_entries);
    let hold = Hold::new();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let envelopes: Vec<Envelope> = (0..limit * 2)
        .map(|number| numbered(context, "acme", number))
        .collect();
    let mut all = pin!(context.deliver_all(&*sink, &envelopes));
    context.arrivals(&hold, 1, &mut all).await?;
    context
        .stays_open("while the first request is held", &mut all)
        .await?;
    let requests = context.faults()?.requests(&destination).len();
    check_eq("requests while the first is held", &1, &requests)?;
    hold.release();
    let patience = context.profile().patience();
    context.within(patience, "after the release", all).await?;
    arrived_in_order(context, &destination, &["acme"], limit * 2).await
}

async fn a_blocked_key_does_not_block_others(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldRequest(hold.gate()))?;
    let blocked = numbered(context, "acme", 0);
    let free = numbered(context, "borealis", 0);
    let mut first = pin!(context.deliver(&*sink, &blocked));
    context.arrivals(&hold, 1, &mut first).await?;
    let other = context.deliver(&*sink, &free);
    let limit = context.profile().timeout / 2;
    let answer = context.within(limit, "the other key", other).await?;
    check(answer.is_ok(), "the other key", "Ok", "an error")?;
    hold.release();
    let patience = context.profile().patience();
    let answer = context.within(patience, "after the release", first).await?;
    check(answer.is_ok(), "after the release", "Ok", "an error")?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_failed_head_is_answered_for_itself(context: &Context<'_>) -> Checked {
    let row = context
        .profile()
        .error_table
        .iter()
        .find(|row| row.class == ErrorClass::Transient && row.outcome == Outcome::NotStored)
        .cloned();
    let Some(row) = row else {
        return Err(crate::conformance::Failure::of_kit(
            "error table",
            "no transient row that stores nothing",
        ));
    };
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..4)
        .map(|number| numbered(context, "acme", number))
        .collect();
    let fault = EntryFault::Row(row.name);
    context.play(
        &destination,
        Fault::Entries(vec![(envelopes[0].id(), fault)]),
    )?;
    let answers = context.deliver_all(&*sink, &envelopes).await;
    let shown: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    check_eq(
        "which were answered Ok",
        &vec![false, true, true, true],
        &shown,
    )?;
    let stored = context.wait_for(&destination, 3).await?;
    check_eq("order of acme", &vec![1, 2, 3], &numbers(&stored, "acme"))?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn key_of(
    context: &Context<'_>,
    sink: &dyn Sink,
    destination: &Destination,
    tenant: Option<&str>,
    source: &str,
) -> Checked<Option<String>> {
    let envelope = context.envelope_from(tenant, source, "{}");
    context.deliver_ok(sink, &envelope).await?;
    let id = envelope.id().to_string();
    let stored = context.stored(destination).await?;
    let message = stored
        .into_iter()
        .find(|message| message.envelope_id() == id);
    Ok(message.and_then(|message| message.key))
}

async fn the_key_is_the_tenants_and_the_sources(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let cases = [
        (Some("acme"), "github", "acme/github"),
        (Some("acme"), "harbor", "acme/harbor"),
        (Some("borealis"), "github", "borealis/github"),
        (None, "github", "/github"),
        (Some("acme"), "github", "acme/github"),
    ];
    for (tenant, source, expected) in cases {
        let key = key_of(context, &*sink, &destination, tenant, source).await?;
        check_eq("the key on the wire", &Some(expected.to_owned()), &key)?;
    }
    Ok(())
}

async fn a_key_that_does_not_fit_is_refused_unsent(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let long = "a".repeat(4_000);
    for tenant in ["two words", "naïve", long.as_str()] {
        let envelope = context.envelope_from(Some(tenant), "harbor", "{}");
        let error = context.deliver_err(&*sink, &envelope).await?;
        check_eq(
            "class of a key that does not fit",
            &ErrorClass::Permanent,
            &error.class(),
        )?;
        check_eq(
            "outcome of a key that does not fit",
            &Outcome::NotStored,
            &error.outcome(),
        )?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Where nothing bounds a key, or there is none, whatever a tenant is called arrives, in the
/// message and in the key.
async fn any_tenant_arrives_whole(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let long = "a".repeat(1_000);
    let mut tenants = vec![
        ("a tenant of two words", "two words"),
        ("a tenant of many characters", &*long),
        ("a tenant with the marks of keys", "quay/7.*>%#"),
    ];
    if context.profile().has(Capability::TextBeyondAscii) {
        tenants.push(("a tenant beyond ASCII", "na\u{ef}ve"));
    }
    let deliveries: Vec<Delivery> = tenants
        .iter()
        .map(|(label, tenant)| {
            let envelope = context.envelope_from(Some(tenant), "harbor", "{}");
            Delivery::new(label, envelope, context.first_attempt())
        })
        .collect();
    let pairs = all_arrive(context, &destination, &*sink, &deliveries).await?;
    if !context.profile().has(Capability::Key) {
        return Ok(());
    }
    for ((label, tenant), (_, stored)) in tenants.iter().zip(&pairs) {
        let should = context.profile().key.key(Some(tenant), "harbor");
        let bytes = |key: &Option<String>| key.as_deref().unwrap_or_default().as_bytes().to_vec();
        let step = format!("the key of {label}");
        check_bytes(&step, &bytes(&should), &bytes(&stored.key))?;
    }
    Ok(())
}

async fn the_key_is_the_same_after_a_rebuild(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let mut keys = Vec::new();
    for _ in 0..2 {
        let sink = context.build(&destination)?;
        keys.push(key_of(context, &*sink, &destination, Some("acme"), "harbor").await?);
        context.drain(&*sink).await?;
    }
    check(keys[0].is_some(), "the key", "there is one", "none")?;
    check_eq("the key of the second instance", &keys[0], &keys[1])
}
