//! Registration: a sink that a host built by its kind is what its plugin, its guarantees
//! and its description say, in routes and on every thread.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Admission, BuiltSink, DeliveryContext, Description, Envelope, HeaderForwarding, NamedSink,
    Receipt, RouteTable, Sink, SinkError, TenantRoutes,
};
use serde_json::{Map, Value};
use tokio::runtime::Builder;
use tokio::time::Instant;

use super::options::of_schema;
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Clock, Context, Destination, Duplicates, Failure, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        registry_kind_is_a_word,
        "the kind is one lower-case word, and the summary one line"
    ),
    case!(
        registry_equal_options_have_one_key,
        "equal options are one sink, whatever the order of their keys, and other options another"
    ),
    case!(
        registry_sink_usable_from_every_thread,
        "a sink delivers on the thread and the runtime of whoever calls it"
    ),
    case!(
        registry_instances_isolated,
        "two sinks of one kind keep to their own options"
    )
    .needs_capabilities(&[Capability::MessageLimit]),
    case!(
        registry_sink_of_a_drained_ones_options_delivers,
        "a drained sink takes nothing more, and one built anew of its options does"
    ),
    case!(
        routes_deliver_through_a_lease,
        "a sink delivers from a route of source and tenant"
    ),
    case!(
        routes_keep_a_sink_of_equal_options,
        "new routes with a sink of equal options keep the one in use"
    ),
    case!(
        declared_guarantees_match_the_profile,
        "what the sink promises is what its profile declares"
    ),
    case!(
        declared_admission_matches_the_profile,
        "a sink that bounds itself says so, and no other"
    ),
    case!(
        describe_matches_reality,
        "the description names protocol, server and destination, and no secret"
    )
    .needs_capabilities(&[Capability::Description])
    .otherwise(|context| Box::pin(describe_says_nothing(context))),
    case!(
        describe_tells_destinations_apart,
        "two destinations have two descriptions, and one destination one"
    )
    .needs_capabilities(&[Capability::Description]),
];

fn built(context: &Context<'_>, options: &Value) -> Checked<BuiltSink> {
    context.step("build the sink");
    context
        .build_or_problems(options)
        .map_err(|problems| Failure::new("build", "a sink", problems.to_string()))
}

async fn registry_kind_is_a_word(context: &Context<'_>) -> Checked {
    let plugin = context.fixture().plugin();
    let is_word = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
    };
    let seen = format!("{:?}", plugin.kind);
    check(is_word(plugin.kind), "the kind", "a lower-case word", seen)?;
    let summary = plugin.summary;
    check(
        !summary.trim().is_empty() && !summary.contains(char::is_control),
        "the summary",
        "one line",
        format!("{summary:?}"),
    )
}

async fn registry_equal_options_have_one_key(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let options = context.fixture().options(&destination);
    let first = built(context, &options)?.key;
    let members = options.as_object().into_iter().flatten();
    let reversed: Map<String, Value> = members
        .rev()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let again = built(context, &Value::Object(reversed))?.key;
    check(first == again, "equal options", "one key", "two keys")?;
    let mut others = Vec::new();
    let elsewhere = context.named_destination("depot").await?;
    others.push(context.fixture().options(&elsewhere));
    let mut other = options.clone();
    other["timeout_ms"] = 4_321.into();
    others.push(other);
    if let Some((other, _)) = context.fixture().other_credentials(&destination) {
        others.push(other);
    }
    for other in &others {
        let key = built(context, other)?.key;
        check(key != first, "other options", "another key", "the same key")?;
    }
    Ok(())
}

fn deliver_elsewhere(
    sink: Arc<dyn Sink>,
    envelopes: Vec<Envelope>,
    is_paused: bool,
    settle: Duration,
) -> std::io::Result<Vec<(Envelope, Result<Receipt, SinkError>)>> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(is_paused)
        .build()?;
    let ctx = DeliveryContext::direct();
    let answers = runtime.block_on(async {
        let mut answers = Vec::new();
        for envelope in envelopes {
            let answer = sink.deliver(&envelope, &ctx).await;
            answers.push((envelope, answer));
        }
        tokio::time::sleep(settle).await;
        answers
    });
    drop(sink);
    runtime.shutdown_background();
    Ok(answers)
}

