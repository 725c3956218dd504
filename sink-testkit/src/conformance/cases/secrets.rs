//! Secrets stay where they belong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use dispatch_api::{BuiltSink, DeliveryContext, Envelope, ErrorChain, Registry, Sink, SinkError};
use tokio::time::Instant;

use crate::conformance::case::case;
use crate::conformance::panics::Panics;
use crate::conformance::{
    Capability, Case, Checked, Context, Destination, Failure, Fault, FaultKind, Observer, Scanner,
    check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        secrets_are_not_in_debug,
        "no secret is in the Debug of a sink, plain or encoded"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        secrets_are_not_in_errors,
        "no secret is in an error, its Debug or its causes"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        secrets_are_not_in_errors_that_echo,
        "a reply that repeats the secret does not bring it into an error"
    )
    .needs_capabilities(&[Capability::Credentials])
    .needs_faults(&[FaultKind::ForeignError]),
    case!(
        secrets_are_not_in_logs_or_metrics,
        "no secret is in a record, span or metric at any level"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        proofs_are_not_in_logs,
        "no signature or token of a request is in a record or span at any level"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        secrets_are_not_in_descriptions,
        "no secret is in the description of a sink, nor in its key"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        secrets_are_not_in_refused_options,
        "no secret is in the error that refuses the options it stands in"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        secrets_are_not_in_panic_texts,
        "what a sink says in a panic, such as without a runtime, holds no secret"
    )
    .needs_capabilities(&[Capability::Credentials]),
    case!(
        config_url_userinfo_refused_or_stripped,
        "credentials within an address are refused, or told nowhere"
    )
    .needs_capabilities(&[Capability::ServerAddress]),
    case!(
        credentials_are_never_mixed,
        "two sinks with credentials of their own sign their own requests, also when used in turns"
    )
    .needs_capabilities(&[Capability::Credentials]),
];

/// Fails where one of the values is in the text.
fn absent(step: &str, values: &[String], text: &str) -> Checked {
    if values.is_empty() {
        return Err(Failure::of_kit(step, "it names nothing to look for"));
    }
    for value in values {
        let scanner = Scanner::new(value).map_err(|text| Failure::of_kit("canary", text))?;
        if let Some(form) = scanner.find(text) {
            let observed = format!("a secret, {form}");
            return Err(Failure::new(step, "no secret", observed));
        }
    }
    Ok(())
}

fn shown(error: &SinkError) -> String {
    format!("{error}\n{error:?}\n{error:#?}\n{}", ErrorChain(error))
}

async fn secrets_are_not_in_debug(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let sink = context.build(&destination)?;
    let envelope = context.envelope();
    absent(
        "Debug of a new sink",
        &secrets,
        &format!("{sink:?}{sink:#?}"),
    )?;
    context.deliver_ok(&*sink, &envelope).await?;
    absent(
        "Debug of a used sink",
        &secrets,
        &format!("{sink:?}{sink:#?}"),
    )
}

async fn secrets_are_not_in_errors(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let nowhere = context.build(&context.fixture().missing())?;
    let envelope = context.envelope();
    let error = context.deliver_err(&*nowhere, &envelope).await?;
    absent(
        "an error of a missing destination",
        &secrets,
        &shown(&error),
    )?;
    let sink = context.build(&destination)?;
    context.drain(&*sink).await?;
    let error = context.deliver_err(&*sink, &envelope).await?;
    absent("an error of a closed sink", &secrets, &shown(&error))
}

