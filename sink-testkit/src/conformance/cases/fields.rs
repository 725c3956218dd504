//! The fields of a message and the metadata beside it: each at its place, unchanged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatch_api::{
    ClaimRef, DeliveryContext, Envelope, ErrorClass, HeaderField, HeaderForwarding, Origin,
    Outcome, Verification,
};
use serde::Deserialize;

use super::carried::{
    Delivery, all_arrive, arrive_in_turn, check_bytes, deliveries_arrive, envelopes_arrive,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Failure, StoredMessage, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        fields_identity_at_its_place,
        "id, source, tenant, time and keys stand in the message and beside it"
    ),
    case!(
        fields_without_a_tenant,
        "no tenant is null, and the empty tenant is the empty tenant"
    ),
    case!(
        fields_time_of_any_size,
        "the time of capture arrives, also one before 1970 and one far ahead"
    ),
    case!(
        fields_sender_key_of_any_form,
        "the sender's key arrives as it was: with colons, spaces, of any script, empty"
    ),
    case!(
        fields_trace_context_unchanged,
        "the trace context of the hook arrives as it was, and none where there was none"
    ),
    case!(
        fields_origin_of_the_instance,
        "the publishing instance and its region arrive"
    ),
    case!(
        fields_verification_as_the_host_found_it,
        "how the hook was verified arrives, also in words of a later version"
    ),
    case!(
        fields_content_type_of_the_hook,
        "the hook's content type arrives as its sender wrote it"
    ),
    case!(
        fields_of_one_delivery_do_not_stick,
        "replay, origin, headers and trace of one delivery are those of no other"
    ),
    case!(
        metadata_is_the_one_list,
        "the metadata is the one list of the wire format, all eight pairs of it"
    ),
    case!(
        metadata_content_type_is_the_messages,
        "the content type beside the message is the message's own, whatever the hook's"
    ),
    case!(
        metadata_beyond_ascii,
        "metadata of any script arrives, or is refused where the destination takes ASCII alone"
    )
    .needs_capabilities(&[Capability::TextBeyondAscii])
    .otherwise(|context| Box::pin(metadata_beyond_ascii_refused(context))),
    case!(
        metadata_control_character_refused,
        "metadata with a character that the destination forbids is refused, never replaced"
    )
    .needs_capabilities(&[Capability::RefusesControlCharacters])
    .otherwise(|context| Box::pin(metadata_control_character_carried(context))),
    case!(
        metadata_line_break_makes_no_second_pair,
        "a line break in metadata is carried as it is or refused, and the next message arrives"
    ),
    case!(
        wire_format_golden_vectors,
        "the messages that are written down arrive as they are written down"
    ),
];

async fn fields_identity_at_its_place(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context
        .envelope_from(Some("quay-7"), "depot", "{}")
        .with_dedupe_key("mv-88");
    let id = envelope.id().to_string();
    let delivery = Delivery::new("a message", envelope, context.first_attempt());
    let pairs = all_arrive(context, &destination, &*sink, &[delivery]).await?;
    let stored = &pairs[0].1;
    for (name, value) in [
        ("ankusa_id", &*id),
        ("ankusa_source_id", "depot"),
        ("ankusa_tenant_id", "quay-7"),
        ("ankusa_message_version", "1"),
        ("ankusa_idempotency_key", "quay-7:depot:mv-88"),
        ("ankusa_dedupe_key", "mv-88"),
    ] {
        let step = format!("the metadata {name}");
        check_eq(&step, &Some(value), &stored.attribute(name))?;
    }
    Ok(())
}

