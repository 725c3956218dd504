//! Replies: throttles, time limits, and what is not the destination's own word.

use std::time::{Duration, SystemTime};

use dispatch_api::{DeliveryContext, ErrorClass, RETRY_AFTER_CEILING, deliver_contained};
use tokio::time::Instant;

use super::steps::{
    check_class, check_unknown, deliver_control, deliver_recovered, ends_by, failed, find, slack,
    succeeded,
};
use crate::conformance::case::case;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, Failure, Fault, FaultKind, Garbage, Hold,
    check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        throttle_maps_to_retry_after,
        "a throttle asks for a pause, and the message is delivered after it"
    )
    .needs_faults(&[FaultKind::Throttle]),
    case!(
        retry_after_hint_parsed_in_all_forms,
        "seconds, whole or not, and dates of all three grammars are the pause"
    )
    .needs_faults(&[FaultKind::ThrottleHint]),
    case!(
        retry_after_hint_hostile_values_clamped,
        "whatever a hint says, the pause is between nothing and a day"
    )
    .needs_faults(&[FaultKind::ThrottleHint]),
    case!(
        deadline_bounds_deliver,
        "the host's deadline ends a delivery that gets no reply, and the sink stays usable"
    )
    .needs_faults(&[FaultKind::Silence]),
    case!(
        timeout_bounds_deliver,
        "without a deadline of the host the sink's own time limit ends a delivery"
    )
    .needs_faults(&[FaultKind::Silence]),
    case!(
        garbage_success_reply_is_error,
        "a success that is not to be understood leaves the outcome unknown"
    )
    .needs_faults(&[FaultKind::Garbage]),
    case!(
        a_reply_without_an_id_invents_none,
        "a receipt never names an id that the destination did not"
    )
    .needs_faults(&[FaultKind::Garbage]),
    case!(
        non_protocol_error_body_is_transient,
        "an error of something in between loses no message"
    )
    .needs_faults(&[FaultKind::ForeignError]),
    case!(
        a_foreign_page_is_not_quoted,
        "what something in between wrote is in no error"
    )
    .needs_faults(&[FaultKind::ForeignError]),
    case!(
        redirect_is_reported_not_followed,
        "a host that the reply points to sees no request"
    )
    .needs_faults(&[FaultKind::Redirect]),
    case!(
        a_late_reply_answers_nobody_else,
        "a reply that comes after its delivery gave up is not taken for the next one's"
    )
    .needs_capabilities(&[Capability::Receipt])
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        a_reply_never_makes_the_sink_panic,
        "whatever a reply holds, the sink answers, and goes on"
    )
    .needs_faults(&[FaultKind::Garbage, FaultKind::ForeignError]),
];

