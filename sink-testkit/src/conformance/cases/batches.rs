//! Batches: many deliveries in one request, and an answer of its own for each.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use dispatch_api::{Answer, DeliveryContext, Envelope, ErrorClass, Outcome};

use super::steps::{
    all_succeeded, check_class, check_recorded, check_unknown, deliver_together, failed, few, find,
    succeeded,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Destination, Duplicates, EntryFault, ErrorRow, Failure,
    Fault, FaultKind, Rule, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        batch_shares_requests,
        "deliveries that are started together leave in one request"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Requests])
    .otherwise(|context| Box::pin(each_has_its_own_request(context))),
    case!(
        batch_partial_failure_per_caller,
        "of a batch exactly those callers fail whose messages failed"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_entry_classes_differ,
        "each failed message of a batch has the class of its own failure"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_unaccounted_entry_fails,
        "a message that the reply does not mention has an unknown outcome"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_entry_in_both_lists_is_unknown,
        "a message that is reported as stored and as failed has an unknown outcome"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_repeated_result_harms_no_neighbour,
        "a result that comes twice leaves the others' answers true"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_unknown_result_id_is_ignored,
        "a result for a message that nobody sent harms nobody"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_result_order_irrelevant,
        "results are matched by id, in whatever order they come"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Receipt])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        batch_whole_request_failure_fails_every_member,
        "a failure of the whole request is every caller's"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Row, FaultKind::LoseRequest, FaultKind::LoseReply]),
    case!(
        batch_later_request_failure_keeps_earlier_successes,
        "a request that fails takes nothing back of the one before, and nothing is sent twice"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::LoseRequest, FaultKind::Requests]),
    case!(
        batch_entry_ids_unique,
        "one envelope twice in a batch is accepted, and both callers are answered"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        batch_bad_member_does_not_poison_others,
        "a message that is refused takes none of its neighbours along"
    )
    .needs_capabilities(&[Capability::Batching, Capability::MessageLimit]),
    case!(
        batch_member_with_forbidden_characters_fails_alone,
        "characters that a destination does not take are one message's own fault"
    )
    .needs_capabilities(&[Capability::Batching, Capability::RefusesControlCharacters]),
    case!(
        batch_failed_member_alone_is_sent_again,
        "when a message of a batch is attempted again, its neighbours are not, and it is the \
         same message"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Entries, FaultKind::Requests]),
    case!(
        batch_does_not_mix_destinations,
        "a request holds messages of one destination"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        batch_does_not_mix_credentials,
        "a request holds messages of one sink's credentials, and is signed with those"
    )
    .needs_capabilities(&[Capability::Batching, Capability::Credentials])
    .needs_faults(&[FaultKind::Requests]),
];