async fn registry_sink_usable_from_every_thread(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let is_paused = context.profile().clock == Clock::Paused;
    // What nobody waits for lives as long as its caller's runtime.
    let settle = match context.profile().has(Capability::Durable) {
        true => Duration::ZERO,
        false => context.profile().margin(),
    };
    let sink = context.build(&destination)?;
    // One after the other: what the first runtime leaves behind, such as a connection, must
    // not be in the way of the next.
    for _ in 0..2 {
        context.step("deliver from another thread");
        let envelopes = vec![context.envelope(), context.envelope()];
        let sink = Arc::clone(&sink);
        let thread = tokio::task::spawn_blocking(move || {
            deliver_elsewhere(sink, envelopes, is_paused, settle)
        });
        let ended = thread.await;
        let ended = ended.map_err(|_| Failure::new("another thread", "an end", "a panic"))?;
        let answers =
            ended.map_err(|error| Failure::of_kit("build a runtime", error.to_string()))?;
        for (envelope, answer) in answers {
            context.record(&envelope, &answer);
            let code = answer.err().map(|error| error.code().to_owned());
            check_eq("deliver on another thread", &None, &code)?;
        }
    }
    let here = context.envelope();
    context.deliver_ok(&*sink, &here).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn registry_instances_isolated(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let roomy = context.build(&destination)?;
    let tight = context.build_set(&destination, "max_message_bytes", 2_000)?;
    let large = || context.envelope_of(vec![b'x'; 2_000]);
    let refused = large();
    context.deliver_err(&*tight, &refused).await?;
    let taken = large();
    context.deliver_ok(&*roomy, &taken).await?;
    let refused = large();
    context.deliver_err(&*tight, &refused).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn registry_sink_of_a_drained_ones_options_delivers(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let drained = context.build(&destination)?;
    let other = context.build(&destination)?;
    let first = context.envelope();
    context.deliver_ok(&*drained, &first).await?;
    context.drain(&*drained).await?;
    let late = context.envelope();
    let error = context.deliver_err(&*drained, &late).await?;
    check_eq("the code of a drained sink", &"SinkClosed", &error.code())?;
    let beside = context.envelope();
    context.deliver_ok(&*other, &beside).await?;
    let anew = context.build(&destination)?;
    let after = context.envelope();
    context.deliver_ok(&*anew, &after).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

fn table(context: &Context<'_>, destination: &Destination) -> Checked<RouteTable> {
    let options = context.fixture().options(destination);
    let named = NamedSink::new("main", built(context, &options)?);
    let own = NamedSink::new("own", built(context, &options)?);
    Ok(RouteTable::new()
        .with_source("harbor", [named], HeaderForwarding::Default)
        .with_tenant("quay-8", [own]))
}

async fn deliver_by_route(context: &Context<'_>, routes: &TenantRoutes, tenant: &str) -> Checked {
    let envelope = context.envelope_from(Some(tenant), "harbor", "{}");
    let selection = routes.select("harbor", Some(tenant));
    let selection = selection.ok_or_else(|| Failure::new("select a route", "one", "none"))?;
    check_eq("sinks of the route", &1, &selection.leases.len())?;
    let ctx = context
        .first_attempt()
        .with_forward_headers(Arc::clone(&selection.forward_headers));
    for lease in &selection.leases {
        let answer = context.deliver_in(&**lease, &envelope, &ctx).await;
        answer.map_err(|error| Failure::new("deliver by a route", "Ok", error.to_string()))?;
    }
    Ok(())
}

async fn routes_deliver_through_a_lease(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let routes = TenantRoutes::new(table(context, &destination)?);
    for tenant in ["quay-7", "quay-8", "quay-7"] {
        deliver_by_route(context, &routes, tenant).await?;
    }
    let patience = context.profile().patience();
    let drained = routes.drain(Instant::now() + patience);
    let report = context
        .within(patience * 2, "drain the routes", drained)
        .await?;
    check_eq("unanswered deliveries", &0, &report.total().unanswered)?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn routes_keep_a_sink_of_equal_options(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let routes = TenantRoutes::new(table(context, &destination)?);
    deliver_by_route(context, &routes, "quay-7").await?;
    let patience = context.profile().patience();
    let swapped = routes.swap(table(context, &destination)?, Instant::now() + patience);
    let report = context
        .within(patience * 2, "swap the routes", swapped)
        .await?;
    check_eq(
        "sinks drained by a swap to equal options",
        &0,
        &report.drained.len(),
    )?;
    deliver_by_route(context, &routes, "quay-7").await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn declared_guarantees_match_the_profile(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    check_eq(
        "guarantees",
        &context.profile().guarantees,
        &sink.guarantees(),
    )
}

async fn declared_admission_matches_the_profile(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let profile = context.profile();
    let bounds_itself = profile.has(Capability::Ceilings) || profile.has(Capability::OwnBounds);
    let declared = match bounds_itself {
        true => Admission::SelfLimited,
        false => Admission::HostLimited,
    };
    check_eq("admission", &declared, &sink.admission())
}

async fn described(context: &Context<'_>, destination: &Destination) -> Checked<Description> {
    let sink = context.build(destination)?;
    sink.describe()
        .ok_or_else(|| Failure::new("describe", "a description", "none"))
}

async fn describe_matches_reality(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let description = described(context, &destination).await?;
    for (field, text) in [
        ("protocol", &description.protocol),
        ("server", &description.server),
    ] {
        check(!text.is_empty(), field, "a text", "nothing")?;
    }
    check(
        description.address.contains(destination.name()),
        "the address",
        "the destination's name within it",
        "another name",
    )?;
    check(
        !description.server.contains('@'),
        "the server",
        "one without credentials",
        "one with an @",
    )?;
    let options = context.fixture().options(&destination);
    let secret_keys = of_schema(&(context.fixture().plugin().schema)());
    let secret_keys = secret_keys.iter().filter(|option| option.is_secret);
    let marked = secret_keys
        .filter_map(|option| options.get(option.path()))
        .filter_map(Value::as_str)
        .map(str::to_owned);
    let shown = format!("{description:?}");
    for secret in context
        .fixture()
        .secrets(&destination)
        .into_iter()
        .chain(marked)
    {
        check(
            !shown.contains(&*secret),
            "the description",
            "no secret",
            "one",
        )?;
    }
    Ok(())
}

async fn describe_says_nothing(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    check_eq("an undeclared description", &None, &sink.describe())
}

async fn describe_tells_destinations_apart(context: &Context<'_>) -> Checked {
    let one = context.named_destination("hooks").await?;
    let other = context.named_destination("hooks-dead").await?;
    let first = described(context, &one).await?;
    let second = described(context, &other).await?;
    check(
        first != second,
        "two destinations",
        "two descriptions",
        "one",
    )?;
    let again = described(context, &one).await?;
    check_eq("one destination", &first, &again)
}