async fn throttle_maps_to_retry_after(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play(&destination, Fault::Throttle(None))?;
    let envelope = context.envelope();
    let error = context.deliver_err(&*sink, &envelope).await?;
    let pause = pause_of("a throttle", error.class())?;
    check(
        pause <= Duration::from_secs(60),
        "a throttle without a hint",
        "a pause of at most a minute",
        format!("{pause:?}"),
    )?;
    context.deliver_ok(&*sink, &envelope).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

fn pause_of(step: &str, class: ErrorClass) -> Checked<Duration> {
    match class {
        ErrorClass::RetryAfter(pause) => Ok(pause),
        other => Err(Failure::new(step, "retry_after", other.as_str())),
    }
}

/// The three ways in which HTTP writes a moment.
fn dates(moment: SystemTime) -> Checked<[String; 3]> {
    let preferred = httpdate::fmt_http_date(moment);
    let parts: Vec<&str> = preferred.split([' ', ',']).collect();
    let [weekday, _, day, month, year, time, zone] = parts[..] else {
        return Err(Failure::of_kit("a date", "it is written otherwise"));
    };
    let long = match weekday {
        "Tue" => "Tuesday".to_owned(),
        "Wed" => "Wednesday".to_owned(),
        "Thu" => "Thursday".to_owned(),
        "Sat" => "Saturday".to_owned(),
        other => format!("{other}day"),
    };
    let obsolete = format!("{long}, {day}-{month}-{} {time} {zone}", &year[2..]);
    let space_padded = day.trim_start_matches('0');
    let asctime = format!("{weekday} {month} {space_padded:>2} {time} {year}");
    Ok([preferred, obsolete, asctime])
}

async fn retry_after_hint_parsed_in_all_forms(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let in_90_s = context.fixture().services().now() + Duration::from_secs(90);
    let exact = [
        ("7", Duration::from_secs(7)),
        ("0", Duration::ZERO),
        ("2.5", Duration::from_millis(2_500)),
    ];
    let mut hints: Vec<(String, Duration, Duration)> = exact
        .iter()
        .map(|(hint, pause)| ((*hint).to_owned(), *pause, *pause))
        .collect();
    // A date has whole seconds, and time passes until it is read.
    hints.extend(
        dates(in_90_s)?.map(|date| (date, Duration::from_secs(60), Duration::from_secs(90))),
    );
    for (hint, least, most) in hints {
        let step = format!("the hint `{hint}`");
        context.play(&destination, Fault::Throttle(Some(hint)))?;
        let error = context.deliver_err(&*sink, &context.envelope()).await?;
        let pause = pause_of(&step, error.class())?;
        check(
            (least..=most).contains(&pause),
            &step,
            format!("a pause of {least:?} to {most:?}"),
            format!("{pause:?}"),
        )?;
    }
    Ok(())
}

async fn retry_after_hint_hostile_values_clamped(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for hint in [
        "",
        "-1",
        "soon",
        "1e30",
        "NaN",
        "inf",
        "99999999999999999999",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "1, 2",
    ] {
        let step = format!("the hint `{hint}`");
        context.play(&destination, Fault::Throttle(Some(hint.to_owned())))?;
        let envelope = context.envelope();
        let answer = deliver_contained(&*sink, &envelope, &context.first_attempt()).await;
        let error = failed(&step, answer)?;
        let pause = pause_of(&step, error.class())?;
        check(
            pause <= RETRY_AFTER_CEILING,
            &step,
            "a pause of at most a day",
            format!("{pause:?}"),
        )?;
    }
    deliver_control(context, &*sink, "the delivery after them").await?;
    Ok(())
}

async fn deadline_bounds_deliver(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let limit = Duration::from_millis(300);
    for direct in [false, true] {
        context.play(&destination, Fault::Silence)?;
        let ctx = match direct {
            true => DeliveryContext::direct(),
            false => context.first_attempt(),
        };
        let ctx = ctx.with_deadline(Instant::now() + limit);
        let envelope = context.envelope();
        let delivery = context.deliver_in(&*sink, &envelope, &ctx);
        let answer = ends_by(context, "the deadline", limit, delivery).await?;
        check_unknown("the deadline", &failed("the deadline", answer)?)?;
        let other = || context.envelope_from(Some("quay-8"), "depot", "x");
        let step = "the delivery after the deadline";
        let delivery = deliver_recovered(context, &*sink, step, other);
        let limit = context.profile().recovery;
        ends_by(context, step, limit, delivery).await??;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn timeout_bounds_deliver(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "timeout_ms", 300)?;
    for ctx in [context.first_attempt(), DeliveryContext::direct()] {
        context.play(&destination, Fault::Silence)?;
        let envelope = context.envelope();
        let delivery = context.deliver_in(&*sink, &envelope, &ctx);
        let limit = Duration::from_millis(300);
        let answer = ends_by(context, "the time limit", limit, delivery).await?;
        check_unknown("the time limit", &failed("the time limit", answer)?)?;
        let step = "the delivery after it";
        deliver_recovered(context, &*sink, step, || context.envelope()).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn garbage_success_reply_is_error(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for garbage in [
        Garbage::Empty,
        Garbage::Html,
        Garbage::WrongTypes,
        Garbage::Truncated,
    ] {
        for ctx in [context.first_attempt(), DeliveryContext::direct()] {
            let step = format!("a success of {garbage:?}");
            context.play(&destination, Fault::Garbage(garbage))?;
            let envelope = context.envelope();
            let answer = context.deliver_in(&*sink, &envelope, &ctx).await;
            check_unknown(&step, &failed(&step, answer)?)?;
        }
    }
    deliver_control(context, &*sink, "the delivery after them").await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_reply_without_an_id_invents_none(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for ctx in [context.first_attempt(), DeliveryContext::direct()] {
        context.play(&destination, Fault::Garbage(Garbage::NoMessageId))?;
        let envelope = context.envelope();
        match context.deliver_in(&*sink, &envelope, &ctx).await {
            Ok(receipt) => check(
                receipt.provider_id.is_none(),
                "the receipt",
                "no id",
                "an id that the destination did not name",
            )?,
            Err(error) => check_unknown("the error", &error)?,
        }
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

const PAGE: &str = "<html><body>gateway-4f81-marker</body></html>";

async fn non_protocol_error_body_is_transient(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for (status, body) in [
        (500, "{\"half\":"),
        (502, PAGE),
        (503, ""),
        (504, "null"),
        (404, PAGE),
    ] {
        let step = format!("a foreign error of status {status}");
        context.play(&destination, Fault::ForeignError(status, body.to_owned()))?;
        let envelope = context.envelope();
        let error = context.deliver_err(&*sink, &envelope).await?;
        check(
            error.class().is_retryable(),
            &step,
            "a class that is retried",
            error.class().as_str(),
        )?;
        if let Some(shown) = error.status() {
            check_eq(&step, &status, &shown)?;
        }
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_foreign_page_is_not_quoted(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for status in [403, 500, 502] {
        context.play(&destination, Fault::ForeignError(status, PAGE.to_owned()))?;
        let error = context.deliver_err(&*sink, &context.envelope()).await?;
        let text = format!("{error:?} {}", dispatch_api::ErrorChain(&error));
        let is_quoted = text.contains("gateway-4f81-marker");
        check(!is_quoted, "the error", "nothing of the page", "it quotes")?;
    }
    Ok(())
}

async fn redirect_is_reported_not_followed(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for ctx in [context.first_attempt(), DeliveryContext::direct()] {
        context.play(&destination, Fault::Redirect)?;
        let envelope = context.envelope();
        let answer = context.deliver_in(&*sink, &envelope, &ctx).await;
        let strayed = context.faults()?.strayed();
        check_eq("requests at the other host", &0, &strayed)?;
        let error = failed("a redirect", answer)?;
        let is_said = matches!(error.class(), ErrorClass::Config | ErrorClass::Transient);
        check(
            is_said,
            "a redirect",
            "config or transient",
            error.class().as_str(),
        )?;
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn a_late_reply_answers_nobody_else(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build_set(&destination, "timeout_ms", 300)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let late = context.envelope();
    let limit = Duration::from_millis(300);
    let delivery = context.deliver(&*sink, &late);
    let answer = ends_by(context, "the time limit", limit, delivery).await?;
    check_class(
        "the time limit",
        ErrorClass::Transient,
        &failed("the time limit", answer)?,
    )?;
    hold.release();
    context.step("let the late reply come");
    tokio::time::sleep(slack(context) / 10).await;
    let mut receipts = Vec::new();
    for _ in 0..2 {
        let envelope = context.envelope();
        let answer = context.deliver(&*sink, &envelope).await;
        receipts.push((envelope, succeeded("after a late reply", answer)?));
    }
    let stored = context.quiet(&destination).await?;
    for (envelope, receipt) in receipts {
        let message = find("after a late reply", &stored, &envelope)?;
        check_eq("its receipt", &message.provider_id, &receipt.provider_id)?;
    }
    Ok(())
}

async fn a_reply_never_makes_the_sink_panic(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let mut faults = Vec::new();
    for garbage in [
        Garbage::Empty,
        Garbage::Html,
        Garbage::WrongTypes,
        Garbage::NoMessageId,
        Garbage::Truncated,
    ] {
        faults.push(Fault::Garbage(garbage));
    }
    for (status, body) in [
        (400, ""),
        (400, "\u{0}"),
        (403, "[]"),
        (404, "{\"code\":7}"),
        (418, "\"\\ud800\""),
        (500, "{{{{{{{{"),
        (599, PAGE),
    ] {
        faults.push(Fault::ForeignError(status, body.to_owned()));
    }
    for (index, fault) in faults.into_iter().enumerate() {
        let step = format!("odd reply {index}");
        let ctx = match index % 2 {
            0 => context.first_attempt(),
            _ => DeliveryContext::direct(),
        };
        context.play(&destination, fault)?;
        let envelope = context.envelope();
        let delivery = deliver_contained(&*sink, &envelope, &ctx);
        let patience = context.profile().patience();
        let answer = context.within(patience, &step, delivery).await?;
        let has_panicked = answer.is_err_and(|error| error.code() == "SinkPanicked");
        check(!has_panicked, &step, "an answer", "a panic")?;
    }
    deliver_control(context, &*sink, "the delivery after them").await?;
    Ok(())
}
