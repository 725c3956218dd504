//! Error classes: what a failure says about what to do next.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    DeliveryContext, ErrorChain, ErrorClass, HeaderField, Outcome, RETRY_AFTER_CEILING, SinkError,
    deliver_contained,
};
use serde_json::Value;
use tokio::time::Instant;

use super::steps::{
    check_class, deliver_control, deliver_recovered, ends_by, failed, replace_credentials, rows,
    sourced,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, ErrorRow, Failure, Fault, FaultKind,
    Unreachable, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        error_class_table,
        "every fault of the error table has its class and its outcome"
    )
    .needs_faults(&[FaultKind::Row]),
    case!(
        sink_recovers_after_every_error,
        "after every fault of the error table the same message is delivered without a rebuild"
    )
    .needs_faults(&[FaultKind::Row]),
    case!(
        permanent_error_sends_once,
        "a message that is refused for good is sent once"
    )
    .needs_faults(&[FaultKind::Row, FaultKind::Requests]),
    case!(
        internal_retries_bounded_and_declared,
        "a delivery to a destination that always fails takes as many requests as declared"
    )
    .needs_faults(&[FaultKind::Row, FaultKind::Requests]),
    case!(
        a_failed_delivery_is_not_repeated_later,
        "what was answered with an error is not sent again behind its caller's back"
    )
    .needs_faults(&[FaultKind::Row, FaultKind::Requests]),
    case!(
        unknown_backend_error_is_transient,
        "a failure that nobody has seen before loses no message"
    )
    .needs_faults(&[FaultKind::UnknownError]),
    case!(
        missing_destination_is_config_error_on_deliver,
        "a missing destination is a fault of the configuration that names it"
    )
    .needs_capabilities(&[Capability::Durable]),
    case!(
        missing_destination_is_not_created,
        "a delivery to a missing destination creates nothing"
    ),
    case!(
        access_denied_is_config_error,
        "credentials that may not deliver are a fault of the configuration"
    )
    .needs_capabilities(&[Capability::ForbiddenDestination]),
    case!(
        a_wrong_secret_is_config_error,
        "a secret that the destination does not accept is a fault of the configuration"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        missing_or_expired_credentials,
        "without credentials, or with those that ended, a delivery fails in time with what loses no message, and succeeds when there are others"
    )
    .needs_capabilities(&[Capability::CredentialSource]),
    case!(
        network_failures_are_transient,
        "a connection that ends before or after the request was carried out is an error that loses no message"
    )
    .needs_faults(&[FaultKind::LoseRequest, FaultKind::LoseReply]),
    case!(
        an_unreachable_server_is_transient_within_the_timeout,
        "a server that cannot be reached, in whatever way, is an error in time that loses no message"
    )
    .needs_capabilities(&[Capability::Unreachable, Capability::Durable]),
    case!(
        error_carries_context_without_payload,
        "no error, printed in whatever way, holds a body, a header's value or a secret"
    )
    .needs_faults(&[FaultKind::Row]),
    case!(
        error_codes_are_stable_words,
        "an error's code is one short word, and the same for the same fault"
    )
    .needs_faults(&[FaultKind::Row]),
    case!(
        an_envelope_never_makes_the_sink_panic,
        "whatever an envelope holds, the sink answers, and goes on"
    ),
];

