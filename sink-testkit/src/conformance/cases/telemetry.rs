//! Telemetry: what is counted, and what is told to whom.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use dispatch_api::{Envelope, ErrorClass, HeaderField};
use futures_util::FutureExt as _;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::conformance::case::case;
use crate::conformance::panics::Panics;
use crate::conformance::{
    Capability, Case, Checked, Context, Duplicates, EntryFault, ErrorRow, Failure, Fault,
    FaultKind, Hold, Scanner, check, check_eq,
};

/// The counter of messages that were answered, by OpenTelemetry's name.
const SENT: &str = "messaging_client_sent_messages_total";
/// Its label for the code of a failure; empty for a success.
const ERROR: &str = "error_type";

pub(super) const CASES: &[Case] = &[
    case!(
        a_success_is_counted_when_it_is_known,
        "a message is counted once, and not before the destination confirmed it"
    )
    .needs_capabilities(&[Capability::Telemetry])
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        failures_are_counted_by_code,
        "each failed message is counted once, under the code that its error has"
    )
    .needs_capabilities(&[Capability::Telemetry])
    .needs_faults(&[FaultKind::Row]),
    case!(
        a_batch_is_counted_by_its_messages,
        "of a batch of five with two failures, three successes and two failures are counted"
    )
    .needs_capabilities(&[Capability::Telemetry, Capability::Batching])
    .needs_faults(&[FaultKind::Entries]),
    case!(
        a_cancelled_delivery_is_no_failure,
        "a delivery whose caller went away is counted under no error code"
    )
    .needs_capabilities(&[Capability::Telemetry])
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        labels_are_bounded,
        "thirty messages of thirty tenants make no more series than one, and no id or tenant is in a label"
    )
    .needs_capabilities(&[Capability::Telemetry])
    .otherwise(|context| Box::pin(nothing_has_a_name_of_messaging(context))),
    case!(
        a_span_tells_of_the_request,
        "a request has a span with its destination and operation, by OpenTelemetry's names"
    )
    .needs_capabilities(&[Capability::Telemetry]),
    case!(
        clean_runs_are_quiet,
        "building, delivering and draining without a fault writes no warning and no error"
    ),
    case!(
        an_outage_does_not_flood_the_log,
        "thirty failures of one kind write at most three warnings"
    )
    .needs_faults(&[FaultKind::Row]),
    case!(
        observer_failure_does_not_change_outcome,
        "a recorder of metrics that panics changes no answer, and no message is sent again"
    )
    .needs_capabilities(&[Capability::Telemetry]),
    case!(
        payloads_are_never_told,
        "no body, header value or key is in a record, span, metric or error, at any level"
    ),
    case!(
        the_trace_travels_once_and_unchanged,
        "the envelope's trace context is in the message as it was, and nowhere else"
    ),
];

async fn a_success_is_counted_when_it_is_known(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let envelope = context.envelope();
    let mut delivery = pin!(context.deliver(&*sink, &envelope));
    context.arrivals(&hold, 1, &mut delivery).await?;
    check_eq(
        "counted while the reply is held",
        &BTreeMap::new(),
        &observer.counter_by(SENT, ERROR),
    )?;
    hold.release();
    let patience = context.profile().patience();
    let answer = context
        .within(patience, "after the release", delivery)
        .await?;
    check(answer.is_ok(), "after the release", "Ok", "an error")?;
    check_eq(
        "counted after the answer",
        &BTreeMap::from([(String::new(), 1)]),
        &observer.counter_by(SENT, ERROR),
    )
}

/// Two rows of the error table with different classes.
fn rows(context: &Context<'_>) -> Checked<(ErrorRow, ErrorRow)> {
    let table = &context.profile().error_table;
    let of = |class| table.iter().find(|row| row.class == class).cloned();
    match (of(ErrorClass::Transient), of(ErrorClass::Config)) {
        (Some(transient), Some(config)) => Ok((transient, config)),
        _ => Err(Failure::of_kit(
            "error table",
            "it needs a transient row and one of the configuration",
        )),
    }
}

async fn failures_are_counted_by_code(context: &Context<'_>) -> Checked {
    let (transient, config) = rows(context)?;
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in [&transient, &config, &transient] {
        context.play(&destination, Fault::Row(row.name.clone()))?;
        let envelope = context.envelope();
        let error = context.deliver_err(&*sink, &envelope).await?;
        *expected.entry(error.code().to_owned()).or_default() += 1;
    }
    check_eq(
        "counted by code",
        &expected,
        &observer.counter_by(SENT, ERROR),
    )
}