async fn secrets_are_not_in_errors_that_echo(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let sink = context.build(&destination)?;
    let page = format!("<html>you sent: {}</html>", secrets.join(" "));
    let json = format!(r#"{{"__type":"Echo","message":"{}"}}"#, secrets.join(" "));
    for (status, body) in [(502, page), (400, json)] {
        // What the server sent is on the wire: a client that writes that down shows it.
        let observer = context.payload_observer();
        let listening = observer.listen();
        context.play(&destination, Fault::ForeignError(status, body))?;
        let envelope = context.envelope();
        let error = context.deliver_err(&*sink, &envelope).await?;
        drop(listening);
        let told = format!("{}{}", shown(&error), observer.text());
        absent("an error that could echo", &secrets, &told)?;
    }
    Ok(())
}

/// Builds, delivers, fails and drains in front of an observer.
async fn use_it(context: &Context<'_>, destination: &Destination, observer: &Observer) -> Checked {
    let _metrics = metrics::set_default_local_recorder(observer.metrics());
    let _listening = observer.listen();
    let sink = context.build(destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*sink, &envelope).await?;
    let nowhere = context.build(&context.fixture().missing())?;
    context.deliver_err(&*nowhere, &envelope).await?;
    context.drain(&*sink).await?;
    Ok(())
}

async fn secrets_are_not_in_logs_or_metrics(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let observer = context.observer();
    use_it(context, &destination, &observer).await?;
    absent("what was told", &secrets, &observer.everything())
}

async fn proofs_are_not_in_logs(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let observer = context.observer();
    use_it(context, &destination, &observer).await?;
    let proofs = context.fixture().proofs();
    absent("what was told of requests", &proofs, &observer.everything())
}

async fn secrets_are_not_in_descriptions(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let plugin = context.fixture().plugin();
    let built = Registry::with([plugin])
        .map_err(|error| Failure::of_kit("registry", error.to_string()))?
        .build(
            plugin.kind,
            &context.fixture().options(&destination),
            &context.fixture().services(),
        )
        .map_err(|error| Failure::new("build", "a sink", error.to_string()))?;
    let described = format!(
        "{:?}\n{:?}\n{:?}\n{}",
        built.sink.describe(),
        built.key,
        plugin,
        (plugin.schema)(),
    );
    absent("description, key and schema", &secrets, &described)
}

async fn secrets_are_not_in_refused_options(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let good = context.fixture().options(&destination);
    let mut texts = Vec::new();
    // An unknown key beside the secret, and the secret where another type is expected.
    let mut unknown = good.clone();
    unknown["no_such_option"] = secrets.join(" ").into();
    texts.push(context.try_build(&unknown).err());
    for key in ["timeout_ms", "inline_max_bytes"] {
        let mut misplaced = good.clone();
        misplaced[key] = secrets.join(" ").into();
        texts.push(context.try_build(&misplaced).err());
    }
    for text in texts {
        let Some(text) = text else {
            return Err(Failure::new("build", "the options are refused", "a sink"));
        };
        absent("the refusal of options", &secrets, &text)?;
    }
    Ok(())
}

/// Polls a few times, as a caller without a runtime does, and lets it go.
fn polled<T>(what: impl Future<Output = T>) {
    let mut what = pin!(what);
    let mut cx = std::task::Context::from_waker(Waker::noop());
    for _ in 0..3 {
        if what.as_mut().poll(&mut cx).is_ready() {
            return;
        }
    }
}

/// What panics say when a sink is built, used, drained and dropped where there is no runtime.
fn said_without_a_runtime(
    build: impl FnOnce() -> Option<Arc<dyn Sink>>,
    used: Arc<dyn Sink>,
    envelope: &Envelope,
    ctx: &DeliveryContext,
) -> String {
    let panics = Panics::listen();
    let quietly = |what: &mut dyn FnMut()| {
        let _ = catch_unwind(AssertUnwindSafe(what));
    };
    let built = catch_unwind(AssertUnwindSafe(build)).ok().flatten();
    for sink in [built, Some(used)].into_iter().flatten() {
        quietly(&mut || polled(sink.deliver(envelope, ctx)));
        quietly(&mut || polled(sink.drain(Instant::now())));
        let mut sink = Some(sink);
        quietly(&mut || drop(sink.take()));
    }
    panics.text()
}

async fn secrets_are_not_in_panic_texts(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let secrets = context.fixture().secrets(&destination);
    let options = context.fixture().options(&destination);
    let (plugin, services) = (context.fixture().plugin(), context.fixture().services());
    let used = context.build(&destination)?;
    let before = context.envelope();
    context.deliver_ok(&*used, &before).await?;
    let (envelope, ctx) = (context.envelope(), context.first_attempt());
    context.step("use the sink without a runtime");
    let thread = thread::spawn(move || {
        let build = || (plugin.build)(&options, &services).ok();
        said_without_a_runtime(build, used, &envelope, &ctx)
    });
    let joined = tokio::task::spawn_blocking(move || thread.join()).await;
    match joined {
        Ok(Ok(said)) => absent("what a panic said", &secrets, &said),
        _ => Err(Failure::of_kit("use the sink without a runtime", "a panic")),
    }
}

async fn config_url_userinfo_refused_or_stripped(context: &Context<'_>) -> Checked {
    const PASSWORD: &str = "userinfo-s3cret-2b7e90c4d1";
    let destination = context.destination().await?;
    let fixture = context.fixture();
    let Some(options) = fixture.with_userinfo(&destination, "harbor", PASSWORD) else {
        return Err(Failure::of_kit("an address", "the fixture has none"));
    };
    let observer = context.observer();
    let seen = {
        let _metrics = metrics::set_default_local_recorder(observer.metrics());
        let _listening = observer.listen();
        context.step("build a sink of an address with credentials");
        match context.build_or_problems(&options) {
            Err(problems) => format!("{problems}\n{problems:?}"),
            Ok(BuiltSink { sink, key, .. }) => {
                let answer = context.deliver(&*sink, &context.envelope()).await;
                let error = answer.as_ref().err().map(shown).unwrap_or_default();
                format!("{sink:?}\n{:?}\n{key:?}\n{error}", sink.describe())
            }
        }
    };
    let told = format!("{seen}\n{}", observer.everything());
    absent("an address with credentials", &[PASSWORD.to_owned()], &told)
}

async fn credentials_are_never_mixed(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let Some((options, other)) = context.fixture().other_credentials(&destination) else {
        return Err(Failure::of_kit("credentials", "the fixture has no others"));
    };
    let own = context.build(&destination)?;
    let others = context.build_with(options)?;
    let mut expected = Vec::new();
    let mut deliveries = Vec::new();
    for number in 0..12 {
        let is_others = number % 2 == 1;
        let envelope = context.envelope();
        expected.push((envelope.id().to_string(), is_others));
        deliveries.push((if is_others { &others } else { &own }, envelope));
    }
    let answers = deliveries
        .iter()
        .map(|(sink, envelope)| context.deliver(&***sink, envelope));
    for answer in futures_util::future::join_all(answers).await {
        answer.map_err(|error| Failure::new("deliver", "Ok", error.to_string()))?;
    }
    let stored = context.wait_for(&destination, 12).await?;
    for (id, is_others) in expected {
        let message = stored.iter().find(|message| message.envelope_id() == id);
        let signer = message.and_then(|message| message.sent_by.clone());
        check_eq(
            "signed by the other credentials",
            &is_others,
            &(signer.as_deref() == Some(other.as_str())),
        )?;
    }
    Ok(())
}
