//! Mutants of `conformance::cases::secrets`.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatch_api::{Description, Problems, SinkError};
use metrics::counter;
use tokio::runtime::Handle;

use super::tools::{Patched, answering, calling, delivering, requesting};
use super::{Mutant, Seam};
use crate::reference::broker::WIRE_LOG;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "DerivedDebug",
        "shows its configuration as it is",
        "secrets_are_not_in_debug",
        "Debug of a new sink: expected no secret; observed a secret, as it is",
        Seam::Sink(|inner, parts| {
            Patched::new(inner)
                .debug(move |inner, f| write!(f, "{inner:?} {}", parts.config.secret))
                .sink()
        }),
    ),
    Mutant::new(
        "ShowsTheFirstHalf",
        "shows how the secret begins, for recognition",
        "secrets_are_not_in_debug",
        "a secret, its first half",
        Seam::Sink(|inner, parts| {
            Patched::new(inner)
                .debug(move |_, f| {
                    let half = &parts.config.secret[..parts.config.secret.len() / 2];
                    write!(f, "Sink {{ secret: {half}… }}")
                })
                .sink()
        }),
    ),
    Mutant::new(
        "TellsTheSecret",
        "explains a refusal with the credentials that were used",
        "secrets_are_not_in_errors",
        "an error of a missing destination",
        Seam::Sink(|inner, parts| {
            answering(inner, move |_, answer| {
                let secret = parts.config.secret.clone();
                answer.map_err(|error| match error.code() {
                    "DestinationMissing" => SinkError::config("DestinationMissing", secret),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "EchoesTheReply",
        "quotes a reply that it does not understand",
        "secrets_are_not_in_errors_that_echo",
        "an error that could echo",
        Seam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request).await;
                    if let Ok(reply) = &reply
                        && reply.status != 200
                    {
                        let text = String::from_utf8_lossy(&reply.body);
                        tracing::debug!(%text, "a failure");
                    }
                    reply
                })
            })
        }),
    ),
    Mutant::new(
        "Base64AuthHeader",
        "writes the header of basic authentication into a record",
        "secrets_are_not_in_logs_or_metrics",
        "a secret, in base64",
        Seam::Wire(|inner, config| {
            let header = STANDARD.encode(format!("{}:{}", config.key_id, config.secret));
            requesting(inner, move |request| {
                tracing::trace!(authorization = %header, "request");
                request
            })
        }),
    ),
    Mutant::new(
        "SecretInWireLog",
        "writes the secret where the client writes down what it sends",
        "secrets_are_not_in_logs_or_metrics",
        "what was told: expected no secret; observed a secret, as it is",
        Seam::Wire(|inner, config| {
            let secret = config.secret.clone();
            requesting(inner, move |request| {
                tracing::trace!(target: WIRE_LOG, %secret, "connect");
                request
            })
        }),
    ),
    Mutant::new(
        "SecretAsLabel",
        "counts messages by the credentials that sent them",
        "secrets_are_not_in_logs_or_metrics",
        "what was told: expected no secret; observed a secret, as it is",
        Seam::Wire(|inner, config| {
            let secret = config.secret.clone();
            requesting(inner, move |request| {
                counter!("requests", "sender" => secret.clone()).increment(1);
                request
            })
        }),
    ),
    Mutant::new(
        "LogsHeaders",
        "writes the proof of a request into a record",
        "proofs_are_not_in_logs",
        "what was told of requests",
        Seam::Wire(|inner, _| {
            requesting(inner, |request| {
                tracing::debug!(proof = %request.proof, "request");
                request
            })
        }),
    ),
    Mutant::new(
        "DescribesWithSecret",
        "describes its server with the credentials in the address",
        "secrets_are_not_in_descriptions",
        "description, key and schema",
        Seam::Sink(|inner, parts| {
            Patched::new(inner)
                .describe(move |description| {
                    description.map(|mut description| {
                        description.server =
                            format!("{}@{}", parts.config.secret, description.server);
                        description
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "QuotesTheOptions",
        "quotes all options in the error that refuses one",
        "secrets_are_not_in_refused_options",
        "the refusal of options",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|_| {
                let mut problems = Problems::new();
                problems.add("options", format!("cannot be used: {options}"));
                problems
            })
        }),
    ),
    Mutant::new(
        "PanicWithConfig",
        "says with what credentials it could not begin",
        "secrets_are_not_in_panic_texts",
        "what a panic said: expected no secret; observed a secret, as it is",
        Seam::Sink(|inner, parts| {
            delivering(inner, move |inner, envelope, ctx| {
                let secret = parts.config.secret.clone();
                Box::pin(async move {
                    let has_runtime = Handle::try_current().is_ok();
                    assert!(has_runtime, "no runtime for a connection with {secret}");
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "QuotesTheAddress",
        "quotes the address that it refuses",
        "config_url_userinfo_refused_or_stripped",
        "an address with credentials: expected no secret; observed a secret, as it is",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|mut problems| {
                let text = format!("cannot be used: {}", options["link"]["host"]);
                problems.add("link.host", text);
                problems
            })
        }),
    ),
    Mutant::new(
        "KeepsTheUserinfo",
        "connects without the credentials in its address, and describes itself with them",
        "config_url_userinfo_refused_or_stripped",
        "an address with credentials: expected no secret; observed a secret, as it is",
        Seam::Build(|options, _, honest| {
            let address = options["link"]["host"].as_str().unwrap_or_default();
            let Some((_, host)) = address.rsplit_once('@') else {
                return honest(options);
            };
            let mut stripped = options.clone();
            stripped["link"]["host"] = host.into();
            let address = address.to_owned();
            let describe = move |description: Option<Description>| {
                description.map(|mut description| {
                    description.server.clone_from(&address);
                    description
                })
            };
            Ok(Patched::new(honest(&stripped)?).describe(describe).sink())
        }),
    ),
    Mutant::new(
        "SharedClient",
        "keeps the credentials of the sink that was built first for all",
        "credentials_are_never_mixed",
        "signed by the other credentials",
        Seam::Build(|options, services, honest| {
            let first = services
                .pool()
                .get_or_try_create::<_, Problems>("credentials", || {
                    Ok(Mutex::new((
                        options["key_id"].clone(),
                        options["secret"].clone(),
                    )))
                })?;
            let mut options = options.clone();
            let (key_id, secret) = {
                let first = first.lock().unwrap_or_else(PoisonError::into_inner);
                (first.0.clone(), first.1.clone())
            };
            options["key_id"] = key_id;
            options["secret"] = secret;
            let inner = honest(&options)?;
            let keep = Arc::clone(&first);
            Ok(Patched::new(inner)
                .durable(true)
                .debug(move |inner, f| {
                    let _ = &keep;
                    inner.fmt(f)
                })
                .sink())
        }),
    ),
];