async fn error_class_table(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for row in rows(context)? {
        let step = format!("row {}", row.name);
        context.play(&destination, Fault::Row(row.name.clone()))?;
        let error = context.deliver_err(&*sink, &context.envelope()).await?;
        check_class(&step, row.class, &error)?;
        check_eq(&step, &row.outcome, &error.outcome())?;
        if let ErrorClass::RetryAfter(pause) = error.class() {
            check(
                pause <= RETRY_AFTER_CEILING,
                &step,
                "a pause of at most a day",
                format!("{pause:?}"),
            )?;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn sink_recovers_after_every_error(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for row in rows(context)? {
        context.play(&destination, Fault::Row(row.name.clone()))?;
        let envelope = context.envelope();
        context.deliver_err(&*sink, &envelope).await?;
        context.step(format!("deliver after {}", row.name));
        let again = context.deliver(&*sink, &envelope).await;
        again.map_err(|error| {
            let step = format!("the delivery after {}", row.name);
            Failure::new(step, "Ok", error.to_string())
        })?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// How many requests one delivery takes while each fails like this.
async fn requests_of_one_failure(
    context: &Context<'_>,
    name: &str,
    row: &ErrorRow,
) -> Checked<usize> {
    let destination = context.named_destination(name).await?;
    let sink = context.build(&destination)?;
    context.play_always(&destination, Fault::Row(row.name.clone()))?;
    context.deliver_err(&*sink, &context.envelope()).await?;
    Ok(context.faults()?.requests(&destination).len())
}

async fn permanent_error_sends_once(context: &Context<'_>) -> Checked {
    context.plan("a permanent row");
    let rows = rows(context)?.iter();
    let permanent = rows.filter(|row| row.class == ErrorClass::Permanent);
    for (index, row) in permanent.enumerate() {
        let name = "refused-".to_owned() + &"i".repeat(index + 1);
        let requests = requests_of_one_failure(context, &name, row).await?;
        check_eq(&format!("requests at {}", row.name), &1, &requests)?;
        context.happened("a permanent row");
    }
    Ok(())
}

async fn internal_retries_bounded_and_declared(context: &Context<'_>) -> Checked {
    context.plan("a row that may be retried");
    let declared = context.profile().requests_per_delivery;
    let retryable = rows(context)?.iter().filter(|row| row.class.is_retryable());
    for (index, row) in retryable.enumerate() {
        let name = "failing-".to_owned() + &"i".repeat(index + 1);
        let requests = requests_of_one_failure(context, &name, row).await?;
        check_eq(&format!("requests at {}", row.name), &declared, &requests)?;
        context.happened("a row that may be retried");
    }
    Ok(())
}

async fn a_failed_delivery_is_not_repeated_later(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for row in rows(context)? {
        context.play(&destination, Fault::Row(row.name.clone()))?;
        context.deliver_err(&*sink, &context.envelope()).await?;
    }
    let before = context.faults()?.requests(&destination).len();
    let stored = context.quiet(&destination).await?;
    check_eq("messages after failures", &0, &stored.len())?;
    // The sentinel of the watch is a request of its own.
    let after = context.faults()?.requests(&destination).len();
    check_eq("requests after the answers", &(before + 1), &after)
}

async fn unknown_backend_error_is_transient(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for status in [400, 403, 404, 500, 503] {
        let step = format!("an unknown error of status {status}");
        context.play(&destination, Fault::UnknownError(status))?;
        let envelope = context.envelope();
        let error = context.deliver_err(&*sink, &envelope).await?;
        check(
            error.class().is_retryable(),
            &step,
            "a class that is retried",
            error.class().as_str(),
        )?;
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn missing_destination_is_config_error_on_deliver(context: &Context<'_>) -> Checked {
    let missing = context.fixture().missing();
    let sink = context.build(&missing)?;
    let patience = context.profile().patience();
    for ctx in [context.first_attempt(), DeliveryContext::direct()] {
        let envelope = context.envelope();
        let delivery = context.deliver_in(&*sink, &envelope, &ctx);
        let answer = context.within(patience, "the answer", delivery).await?;
        let error = failed("a missing destination", answer)?;
        check_class("class", ErrorClass::Config, &error)?;
        check_eq("outcome", &Outcome::NotStored, &error.outcome())?;
        check(
            ErrorChain(&error).to_string().contains(missing.name()),
            "the text",
            "the destination's name",
            error.to_string(),
        )?;
    }
    Ok(())
}

async fn missing_destination_is_not_created(context: &Context<'_>) -> Checked {
    context.destination().await?;
    let names = |listed: Result<Vec<String>, _>| {
        listed.map_err(|error: crate::conformance::FixtureError| {
            Failure::of_kit("list the destinations", error.to_string())
        })
    };
    let before = names(context.fixture().destinations().await)?;
    let missing = context.fixture().missing();
    let sink = context.build(&missing)?;
    let answer = context.deliver(&*sink, &context.envelope()).await;
    // A sink that does not wait for its destination cannot know.
    let may_be_taken = !context.profile().has(Capability::Durable);
    check(
        answer.is_err() || may_be_taken,
        "a missing destination",
        "an error",
        "Ok",
    )?;
    context.drain(&*sink).await?;
    let after = names(context.fixture().destinations().await)?;
    check_eq("destinations", &before, &after)
}

async fn is_refused_as_config(context: &Context<'_>, options: Value) -> Checked {
    let sink = context.build_with(options)?;
    let patience = context.profile().patience();
    let envelope = context.envelope();
    let delivery = context.deliver(&*sink, &envelope);
    let answer = context.within(patience, "the answer", delivery).await?;
    let error = failed("the refusal", answer)?;
    check_class("class", ErrorClass::Config, &error)?;
    check_eq("outcome", &Outcome::NotStored, &error.outcome())
}

async fn access_denied_is_config_error(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let options = context.fixture().forbidden(&destination);
    let options =
        options.ok_or_else(|| Failure::of_kit("forbidden", "the fixture has no such options"))?;
    is_refused_as_config(context, options).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_wrong_secret_is_config_error(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let mut options = context.fixture().options(&destination);
    let mut replaced = 0;
    for secret in context.fixture().secrets(&destination) {
        replaced += replace(&mut options, &secret);
    }
    if replaced == 0 {
        let text = "no option holds a secret of the fixture";
        return Err(Failure::of_kit("a wrong secret", text));
    }
    is_refused_as_config(context, options).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Nothing is stored, and the message is not given up.
fn check_recoverable(step: &str, error: &SinkError) -> Checked {
    check(
        error.class() != ErrorClass::Permanent,
        step,
        "config or a class that is retried",
        error.class().as_str(),
    )?;
    check_eq(step, &Outcome::NotStored, &error.outcome())
}

async fn missing_or_expired_credentials(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let taken = context.fixture().take_credentials().await;
    taken.map_err(|error| Failure::of_kit("take the credentials", error.to_string()))?;
    let sink = sourced(context, &destination)?;
    let step = "a delivery without credentials";
    let envelope = context.envelope();
    let delivery = context.deliver(&*sink, &envelope);
    let answer = ends_by(context, step, context.profile().timeout, delivery).await?;
    check_recoverable(step, &failed(step, answer)?)?;
    // The first are missed, the second end under a sink that uses them.
    for step in [
        "a delivery with credentials",
        "a delivery with later credentials",
    ] {
        replace_credentials(context).await?;
        let began = Instant::now();
        loop {
            let envelope = context.envelope();
            let delivery = context.deliver(&*sink, &envelope);
            match ends_by(context, step, context.profile().timeout, delivery).await? {
                Ok(_) => break,
                Err(error) => check_recoverable(step, &error)?,
            }
            let is_in_time = began.elapsed() < context.profile().patience();
            check(is_in_time, step, "Ok in time", "errors alone")?;
            // As a dispatcher does between attempts.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Turns a secret around wherever it is, and says how often it was there.
fn replace(options: &mut Value, secret: &str) -> usize {
    match options {
        Value::String(text) if text.contains(secret) => {
            let other: String = secret.chars().rev().collect();
            *text = text.replace(secret, &other);
            1
        }
        Value::Object(map) => map.values_mut().map(|value| replace(value, secret)).sum(),
        Value::Array(list) => list.iter_mut().map(|value| replace(value, secret)).sum(),
        _ => 0,
    }
}

async fn network_failures_are_transient(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for (step, fault) in [
        ("a request is lost", Fault::LoseRequest),
        ("a reply is lost", Fault::LoseReply),
    ] {
        context.play(&destination, fault)?;
        let error = context.deliver_err(&*sink, &context.envelope()).await?;
        check_class(step, ErrorClass::Transient, &error)?;
        let step = "the delivery after it";
        deliver_recovered(context, &*sink, step, || context.envelope()).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

/// Every way not to reach a server, all at once: each takes the sink's whole time at most.
async fn an_unreachable_server_is_transient_within_the_timeout(context: &Context<'_>) -> Checked {
    // Room for a busy machine to connect where it can, and a request to leave.
    const LIMIT: Duration = Duration::from_secs(1);
    let destination = context.destination().await?;
    let all = context.fixture().unreachable(&destination);
    let all = all.map_err(|error| Failure::of_kit("unreachable servers", error.to_string()))?;
    if all.is_empty() {
        let text = "the fixture knows no server that cannot be reached";
        return Err(Failure::of_kit("unreachable servers", text));
    }
    let mut running = Vec::new();
    for Unreachable {
        what,
        mut options,
        outcome,
        ..
    } in all
    {
        options["timeout_ms"] = (LIMIT.as_millis() as u64).into();
        context.step(format!("build a sink of {what}"));
        let sink = context.try_build(&options);
        let sink = sink.map_err(|text| Failure::new(what, "a sink is built", text))?;
        for ctx in [context.first_attempt(), DeliveryContext::direct()] {
            let sink = Arc::clone(&sink);
            running.push(async move {
                let envelope = context.envelope();
                let delivery = context.deliver_in(&*sink, &envelope, &ctx);
                let error = failed(what, ends_by(context, what, LIMIT, delivery).await?)?;
                check_class(what, ErrorClass::Transient, &error)?;
                check_eq(what, &outcome, &error.outcome())
            });
        }
    }
    for answered in futures_util::future::join_all(running).await {
        answered?;
    }
    let stored = context.quiet(&destination).await?;
    check_eq("stored messages", &0, &stored.len())
}

/// Everything that an error can be printed as.
fn printed(error: &SinkError) -> String {
    let mut text = format!("{error} {error:?} {error:#?} {}", ErrorChain(error));
    let mut next = error.source();
    while let Some(source) = next {
        text += &format!(" {source} {source:?}");
        next = source.source();
    }
    text
}

async fn error_carries_context_without_payload(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let secrets = context.fixture().secrets(&destination);
    for row in rows(context)? {
        context.play(&destination, Fault::Row(row.name.clone()))?;
        let envelope = context
            .envelope_of("cargo-9c1f-marker")
            .with_headers([HeaderField::new("X-Harbor-Seal", "seal-77d0-marker")]);
        let error = context.deliver_err(&*sink, &envelope).await?;
        let text = printed(&error);
        let encoded = "Y2FyZ28tOWMxZi1tYXJrZXI";
        for (what, marker) in [
            ("the body", "cargo-9c1f-marker"),
            ("the body in base64", encoded),
            ("a header's value", "seal-77d0-marker"),
        ] {
            let step = format!("the error of {}", row.name);
            let is_there = text.contains(marker);
            check(!is_there, &step, "no payload", format!("{what} is in it"))?;
        }
        let has_secret = secrets.iter().any(|secret| text.contains(&**secret));
        check(!has_secret, "the error", "no secret", "a secret is in it")?;
        check(
            !error.text().trim().is_empty(),
            "the error",
            "a text",
            "none",
        )?;
    }
    Ok(())
}

async fn error_codes_are_stable_words(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for row in rows(context)? {
        let mut codes = Vec::new();
        for _ in 0..2 {
            context.play(&destination, Fault::Row(row.name.clone()))?;
            let error = context.deliver_err(&*sink, &context.envelope()).await?;
            codes.push(error.code().to_owned());
        }
        let step = format!("the code of {}", row.name);
        check_eq(&step, &codes[0], &codes[1])?;
        let is_word = (1..=64).contains(&codes[0].len())
            && codes[0].bytes().all(|byte| byte.is_ascii_alphanumeric());
        check(
            is_word,
            &step,
            "one word of at most 64 letters and digits",
            "another text",
        )?;
    }
    Ok(())
}

async fn an_envelope_never_makes_the_sink_panic(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let long = "x".repeat(300);
    let every_byte: Vec<u8> = (0..=255).collect();
    let odd = [
        context.envelope_of(Vec::new()),
        context.envelope_of(every_byte),
        context.envelope_from(None, "", "x"),
        context.envelope_from(Some(""), "\u{0}", "x"),
        context.envelope_from(Some(&long), &long, "x"),
        context.envelope_from(Some("κ\u{ffff}"), "\u{1f6a2} \n", "x"),
        context.envelope().with_content_type("\r\n\u{fffe}"),
        context.envelope().with_dedupe_key("\u{7f}\u{85}"),
        context.envelope().with_request("", "/\u{0}\u{d7ff}"),
        context
            .envelope()
            .with_headers((0..60).map(|index| HeaderField::new(format!("\u{e9} {index}"), ""))),
    ];
    let patience = context.profile().patience();
    for (index, envelope) in odd.iter().enumerate() {
        let step = format!("odd envelope {index}");
        let ctx = context.first_attempt().with_replay_id("\u{1}");
        for ctx in [context.first_attempt(), ctx, DeliveryContext::direct()] {
            let delivery = deliver_contained(&*sink, envelope, &ctx);
            let answer = context.within(patience, &step, delivery).await?;
            let has_panicked = answer.is_err_and(|error| error.code() == "SinkPanicked");
            check(!has_panicked, &step, "an answer", "a panic")?;
        }
    }
    deliver_control(context, &*sink, "the delivery after them").await?;
    Ok(())
}
