//! The bounds of batches: entries, bytes, and how long one waits to fill.

use std::time::Duration;

use dispatch_api::{DeliveryContext, Envelope, HeaderField, Message, Sink};
use tokio::time::Instant;

use super::steps::{
    all_succeeded, check_recorded, deliver_together, ends_by, failed, few, rows, succeeded,
};
use crate::conformance::case::case;
use crate::conformance::{
    Batching, Capability, Case, Checked, Context, Duplicates, Failure, Fault, FaultKind,
    StoredMessage, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        batch_never_exceeds_count_limit,
        "however many callers there are, no request holds more messages than it may"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        batch_never_exceeds_byte_limit,
        "a message that would cross the limit of a request by one byte opens the next"
    )
    .needs_capabilities(&[Capability::BatchBytes])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        batch_uses_the_whole_byte_limit,
        "a request may be exactly as large as the limit"
    )
    .needs_capabilities(&[Capability::BatchBytes])
    .needs_faults(&[FaultKind::Requests]),
    case!(
        batch_lone_message_flushes_within_linger,
        "a delivery without company leaves when it has lingered"
    )
    .needs_capabilities(&[Capability::Batching]),
    case!(
        batch_full_does_not_linger,
        "a batch that is full leaves at once"
    )
    .needs_capabilities(&[Capability::Batching]),
    case!(
        direct_delivery_does_not_linger,
        "a direct delivery is sent alone and at once"
    )
    .needs_capabilities(&[Capability::Batching]),
    case!(
        batching_off_equals_batching_on,
        "what is delivered directly is stored byte for byte as what is delivered in a batch"
    )
    .needs_capabilities(&[Capability::Batching]),
    case!(
        direct_errors_equal_batched_errors,
        "a fault has the same class for a direct delivery and for one in a batch"
    )
    .needs_capabilities(&[Capability::Batching])
    .needs_faults(&[FaultKind::Row]),
];

fn batching<'c>(context: &'c Context<'_>) -> Checked<&'c Batching> {
    let batching = context.profile().batching.as_ref();
    batching.ok_or_else(|| Failure::of_kit("batching", "the profile declares none"))
}

fn byte_limit(context: &Context<'_>) -> Checked<usize> {
    let limit = batching(context)?.max_bytes;
    limit.ok_or_else(|| Failure::of_kit("batching", "the profile declares no bound of bytes"))
}

async fn batch_never_exceeds_count_limit(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let limit = batching(context)?.max_entries;
    let envelopes: Vec<Envelope> = (0..2 * limit + 3).map(|_| context.envelope()).collect();
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    for request in context.faults()?.requests(&destination) {
        let count = request.envelopes.len();
        check(
            count <= limit,
            "messages of one request",
            format!("at most {limit}"),
            count.to_string(),
        )?;
    }
    all_succeeded("more callers than a request holds", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await?;
    check_recorded(context, &destination)
}

/// The size that the destination counts for it.
fn accounted(context: &Context<'_>, sink: &dyn Sink, envelope: &Envelope) -> Checked<usize> {
    let ctx = context.first_attempt();
    let inline = sink
        .inline_max_bytes()
        .unwrap_or(std::num::NonZeroUsize::MAX);
    let message = Message::for_delivery(envelope, &ctx, inline)
        .map_err(|error| Failure::of_kit("an envelope's size", error.to_string()))?;
    let mut stored = StoredMessage::new(message.encode());
    let carries_empty = context.profile().carries_empty_attributes;
    stored.attributes = message
        .attributes()
        .into_iter()
        .filter(|(_, value)| carries_empty || !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.into_owned().into()))
        .collect();
    Ok(context.fixture().accounted(&stored))
}

/// An envelope that the destination counts as exactly so many bytes.
fn envelope_of_size(context: &Context<'_>, sink: &dyn Sink, bytes: usize) -> Checked<Envelope> {
    let padded = |body: usize, pad: usize| {
        context
            .envelope_of(vec![b'x'; body])
            .with_headers([HeaderField::new("X-Harbor-Pad", "p".repeat(pad))])
    };
    let bare = accounted(context, sink, &padded(0, 0))?;
    if bytes < bare + 16 {
        return Err(Failure::of_kit("an envelope of a size", "it is too small"));
    }
    // A body grows in steps, and its length is written out: a header fills the rest.
    let mut body = (bytes - bare - 16) / 4 * 3;
    loop {
        let size = accounted(context, sink, &padded(body, 0))?;
        if size <= bytes {
            return Ok(padded(body, bytes - size));
        }
        body = body.saturating_sub(3);
    }
}