async fn a_batch_is_counted_by_its_messages(context: &Context<'_>) -> Checked {
    let (transient, _) = rows(context)?;
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelopes: Vec<Envelope> = (0..5).map(|_| context.envelope()).collect();
    let faults = [1, 4].map(|index: usize| {
        let fault = EntryFault::Row(transient.name.clone());
        (envelopes[index].id(), fault)
    });
    context.play(&destination, Fault::Entries(faults.to_vec()))?;
    let answers = context.deliver_all(&*sink, &envelopes).await;
    let code = answers[1]
        .as_ref()
        .err()
        .map(|error| error.code().to_owned());
    let expected = BTreeMap::from([(String::new(), 3), (code.unwrap_or_default(), 2)]);
    check_eq(
        "counted of a batch",
        &expected,
        &observer.counter_by(SENT, ERROR),
    )
}

async fn a_cancelled_delivery_is_no_failure(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let envelope = context.envelope();
    {
        let mut delivery = pin!(context.deliver(&*sink, &envelope));
        context.arrivals(&hold, 1, &mut delivery).await?;
    }
    hold.release();
    context.judge(&destination, Duplicates::Forbidden).await?;
    let mut counted = observer.counter_by(SENT, ERROR);
    counted.remove("");
    check_eq("counted under a code", &BTreeMap::new(), &counted)
}

async fn labels_are_bounded(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let first = context.envelope_from(Some("tenant-0"), "source-0", "{}");
    context.deliver_ok(&*sink, &first).await?;
    context.settle().await;
    let after_one = observer.series().len();
    check(after_one > 0, "series", "some", "none")?;
    for number in 1..30 {
        let tenant = format!("tenant-{number}");
        let source = format!("source-{number}");
        let envelope = context.envelope_from(Some(&tenant), &source, "{}");
        context.deliver_ok(&*sink, &envelope).await?;
        let series = observer.series().join("\n");
        let id = envelope.id().to_string();
        for value in [&tenant, &source, &id] {
            check(
                !series.contains(value.as_str()),
                "labels",
                "no id, tenant or source",
                format!("{value} is in one"),
            )?;
        }
    }
    check_eq(
        "series after thirty messages",
        &after_one,
        &observer.series().len(),
    )
}

/// Whoever does not say that requests are counted and traced by OpenTelemetry's names has
/// nothing under one of them: a host would take it for all there is.
async fn nothing_has_a_name_of_messaging(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let nowhere = context.build(&context.fixture().missing())?;
    let listening = observer.listen();
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    // A failure is not counted either.
    let lost = context.envelope();
    let answer = context.deliver(&*nowhere, &lost).await;
    let may_be_taken = !context.profile().has(Capability::Durable);
    check(answer.is_err() || may_be_taken, "deliver", "an error", "Ok")?;
    context.settle().await;
    drop(listening);
    let series = observer.series();
    let counted = series
        .iter()
        .find(|series| series.starts_with("messaging_"));
    check_eq("undeclared metrics", &None, &counted)?;
    let text = observer.text();
    let told = text.lines().find(|line| line.contains("messaging."));
    check(
        told.is_none(),
        "undeclared spans",
        "no field by a name of messaging",
        "one",
    )
}

async fn a_span_tells_of_the_request(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let listening = observer.listen();
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    context.settle().await;
    drop(listening);
    let text = observer.text();
    for name in [
        "messaging.system",
        "messaging.operation.name",
        "messaging.destination.name",
    ] {
        check(text.contains(name), "span", name, "no such field")?;
    }
    check(
        text.contains(destination.name()),
        "span",
        "the destination's name",
        "it is in no span",
    )
}

async fn clean_runs_are_quiet(context: &Context<'_>) -> Checked {
    let observer = context.observer();
    let listening = observer.listen();
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    for _ in 0..3 {
        let envelope = context.envelope();
        context.deliver_ok(&*sink, &envelope).await?;
    }
    context.drain(&*sink).await?;
    drop(sink);
    drop(listening);
    check_eq("warnings of a clean run", &0, &observer.warnings().len())
}

async fn an_outage_does_not_flood_the_log(context: &Context<'_>) -> Checked {
    let (transient, _) = rows(context)?;
    let observer = context.observer();
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    context.play_always(&destination, Fault::Row(transient.name))?;
    let listening = observer.listen();
    let envelopes: Vec<Envelope> = (0..30).map(|_| context.envelope()).collect();
    let answers = context.deliver_all(&*sink, &envelopes).await;
    drop(listening);
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    check_eq("failures", &30, &failed)?;
    let warnings = observer.warnings().len();
    check(
        warnings <= 3,
        "warnings of thirty failures",
        "at most 3",
        warnings.to_string(),
    )
}