async fn batch_shares_requests(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes = few(context);
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    all_succeeded("deliver together", answers)?;
    let requests = context.faults()?.requests(&destination);
    check_eq("requests", &1, &requests.len())?;
    check_eq(
        "messages of the request",
        &ids(&envelopes),
        &requests[0].envelopes.iter().cloned().collect(),
    )?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn each_has_its_own_request(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes = few(context);
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    all_succeeded("deliver together", answers)?;
    context.settle().await;
    let requests = context.faults()?.requests(&destination);
    let counts: Vec<usize> = requests
        .iter()
        .map(|request| request.envelopes.len())
        .collect();
    check_eq(
        "messages of each request without batching",
        &vec![1; envelopes.len()],
        &counts,
    )?;
    context.judge(&destination, Duplicates::Forbidden).await
}

fn ids(envelopes: &[Envelope]) -> BTreeSet<String> {
    let ids = envelopes.iter().map(|envelope| envelope.id().to_string());
    ids.collect()
}

/// The first row of the error table that is of this kind.
fn row_of<'c>(context: &'c Context<'_>, class: ErrorClass) -> Option<&'c ErrorRow> {
    let mut rows = context.profile().error_table.iter();
    rows.find(|row| row.class.as_str() == class.as_str())
}

fn permanent_row<'c>(context: &'c Context<'_>) -> Checked<&'c ErrorRow> {
    row_of(context, ErrorClass::Permanent)
        .ok_or_else(|| Failure::of_kit("error table", "the profile has no permanent row"))
}

/// Delivers a few together with a fault at one or more of them.
async fn with_faults(
    context: &Context<'_>,
    destination: &Destination,
    faults: &[(usize, EntryFault)],
) -> Checked<Vec<Answer>> {
    let sink = context.build(destination)?;
    let envelopes = few(context);
    let faults = faults
        .iter()
        .filter_map(|(index, fault)| Some((envelopes.get(*index)?.id(), fault.clone())));
    context.play(destination, Fault::Entries(faults.collect()))?;
    deliver_together(context, &*sink, &envelopes).await
}

async fn batch_partial_failure_per_caller(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let row = permanent_row(context)?;
    let fault = EntryFault::Row(row.name.clone());
    let faults = [(1, fault.clone()), (4, fault)];
    let answers = with_faults(context, &destination, &faults).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch of which two fail");
        if matches!(index, 1 | 4) {
            let error = failed(&step, answer)?;
            check_class(&step, row.class, &error)?;
            check_eq(&step, &Outcome::NotStored, &error.outcome())?;
        } else {
            succeeded(&step, answer)?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_entry_classes_differ(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let kinds = [
        ErrorClass::Permanent,
        ErrorClass::RetryAfter(std::time::Duration::ZERO),
        ErrorClass::Transient,
    ];
    let rows: Vec<&ErrorRow> = kinds
        .into_iter()
        .filter_map(|kind| row_of(context, kind))
        .take(few(context).len())
        .collect();
    let faults: Vec<(usize, EntryFault)> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| (index, EntryFault::Row(row.name.clone())))
        .collect();
    context.plan("two classes in one batch");
    if rows.len() > 1 {
        context.happened("two classes in one batch");
    }
    let answers = with_faults(context, &destination, &faults).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with different failures");
        match rows.get(index) {
            Some(row) => check_class(&step, row.class, &failed(&step, answer)?)?,
            None => drop(succeeded(&step, answer)?),
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Of a few only the second has an unknown outcome.
async fn second_is_unknown(context: &Context<'_>, fault: EntryFault, what: &str) -> Checked {
    let destination = context.destination().await?;
    let answers = with_faults(context, &destination, &[(1, fault)]).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with a message {what}");
        match index {
            1 => check_unknown(&step, &failed(&step, answer)?)?,
            _ => drop(succeeded(&step, answer)?),
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_unaccounted_entry_fails(context: &Context<'_>) -> Checked {
    second_is_unknown(context, EntryFault::Unmentioned, "that is not mentioned").await
}

async fn batch_entry_in_both_lists_is_unknown(context: &Context<'_>) -> Checked {
    second_is_unknown(context, EntryFault::InBothLists, "in both lists").await
}

async fn batch_repeated_result_harms_no_neighbour(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let faults = [(1, EntryFault::Twice)];
    let answers = with_faults(context, &destination, &faults).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with a result that comes twice");
        match answer {
            // Whether twice stored is stored is for the adapter to say.
            Err(error) if index == 1 => check_unknown(&step, &error)?,
            answer => drop(succeeded(&step, answer)?),
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_unknown_result_id_is_ignored(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play(&destination, Fault::ForeignResult)?;
    let answers = deliver_together(context, &*sink, &few(context)).await?;
    all_succeeded("beside a result for nobody", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_result_order_irrelevant(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play(&destination, Fault::ReversedResults)?;
    let envelopes = few(context);
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    let stored = context.quiet(&destination).await?;
    for (envelope, answer) in envelopes.iter().zip(answers) {
        let receipt = succeeded("results in reverse", answer)?;
        let message = find("results in reverse", &stored, envelope)?;
        check_eq("its receipt", &message.provider_id, &receipt.provider_id)?;
    }
    Ok(())
}

async fn batch_whole_request_failure_fails_every_member(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let config = row_of(context, ErrorClass::Config)
        .ok_or_else(|| Failure::of_kit("error table", "the profile has no config row"))?;
    let transient = ErrorClass::Transient;
    for (what, class, fault) in [
        ("lost", transient, Fault::LoseRequest),
        ("without a reply", transient, Fault::LoseReply),
        ("refused", config.class, Fault::Row(config.name.clone())),
    ] {
        context.play(&destination, fault)?;
        let answers = deliver_together(context, &*sink, &few(context)).await?;
        for (index, answer) in answers.into_iter().enumerate() {
            let step = format!("caller {index} of a request that is {what}");
            check_class(&step, class, &failed(&step, answer)?)?;
        }
    }
    let after = deliver_together(context, &*sink, &few(context)).await?;
    all_succeeded("the batch after them", after)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_later_request_failure_keeps_earlier_successes(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    // One request at a time, so that the first is answered before the second fails.
    let sink = context.build_set(&destination, "batch_max_inflight", 1)?;
    let entries = context.profile().batching.as_ref();
    let entries = entries.map_or(1, |batching| batching.max_entries.min(20));
    let envelopes: Vec<Envelope> = (0..entries + 3).map(|_| context.envelope()).collect();
    let rule = Rule::once(Fault::LoseRequest).after(1);
    context.faults()?.add(&destination, rule);
    let first = deliver_together(context, &*sink, &envelopes[..entries]);
    let later = deliver_together(context, &*sink, &envelopes[entries..]);
    let (first, later) = tokio::join!(first, later);
    let requests = context.faults()?.requests(&destination);
    let lost: BTreeSet<&String> = requests
        .get(1)
        .into_iter()
        .flat_map(|request| &request.envelopes)
        .collect();
    context.plan("the second request is lost");
    for (envelope, answer) in envelopes.iter().zip(first?.into_iter().chain(later?)) {
        if lost.contains(&envelope.id().to_string()) {
            context.happened("the second request is lost");
            let step = "a message of the second request";
            check_class(step, ErrorClass::Transient, &failed(step, answer)?)?;
        } else {
            succeeded("a message of another request", answer)?;
        }
    }
    let mut sent = BTreeSet::new();
    for id in requests.iter().flat_map(|request| &request.envelopes) {
        let step = "messages in the requests";
        check(sent.insert(id), step, "each once", "one twice")?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_entry_ids_unique(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let one = context.envelope();
    let envelopes = [one.clone(), context.envelope(), one];
    context.plan("a request with several messages");
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    for request in context.faults()?.requests(&destination) {
        if request.entry_ids.len() > 1 {
            context.happened("a request with several messages");
        }
        let distinct: BTreeSet<&String> = request.entry_ids.iter().collect();
        check_eq(
            "distinct ids of entries",
            &request.entry_ids.len(),
            &distinct.len(),
        )?;
    }
    all_succeeded("one envelope twice", answers)?;
    context.judge(&destination, Duplicates::OnePerAttempt).await
}

async fn batch_bad_member_does_not_poison_others(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "max_message_bytes", 4_096)?;
    let mut envelopes = few(context);
    envelopes[1] = context.envelope_of(vec![b'x'; 4_096]);
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with a message too large");
        if index == 1 {
            check_class(&step, ErrorClass::Permanent, &failed(&step, answer)?)?;
        } else {
            succeeded(&step, answer)?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_member_with_forbidden_characters_fails_alone(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let mut envelopes = few(context);
    envelopes[1] = context.envelope().with_dedupe_key("a\u{1}b");
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    for (index, answer) in answers.into_iter().enumerate() {
        let step = format!("caller {index} of a batch with a control character");
        if index == 1 {
            check_class(&step, ErrorClass::Permanent, &failed(&step, answer)?)?;
        } else {
            succeeded(&step, answer)?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batch_failed_member_alone_is_sent_again(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes = few(context);
    let row = row_of(context, ErrorClass::Transient)
        .ok_or_else(|| Failure::of_kit("error table", "the profile has no transient row"))?;
    let again = &envelopes[1];
    let fault = (again.id(), EntryFault::Row(row.name.clone()));
    context.play(&destination, Fault::Entries(vec![fault]))?;
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    let failures = answers.iter().filter(|answer| answer.is_err()).count();
    check_eq("callers that failed", &1, &failures)?;
    let ctx = DeliveryContext::attempt(NonZeroU32::new(2).expect("2 is not zero"));
    succeeded(
        "the second attempt",
        context.deliver_in(&*sink, again, &ctx).await,
    )?;
    let requests = context.faults()?.requests(&destination);
    let id = again.id().to_string();
    let Some(last) = requests.last() else {
        return Err(Failure::of_kit("requests", "none was seen"));
    };
    check_eq("messages of the second attempt", &1, &last.envelopes.len())?;
    check_eq("the message", &id, &last.envelopes[0])?;
    let first = requests.iter().find_map(|request| {
        let place = request.envelopes.iter().position(|known| *known == id)?;
        request.dedup_ids.get(place).cloned()
    });
    check_eq(
        "its deduplication id",
        &first,
        &last.dedup_ids.first().cloned(),
    )
}

async fn batch_does_not_mix_destinations(context: &Context<'_>) -> Checked {
    let names = ["hooks", "hooks-other"];
    let mut destinations = Vec::new();
    let mut sinks = Vec::new();
    for name in names {
        let destination = context.named_destination(name).await?;
        sinks.push(context.build(&destination)?);
        destinations.push(destination);
    }
    let envelopes = few(context);
    // Both sinks get deliveries in turn, and all of them wait at once.
    let deliveries = envelopes
        .iter()
        .enumerate()
        .map(|(index, envelope)| context.deliver(&*sinks[index % 2], envelope));
    let all = futures_util::future::join_all(deliveries);
    let patience = context.profile().patience();
    all_succeeded(
        "deliver to two destinations",
        context.within(patience, "the answers", all).await?,
    )?;
    for (which, destination) in destinations.iter().enumerate() {
        let own: Vec<Envelope> = envelopes.iter().skip(which).step_by(2).cloned().collect();
        let requests = context.faults()?.requests(destination);
        let sent = requests.into_iter().flat_map(|request| request.envelopes);
        check_eq(
            &format!("what was sent to {}", names[which]),
            &ids(&own),
            &sent.collect(),
        )?;
    }
    Ok(())
}

async fn batch_does_not_mix_credentials(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let other = context.fixture().other_credentials(&destination);
    let (options, name) =
        other.ok_or_else(|| Failure::of_kit("other credentials", "the fixture has none"))?;
    let sinks = [context.build(&destination)?, context.build_with(options)?];
    let envelopes = few(context);
    let deliveries = envelopes
        .iter()
        .enumerate()
        .map(|(index, envelope)| context.deliver(&*sinks[index % 2], envelope));
    let all = futures_util::future::join_all(deliveries);
    let patience = context.profile().patience();
    all_succeeded(
        "deliver with two credentials",
        context.within(patience, "the answers", all).await?,
    )?;
    let others: Vec<Envelope> = envelopes.iter().skip(1).step_by(2).cloned().collect();
    let others = ids(&others);
    for request in context.faults()?.requests(&destination) {
        let is_others = request.signed_by.as_deref() == Some(&*name);
        for id in &request.envelopes {
            let step = "whose request a message is in";
            check_eq(step, &others.contains(id), &is_others)?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await?;
    check_recorded(context, &destination)
}