async fn fields_without_a_tenant(context: &Context<'_>) -> Checked {
    let none = context.envelope_from(None, "harbor", "{}");
    let empty = context.envelope_from(Some(""), "harbor", "{}");
    let envelopes = [
        ("a message without a tenant", none.with_dedupe_key("mv-88")),
        (
            "a message of the empty tenant",
            empty.with_dedupe_key("mv-88"),
        ),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_time_of_any_size(context: &Context<'_>) -> Checked {
    let of_time = |received_at| {
        Envelope::new(context.envelope_id(), "harbor", received_at, "{}").with_tenant("quay-7")
    };
    let envelopes = [
        ("a time before 1970", of_time(-1)),
        ("the time zero", of_time(0)),
        ("the last time", of_time(i64::MAX)),
        ("the first time", of_time(i64::MIN)),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_sender_key_of_any_form(context: &Context<'_>) -> Checked {
    let keyed = |key: &str| context.envelope().with_dedupe_key(key);
    let envelopes = [
        ("a key with colons", keyed("x:y:z")),
        ("a key with spaces", keyed(" two words ")),
        ("a key with quotes", keyed(r#"{"a":"b\c"}"#)),
        ("an empty key", keyed("")),
        ("a long key", keyed(&"k".repeat(300))),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_trace_context_unchanged(context: &Context<'_>) -> Checked {
    let parent = "00-7a1c9d2e54b84f0aa3c6e1d07f92b358-c41e07a95d3b6f28-01";
    let state = Some("yard=t61,other=x@y".to_owned());
    let envelopes = [
        (
            "a traced hook",
            context.envelope().with_trace(parent, state),
        ),
        (
            "a hook without state",
            context.envelope().with_trace(parent, None),
        ),
        (
            "a hook with an odd parent",
            context.envelope().with_trace("not a trace parent", None),
        ),
        ("a hook without a trace", context.envelope()),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_origin_of_the_instance(context: &Context<'_>) -> Checked {
    let from = |region: Option<&str>| {
        let origin = Origin::new("yard-eu-2", region.map(str::to_owned));
        context.first_attempt().with_origin(origin)
    };
    let deliveries = [
        Delivery::new("an instance", context.envelope(), from(None)),
        Delivery::new(
            "an instance of a region",
            context.envelope(),
            from(Some("eu-north-1")),
        ),
        Delivery::new("no instance", context.envelope(), context.first_attempt()),
    ];
    deliveries_arrive(context, &deliveries).await
}

async fn fields_verification_as_the_host_found_it(context: &Context<'_>) -> Checked {
    let verified = |status: &str, flagged| {
        let verification = Verification::new(status, flagged);
        context.envelope().with_verification(verification)
    };
    let envelopes = [
        ("a verified hook", verified("ok", false)),
        ("a flagged hook", verified("failed", true)),
        ("a hook of a later word", verified("pending", false)),
        ("an unverified hook", context.envelope()),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_content_type_of_the_hook(context: &Context<'_>) -> Checked {
    let typed = |content_type: &str| context.envelope().with_content_type(content_type);
    let untyped = Envelope::new(context.envelope_id(), "harbor", 0, "{}").with_tenant("quay-7");
    let envelopes = [
        (
            "a type with parameters",
            typed("Text/Plain; Charset=\"UTF-8\""),
        ),
        ("a type that is none", typed("what it is")),
        ("an empty type", typed("")),
        ("no type", untyped),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn fields_of_one_delivery_do_not_stick(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let plain = |label| Delivery::new(label, context.envelope(), context.first_attempt());
    let before = plain("a delivery before it");
    let rich = context.envelope().with_dedupe_key("mv-88").with_trace(
        "00-9f24b1c07ad83e65d20c4b7f18e6a935-c41e07a95d3b6f28-01",
        Some("quay=7".to_owned()),
    );
    let ctx = context
        .first_attempt()
        .with_replay_id("replay-1")
        .with_origin(Origin::new("berth-3", Some("eu-north-1".to_owned())))
        .with_forward_headers(HeaderForwarding::Only(Default::default()));
    let deliveries = [
        before,
        Delivery::new("a replay with everything", rich, ctx),
        plain("the delivery after it"),
    ];
    arrive_in_turn(context, &destination, &*sink, &deliveries).await
}

async fn metadata_is_the_one_list(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope().with_dedupe_key("mv-88");
    let ctx = context.first_attempt().with_replay_id("rp-3");
    let delivery = Delivery::new("a replay with a key", envelope, ctx);
    let pairs = all_arrive(context, &destination, &*sink, &[delivery]).await?;
    let stored = &pairs[0].1.attributes;
    check_eq("pairs of metadata", &8, &stored.len())?;
    let promised = sink.guarantees().max_attributes;
    check(
        promised.is_none_or(|most| most >= stored.len()),
        "max_attributes",
        "room for the eight pairs",
        format!("{promised:?}"),
    )
}

async fn metadata_content_type_is_the_messages(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context.envelope().with_content_type("text/plain");
    let delivery = Delivery::new("a hook of plain text", envelope, context.first_attempt());
    let pairs = all_arrive(context, &destination, &*sink, &[delivery]).await?;
    check_eq(
        "the metadata content_type",
        &Some("application/json"),
        &pairs[0].1.attribute("content_type"),
    )
}

const KEY_OF_SCRIPTS: &str = "schl\u{fc}ssel \u{20ac} \u{1f30a}";

async fn metadata_beyond_ascii(context: &Context<'_>) -> Checked {
    let envelope = context.envelope().with_dedupe_key(KEY_OF_SCRIPTS);
    envelopes_arrive(context, [("a key of several scripts", envelope)]).await
}

async fn metadata_beyond_ascii_refused(context: &Context<'_>) -> Checked {
    let envelope = context.envelope().with_dedupe_key(KEY_OF_SCRIPTS);
    let taken = deliver_between(context, "hooks", envelope).await?;
    check(
        taken.is_none(),
        "metadata beyond ASCII",
        "it is refused",
        "it was taken",
    )
}

/// Delivers between two others, which have to arrive. Returns whether it was taken.
async fn deliver_between(
    context: &Context<'_>,
    name: &str,
    envelope: Envelope,
) -> Checked<Option<StoredMessage>> {
    let destination = context.named_destination(name).await?;
    let sink = context.build(&destination)?;
    let before = context.envelope();
    context.deliver_ok(&*sink, &before).await?;
    let answer = context.deliver(&*sink, &envelope).await;
    let after = context.envelope();
    context.deliver_ok(&*sink, &after).await?;
    let is_taken = answer.is_ok();
    if let Err(error) = answer {
        check_eq("class", &ErrorClass::Permanent, &error.class())?;
        check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
    }
    let stored = context.quiet(&destination).await?;
    check_eq(
        "stored messages",
        &(2 + usize::from(is_taken)),
        &stored.len(),
    )?;
    let id = envelope.id().to_string();
    Ok(stored
        .into_iter()
        .find(|message| message.envelope_id() == id))
}

async fn metadata_control_character_refused(context: &Context<'_>) -> Checked {
    for (name, key) in [
        ("hooks-start", "a\u{1}b"),
        ("hooks-zero", "a\0b"),
        ("hooks-unit", "\u{1f}"),
    ] {
        let envelope = context.envelope().with_dedupe_key(key);
        let taken = deliver_between(context, name, envelope).await?;
        check(
            taken.is_none(),
            "metadata with a control character",
            "it is refused",
            "it was taken",
        )?;
    }
    Ok(())
}

async fn metadata_control_character_carried(context: &Context<'_>) -> Checked {
    let envelopes = [
        (
            "U+0001 in metadata",
            context.envelope().with_dedupe_key("a\u{1}b"),
        ),
        (
            "U+001F in metadata",
            context.envelope().with_dedupe_key("\u{1f}"),
        ),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn metadata_line_break_makes_no_second_pair(context: &Context<'_>) -> Checked {
    let key = "a\r\nankusa_tenant_id: forged";
    let envelope = context.envelope().with_dedupe_key(key);
    let Some(stored) = deliver_between(context, "hooks", envelope).await? else {
        return Ok(());
    };
    check(
        stored.attribute("ankusa_dedupe_key") == Some(key),
        "metadata with a line break",
        "it is refused, or carried as it was",
        "another value",
    )?;
    let tenant = stored.attribute("ankusa_tenant_id");
    check_eq("the tenant beside it", &Some("quay-7"), &tenant)
}

/// Deliveries and their messages, written down in the order of their bytes. The messages
/// were written by hand and not by the writer that they hold to account.
const VECTORS: &str = include_str!("golden.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    id: String,
    source_id: String,
    tenant_id: Option<String>,
    received_at: i64,
    content_type: Option<String>,
    dedupe_key: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body_base64: String,
    verification: Option<(String, bool)>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    replay_id: Option<String>,
    claim: Option<String>,
    origin: Option<(String, Option<String>)>,
    message: String,
}

impl Vector {
    fn envelope(&self) -> Checked<Envelope> {
        let body = STANDARD.decode(&self.body_base64).map_err(malformed)?;
        let id = self.id.parse().map_err(malformed)?;
        let headers = self.headers.iter();
        let mut envelope = Envelope::new(id, &*self.source_id, self.received_at, body)
            .with_headers(headers.map(|(name, value)| HeaderField::new(name, value)));
        if let Some(tenant) = &self.tenant_id {
            envelope = envelope.with_tenant(tenant);
        }
        if let Some(content_type) = &self.content_type {
            envelope = envelope.with_content_type(content_type);
        }
        if let Some(key) = &self.dedupe_key {
            envelope = envelope.with_dedupe_key(key);
        }
        if let Some((status, flagged)) = &self.verification {
            envelope = envelope.with_verification(Verification::new(status, *flagged));
        }
        if let Some(traceparent) = &self.traceparent {
            envelope = envelope.with_trace(traceparent, self.tracestate.clone());
        }
        Ok(envelope)
    }

    fn ctx(&self, context: &Context<'_>) -> Checked<DeliveryContext> {
        let mut ctx = context.first_attempt();
        if let Some(replay_id) = &self.replay_id {
            ctx = ctx.with_replay_id(replay_id);
        }
        if let Some(claim) = &self.claim {
            let claim: ClaimRef = claim.parse().map_err(malformed)?;
            ctx = ctx.with_claim(claim);
        }
        if let Some((instance, region)) = &self.origin {
            ctx = ctx.with_origin(Origin::new(instance, region.clone()));
        }
        Ok(ctx)
    }
}

fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::of_kit("read a vector", error.to_string())
}

async fn wire_format_golden_vectors(context: &Context<'_>) -> Checked {
    let mut vectors: Vec<Vector> = serde_json::from_str(VECTORS).map_err(malformed)?;
    if !context.profile().has(Capability::TextBeyondAscii) {
        let keys = |vector: &Vector| vector.dedupe_key.clone().unwrap_or_default();
        vectors.retain(|vector| keys(vector).is_ascii());
    }
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "inline_max_bytes", 64)?;
    let mut running = Vec::new();
    for vector in &vectors {
        running.push((vector.envelope()?, vector.ctx(context)?));
    }
    let answers = running
        .iter()
        .map(|(envelope, ctx)| context.deliver_in(&*sink, envelope, ctx));
    let answers = futures_util::future::join_all(answers).await;
    for (vector, answer) in vectors.iter().zip(answers) {
        let step = format!("deliver the vector {}", vector.name);
        answer.map_err(|error| Failure::new(step, "Ok", error.to_string()))?;
    }
    let stored = context.wait_for(&destination, vectors.len()).await?;
    for vector in &vectors {
        let same = stored.iter().find(|message| {
            message.attribute("ankusa_id") == Some(&*vector.id)
                && message.attribute("ankusa_replay_id") == vector.replay_id.as_deref()
        });
        let is = same.map_or(&b""[..], |message| &message.body);
        let step = format!("the bytes of the vector {}", vector.name);
        check_bytes(&step, vector.message.as_bytes(), is)?;
    }
    Ok(())
}