/// Panics at everything that is to be measured.
#[derive(Debug, Default)]
struct PanickingRecorder {
    panics: AtomicU64,
}

impl PanickingRecorder {
    #[expect(clippy::panic, reason = "it is a recorder that panics")]
    fn panic(&self) -> ! {
        self.panics.fetch_add(1, Ordering::SeqCst);
        panic!("the recorder is broken")
    }
}

impl Recorder for PanickingRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.panic()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.panic()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.panic()
    }
}

/// A panic that reaches the caller is the sink's answer, and a wrong one.
async fn answered<T>(what: impl Future<Output = T>) -> Checked<T> {
    let answered = AssertUnwindSafe(what).catch_unwind().await;
    answered.map_err(|_| Failure::new("deliver", "an answer", "a panic"))
}

async fn observer_failure_does_not_change_outcome(context: &Context<'_>) -> Checked {
    const PANICS: &str = "the recorder panics";
    context.plan(PANICS);
    let destination = context.destination().await?;
    let recorder = PanickingRecorder::default();
    {
        let _metrics = metrics::set_default_local_recorder(&recorder);
        let _unheard = Panics::listen();
        let sink = context.build(&destination)?;
        let envelopes: Vec<Envelope> = (0..3).map(|_| context.envelope()).collect();
        for answer in answered(context.deliver_all(&*sink, &envelopes)).await? {
            answer.map_err(|error| Failure::new("deliver", "Ok", error.to_string()))?;
        }
        let alone = context.envelope();
        answered(context.deliver_ok(&*sink, &alone)).await??;
        if context.profile().has(Capability::Durable) {
            let nowhere = context.build(&context.fixture().missing())?;
            let lost = context.envelope();
            let error = answered(context.deliver_err(&*nowhere, &lost)).await??;
            check_eq("class", &ErrorClass::Config, &error.class())?;
        }
        context.settle().await;
        answered(context.drain(&*sink)).await??;
    }
    if recorder.panics.load(Ordering::SeqCst) > 0 {
        context.happened(PANICS);
    }
    context.judge(&destination, Duplicates::Forbidden).await
}

const MARKERS: [&str; 3] = [
    "body-canary-5c1f93ab77",
    "header-canary-0d82ee61c4",
    "dedupe-canary-a94b3370fe",
];

async fn payloads_are_never_told(context: &Context<'_>) -> Checked {
    let observer = context.payload_observer();
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let _listening = observer.listen();
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let nowhere = context.build(&context.fixture().missing())?;
    let envelope = context
        .envelope_of(MARKERS[0])
        .with_headers([HeaderField::new("X-Canary", MARKERS[1])])
        .with_dedupe_key(MARKERS[2]);
    context.deliver_ok(&*sink, &envelope).await?;
    let answer = context.deliver(&*nowhere, &envelope).await;
    context.settle().await;
    let may_be_taken = !context.profile().has(Capability::Durable);
    check(answer.is_err() || may_be_taken, "deliver", "an error", "Ok")?;
    let shown = answer
        .as_ref()
        .err()
        .map(|error| dispatch_api::ErrorChain(error).to_string());
    let told = format!(
        "{}\n{answer:?}\n{shown:?}\n{sink:?}\n{envelope:?}",
        observer.everything(),
    );
    for marker in MARKERS {
        let scanner = Scanner::new(marker).map_err(|text| Failure::of_kit("canary", text))?;
        if let Some(form) = scanner.find(&told) {
            return Err(Failure::new(
                "payload",
                "it is told nowhere",
                format!("a canary, {form}"),
            ));
        }
    }
    Ok(())
}

async fn the_trace_travels_once_and_unchanged(context: &Context<'_>) -> Checked {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let envelope = context
        .envelope()
        .with_trace(PARENT, Some(STATE.to_owned()));
    context.deliver_ok(&*sink, &envelope).await?;
    let stored = context.wait_for(&destination, 1).await?;
    let message = stored[0]
        .message()
        .map_err(|text| Failure::new("the message", "the wire format", text))?;
    check_eq(
        "traceparent on the wire",
        &Some(PARENT),
        &message.traceparent.as_deref(),
    )?;
    check_eq(
        "tracestate on the wire",
        &Some(STATE),
        &message.tracestate.as_deref(),
    )?;
    let text = String::from_utf8_lossy(&stored[0].body);
    check_eq(
        "traceparents in the message",
        &1,
        &text.matches(PARENT).count(),
    )?;
    let doubled = stored[0]
        .attributes
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
    check(
        !doubled,
        "attributes",
        "no second traceparent",
        "one beside the message",
    )?;
    Ok(())
}
