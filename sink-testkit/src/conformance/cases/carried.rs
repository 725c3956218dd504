//! What has to be stored for a delivery, compared with what is: used by the cases about
//! bodies, headers, sizes and identity.

use std::num::NonZeroUsize;

use bytes::Bytes;
use dispatch_api::{Content, DeliveryContext, Envelope, Message, Receipt, Sink};

use crate::conformance::{
    Checked, Context, Destination, Failure, Profile, StoredMessage, check, check_eq,
};

/// One delivery of a case, with words for it.
pub(super) struct Delivery {
    pub(super) label: &'static str,
    pub(super) envelope: Envelope,
    pub(super) ctx: DeliveryContext,
}

impl Delivery {
    pub(super) fn new(label: &'static str, envelope: Envelope, ctx: DeliveryContext) -> Self {
        Self {
            label,
            envelope,
            ctx,
        }
    }
}

/// The largest body inside a message, as the sink says.
pub(super) fn inline_max(sink: &dyn Sink) -> NonZeroUsize {
    sink.inline_max_bytes().unwrap_or(NonZeroUsize::MAX)
}

/// The message that a destination has to store for this delivery.
pub(super) fn expected(
    profile: &Profile,
    inline_max: NonZeroUsize,
    envelope: &Envelope,
    ctx: &DeliveryContext,
) -> Checked<StoredMessage> {
    let message = message(envelope, ctx, inline_max)?;
    let mut stored = StoredMessage::new(message.encode());
    stored.attributes = message
        .attributes()
        .into_iter()
        .filter(|(_, value)| profile.carries_empty_attributes || !value.is_empty())
        .map(|(name, value)| (name.to_owned(), Bytes::from(value.into_owned())))
        .collect();
    Ok(stored)
}

fn message<'a>(
    envelope: &'a Envelope,
    ctx: &'a DeliveryContext,
    inline_max: NonZeroUsize,
) -> Checked<Message<'a>> {
    Message::for_delivery(envelope, ctx, inline_max)
        .map_err(|error| Failure::of_kit("write the expected message", error.to_string()))
}

/// Delivers all of them at once, and checks that each is stored as it has to be. Returns
/// the receipts and the stored messages, in the order of the deliveries.
pub(super) async fn all_arrive(
    context: &Context<'_>,
    destination: &Destination,
    sink: &dyn Sink,
    deliveries: &[Delivery],
) -> Checked<Vec<(Receipt, StoredMessage)>> {
    all_arrive_with(context, destination, sink, inline_max(sink), deliveries).await
}

/// As [`all_arrive`], with the largest body inside a message known from elsewhere.
pub(super) async fn all_arrive_with(
    context: &Context<'_>,
    destination: &Destination,
    sink: &dyn Sink,
    inline_max: NonZeroUsize,
    deliveries: &[Delivery],
) -> Checked<Vec<(Receipt, StoredMessage)>> {
    context.step(format!("deliver {} at once", deliveries.len()));
    let running = deliveries
        .iter()
        .map(|Delivery { envelope, ctx, .. }| context.deliver_in(sink, envelope, ctx));
    let answers = futures_util::future::join_all(running).await;
    let mut receipts = Vec::with_capacity(deliveries.len());
    for (delivery, answer) in deliveries.iter().zip(answers) {
        let step = format!("deliver {}", delivery.label);
        receipts.push(answer.map_err(|error| Failure::new(step, "Ok", error.to_string()))?);
    }
    let stored = all_stored(context, destination, inline_max, deliveries).await?;
    Ok(receipts.into_iter().zip(stored).collect())
}

/// Delivers one after the other, and checks that each is stored as it has to be.
pub(super) async fn arrive_in_turn(
    context: &Context<'_>,
    destination: &Destination,
    sink: &dyn Sink,
    deliveries: &[Delivery],
) -> Checked {
    for Delivery {
        label,
        envelope,
        ctx,
    } in deliveries
    {
        let step = format!("deliver {label}");
        context.step(&step);
        let answer = context.deliver_in(sink, envelope, ctx).await;
        answer.map_err(|error| Failure::new(step, "Ok", error.to_string()))?;
    }
    all_stored(context, destination, inline_max(sink), deliveries).await?;
    Ok(())
}

/// The stored messages of these deliveries, each as it has to be, and no others.
async fn all_stored(
    context: &Context<'_>,
    destination: &Destination,
    inline_max: NonZeroUsize,
    deliveries: &[Delivery],
) -> Checked<Vec<StoredMessage>> {
    let stored = context.wait_for(destination, deliveries.len()).await?;
    check_eq("stored messages", &deliveries.len(), &stored.len())?;
    let mut found = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let message = find(delivery, &stored)?;
        check_stored(context.profile(), inline_max, delivery, message)?;
        found.push(message.clone());
    }
    Ok(found)
}