/// Four messages that make up `bytes` together, and one more.
async fn requests_of(context: &Context<'_>, over: usize) -> Checked<Vec<(usize, usize)>> {
    let destination = context.destination().await?;
    let limit = byte_limit(context)?;
    let quarter = limit / 4;
    let mut options = context.fixture().options(&destination);
    options["inline_max_bytes"] = quarter.into();
    // Long enough for five large messages to be written on a machine that is busy.
    options["batch_linger_ms"] = 1_000.into();
    let sink = context.build_with(options)?;
    let rest = limit - 3 * quarter + over;
    let mut envelopes = Vec::new();
    for bytes in [quarter, quarter, quarter, rest, quarter] {
        let envelope = envelope_of_size(context, &*sink, bytes)?;
        check_eq("size", &bytes, &accounted(context, &*sink, &envelope)?)?;
        envelopes.push(envelope);
    }
    let answers = deliver_together(context, &*sink, &envelopes).await?;
    let requests = context.faults()?.requests(&destination);
    for request in &requests {
        check(
            request.bytes <= limit,
            "bytes of one request",
            format!("at most {limit}"),
            request.bytes.to_string(),
        )?;
    }
    all_succeeded("more bytes than a request holds", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await?;
    check_recorded(context, &destination)?;
    Ok(requests
        .iter()
        .map(|request| (request.envelopes.len(), request.bytes))
        .collect())
}

async fn batch_never_exceeds_byte_limit(context: &Context<'_>) -> Checked {
    requests_of(context, 1).await.map(drop)
}

async fn batch_uses_the_whole_byte_limit(context: &Context<'_>) -> Checked {
    let limit = byte_limit(context)?;
    let requests = requests_of(context, 0).await?;
    check_eq("the first request", &Some(&(4, limit)), &requests.first())
}

async fn batch_lone_message_flushes_within_linger(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    let linger = batching(context)?.linger;
    let delivery = context.deliver(&*sink, &envelope);
    let answer = ends_by(context, "a lone delivery", linger, delivery).await?;
    succeeded("a lone delivery", answer)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

const LONG_LINGER_MS: u64 = 20_000;

async fn batch_full_does_not_linger(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "batch_linger_ms", LONG_LINGER_MS)?;
    let count = batching(context)?.max_entries;
    let envelopes: Vec<Envelope> = (0..count).map(|_| context.envelope()).collect();
    let all = context.deliver_all(&*sink, &envelopes);
    let answers = ends_by(context, "a full batch", Duration::ZERO, all).await?;
    all_succeeded("a full batch", answers)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn direct_delivery_does_not_linger(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "batch_linger_ms", LONG_LINGER_MS)?;
    let began = Instant::now();
    for envelope in few(context) {
        let ctx = DeliveryContext::direct();
        let delivery = context.deliver_in(&*sink, &envelope, &ctx);
        let answer = ends_by(context, "a direct delivery", Duration::ZERO, delivery).await?;
        succeeded("a direct delivery", answer)?;
    }
    let spent = began.elapsed();
    check(
        spent < Duration::from_millis(LONG_LINGER_MS),
        "direct deliveries",
        "no wait for company",
        format!("{spent:?}"),
    )?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn batching_off_equals_batching_on(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let batched = few(context);
    let direct = few(context);
    let answers = deliver_together(context, &*sink, &batched).await?;
    all_succeeded("in a batch", answers)?;
    for envelope in &direct {
        let ctx = DeliveryContext::direct();
        let answer = context.deliver_in(&*sink, envelope, &ctx).await;
        succeeded("directly", answer)?;
    }
    let stored = context.quiet(&destination).await?;
    let inline = sink
        .inline_max_bytes()
        .unwrap_or(std::num::NonZeroUsize::MAX);
    let batched = batched.iter().map(|envelope| (envelope, "in a batch"));
    let direct = direct.iter().map(|envelope| (envelope, "directly"));
    let mut names: Vec<Vec<&String>> = Vec::new();
    for (envelope, how) in batched.chain(direct) {
        let found = super::steps::find(how, &stored, envelope)?;
        let ctx = context.first_attempt();
        let expected = Message::for_delivery(envelope, &ctx, inline)
            .map_err(|error| Failure::of_kit("the expected message", error.to_string()))?;
        let is_equal = found.body == expected.encode().as_bytes();
        check(is_equal, how, "the message byte for byte", "other bytes")?;
        names.push(found.attributes.iter().map(|(name, _)| name).collect());
    }
    for pair in names.windows(2) {
        check_eq("names of the attributes", &pair[0], &pair[1])?;
    }
    Ok(())
}

async fn direct_errors_equal_batched_errors(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for row in rows(context)? {
        let mut found = Vec::new();
        for ctx in [context.first_attempt(), DeliveryContext::direct()] {
            context.play(&destination, Fault::Row(row.name.clone()))?;
            let answer = context.deliver_in(&*sink, &context.envelope(), &ctx).await;
            let error = failed(&row.name, answer)?;
            found.push((
                error.class().as_str(),
                error.outcome(),
                error.code().to_owned(),
            ));
        }
        let step = format!("{}, in a batch and directly", row.name);
        check_eq(&step, &found[0], &found[1])?;
    }
    Ok(())
}