/// Delivers these envelopes to a fresh destination as a dispatcher does at its first
/// attempt, and checks that each is stored as it has to be.
pub(super) async fn envelopes_arrive(
    context: &Context<'_>,
    envelopes: impl IntoIterator<Item = (&'static str, Envelope)>,
) -> Checked {
    let deliveries: Vec<Delivery> = envelopes
        .into_iter()
        .map(|(label, envelope)| Delivery::new(label, envelope, context.first_attempt()))
        .collect();
    deliveries_arrive(context, &deliveries).await
}

/// Delivers to a fresh destination, and checks that each is stored as it has to be.
pub(super) async fn deliveries_arrive(context: &Context<'_>, deliveries: &[Delivery]) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    all_arrive(context, &destination, &*sink, deliveries).await?;
    Ok(())
}

/// The stored message of a delivery.
fn find<'s>(delivery: &Delivery, stored: &'s [StoredMessage]) -> Checked<&'s StoredMessage> {
    let id = delivery.envelope.id().to_string();
    for candidate in stored {
        let message = candidate.message().map_err(|error| {
            Failure::new(
                "what arrived",
                "only messages of the wire format",
                format!("one that is none: {error}"),
            )
        })?;
        if message.id == id && message.replay_id.as_deref() == delivery.ctx.replay_id() {
            return Ok(candidate);
        }
    }
    Err(Failure::new(
        delivery.label,
        "it is stored under its id and replay",
        "it is not there",
    ))
}

/// What is stored, compared from the meaning to the byte, so that a failure says what
/// differs and never shows it.
fn check_stored(
    profile: &Profile,
    inline_max: NonZeroUsize,
    delivery: &Delivery,
    stored: &StoredMessage,
) -> Checked {
    let Delivery {
        label,
        envelope,
        ctx,
    } = delivery;
    let should = message(envelope, ctx, inline_max)?;
    let is = stored
        .message()
        .map_err(|error| Failure::new(*label, "a message", error))?;
    match (&should.content, &is.content) {
        (Content::Inline(should), Content::Inline(is)) => {
            check_bytes(&format!("the body of {label}"), should, is)?;
        }
        (should, is) => check(
            should == is,
            &format!("the body of {label}"),
            form(should),
            form(is),
        )?,
    }
    let fields = [
        ("source_id", should.source_id == is.source_id),
        ("tenant_id", should.tenant_id == is.tenant_id),
        ("received_at", should.received_at == is.received_at),
        ("content_type", should.content_type == is.content_type),
        ("size", should.size == is.size),
        ("dedupe_key", should.dedupe_key == is.dedupe_key),
        (
            "idempotency_key",
            should.shipped_idempotency_key == is.shipped_idempotency_key,
        ),
        ("headers", should.headers == is.headers),
        ("sha256", should.sha256 == is.sha256),
        ("verification", should.verification == is.verification),
        ("traceparent", should.traceparent == is.traceparent),
        ("tracestate", should.tracestate == is.tracestate),
        ("instance", should.instance == is.instance),
        ("region", should.region == is.region),
    ];
    for (field, is_equal) in fields {
        let step = format!("the field {field} of {label}");
        check(is_equal, &step, "it arrives unchanged", "another value")?;
    }
    let should = expected(profile, inline_max, envelope, ctx)?;
    check_bytes(
        &format!("the message of {label}"),
        &should.body,
        &stored.body,
    )?;
    check_attributes(label, &should.attributes, &stored.attributes)
}

fn form(content: &Content) -> String {
    match content {
        Content::Inline(_) => "inside the message".to_owned(),
        Content::Claim(_) => "by this claim".to_owned(),
    }
}

/// Fails at the first byte that differs, and shows none.
pub(super) fn check_bytes(step: &str, should: &[u8], is: &[u8]) -> Checked {
    let differs = should.iter().zip(is).position(|(a, b)| a != b);
    let place = differs.unwrap_or_else(|| should.len().min(is.len()));
    check(
        should == is,
        step,
        format!("{} bytes, unchanged", should.len()),
        format!("{} bytes, of which byte {place} differs", is.len()),
    )
}

/// The metadata is the one list of the wire format: each name once, nothing missing,
/// nothing more.
pub(super) fn check_attributes(
    label: &str,
    should: &[(String, Bytes)],
    is: &[(String, Bytes)],
) -> Checked {
    let names = |pairs: &[(String, Bytes)]| {
        let mut names: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    };
    check_eq(
        &format!("the names of the metadata of {label}"),
        &names(should),
        &names(is),
    )?;
    for (name, value) in should {
        let stored = is.iter().find(|(known, _)| known == name);
        let stored = stored.map_or(&b""[..], |(_, value)| value);
        check_bytes(&format!("the metadata {name} of {label}"), value, stored)?;
    }
    Ok(())
}
