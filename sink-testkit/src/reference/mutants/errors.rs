//! Mutants of error classes.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{ErrorClass, Outcome, Problems, SinkError};

use super::tools::{answering, caching, calling, delivering, remade};
use super::{Mutant, Seam};
use crate::reference::broker::{Broker, MAX_BYTES, NAMELESS, SILENT};
use crate::reference::plugin::{WORLD, World};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "AllTransient",
        "takes every failure for one that time heals",
        "error_class_table",
        "row DestinationMissing: expected \"config\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| remade(&error, ErrorClass::Transient, error.outcome()))
            })
        }),
    ),
    Mutant::new(
        "AlwaysUnknown",
        "says of no failure that nothing is stored",
        "error_class_table",
        "expected NotStored; observed Unknown",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| {
                    let delay = Duration::from_millis(1);
                    match error.class() {
                        // These two are always known to be not stored.
                        ErrorClass::Permanent | ErrorClass::Config => error,
                        ErrorClass::Transient => remade(&error, error.class(), Outcome::Unknown),
                        ErrorClass::RetryAfter(_) => {
                            remade(&error, ErrorClass::RetryAfter(delay), Outcome::Unknown)
                        }
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "StickyError",
        "repeats its first configuration error for ever",
        "sink_recovers_after_every_error",
        "the delivery after DestinationMissing: expected Ok",
        Seam::Sink(|inner, _| {
            let first: Arc<Mutex<Option<SinkError>>> = Arc::default();
            answering(inner, move |_, answer| {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = &answer
                    && error.class() == ErrorClass::Config
                {
                    first.get_or_insert_with(|| error.clone());
                }
                match &*first {
                    Some(error) => Err(error.clone()),
                    None => answer,
                }
            })
        }),
    ),
    Mutant::new(
        "RetriesPermanent",
        "sends a message again that was refused",
        "permanent_error_sends_once",
        "requests at MessageTooLarge: expected 1; observed 2",
        Seam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    match reply {
                        Ok(reply) if reply.status == 400 => inner.call(request).await,
                        reply => reply,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "SdkDefaultRetriesHidden",
        "sends up to three times before it says that the service failed",
        "internal_retries_bounded_and_declared",
        "expected 1; observed 3",
        Seam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let mut reply = inner.call(request.clone()).await;
                    for _ in 0..2 {
                        if reply.as_ref().is_ok_and(|reply| reply.status >= 429) {
                            reply = inner.call(request.clone()).await;
                        }
                    }
                    reply
                })
            })
        }),
    ),
    Mutant::new(
        "RetriesInBackground",
        "answers with an error, and delivers the message a second later",
        "a_failed_delivery_is_not_repeated_later",
        "messages after failures: expected 0",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    if answer
                        .as_ref()
                        .is_err_and(|error| error.status() == Some(500))
                    {
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_secs(1)).await;
                            inner.deliver(&envelope, &ctx).await
                        });
                    }
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "UnknownIsPermanent",
        "gives a message up when it does not know the error",
        "unknown_backend_error_is_transient",
        "expected a class that is retried; observed permanent",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "ServiceError" => remade(&error, ErrorClass::Permanent, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "MissingIsTransient",
        "tries a missing destination again and again",
        "missing_destination_is_config_error_on_deliver",
        "class: expected \"config\"; observed \"transient\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "DestinationMissing" => remade(&error, ErrorClass::Transient, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "MissingIsNameless",
        "does not say which destination is missing",
        "missing_destination_is_config_error_on_deliver",
        "expected the destination's name",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "DestinationMissing" => {
                        SinkError::config("DestinationMissing", "no such destination")
                    }
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "AutoCreates",
        "creates a destination that is missing",
        "missing_destination_is_not_created",
        "destinations: expected",
        Seam::Sink(|inner, parts| {
            delivering(inner, move |inner, envelope, ctx| {
                let parts = parts.clone();
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    let is_missing = |error: &SinkError| error.code() == "DestinationMissing";
                    if answer.as_ref().is_err_and(is_missing) {
                        let world = parts.services.pool().get_or_try_create(WORLD, || {
                            Ok::<_, Infallible>(World {
                                broker: Arc::new(Broker::new()),
                                mutant: None,
                                is_bare: false,
                            })
                        });
                        let Ok(world) = world;
                        world.broker.create(&parts.config.destination, MAX_BYTES);
                    }
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "DeniedIsTransient",
        "tries again and again where it may not",
        "access_denied_is_config_error",
        "class: expected \"config\"; observed \"transient\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "AccessDenied" => remade(&error, ErrorClass::Transient, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "BadSecretIsTransient",
        "tries again and again with a secret that is refused",
        "a_wrong_secret_is_config_error",
        "class: expected \"config\"; observed \"transient\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "BadCredentials" => remade(&error, ErrorClass::Transient, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "HangsInProvider",
        "waits for credentials as long as there are none",
        "missing_or_expired_credentials",
        "a delivery without credentials: expected an end within",
        Seam::Sink(|inner, parts| {
            delivering(inner, move |inner, envelope, ctx| {
                let vault = parts.config.vault.clone();
                Box::pin(async move {
                    while vault.as_ref().is_some_and(|vault| vault.vault().is_none()) {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "ExpiredIsPermanent",
        "gives a message up when its credentials have ended",
        "missing_or_expired_credentials",
        "a delivery with later credentials: expected config or a class that is retried",
        Seam::Sink(|inner, parts| {
            answering(caching(inner, parts), |_, answer| {
                answer.map_err(|error| match error.code() {
                    "ExpiredKey" => remade(&error, ErrorClass::Permanent, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "LostIsPermanent",
        "gives a message up when the connection ends",
        "network_failures_are_transient",
        "a request is lost: expected \"transient\"",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "ConnectionLost" => remade(&error, ErrorClass::Permanent, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "NamelessIsPermanent",
        "gives a message up when its server's name has no address",
        "an_unreachable_server_is_transient_within_the_timeout",
        "a host without an address: expected \"transient\"; observed \"permanent\"",
        Seam::Sink(|inner, parts| {
            answering(inner, move |_, answer| {
                answer.map_err(|error| match &*parts.config.host {
                    NAMELESS => remade(&error, ErrorClass::Permanent, error.outcome()),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "NoConnectTimeout",
        "connects before its time begins to run",
        "an_unreachable_server_is_transient_within_the_timeout",
        "a server that takes what comes: expected an end within",
        Seam::Sink(|inner, parts| {
            delivering(inner, move |inner, envelope, ctx| {
                let is_silent = parts.config.host == SILENT;
                Box::pin(async move {
                    if is_silent {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "SwallowedIsNotStored",
        "takes a message for not stored when nobody answers",
        "an_unreachable_server_is_transient_within_the_timeout",
        "a server that takes what comes: expected Unknown; observed NotStored",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.code() {
                    "Timeout" => remade(&error, error.class(), Outcome::NotStored),
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "ResolvesWhenBuilt",
        "builds no sink while its server's name has no address",
        "an_unreachable_server_is_transient_within_the_timeout",
        "a host without an address: expected a sink is built",
        Seam::Build(
            |options, _, honest| match options["link"]["host"].as_str() {
                Some(NAMELESS) => {
                    let mut problems = Problems::new();
                    problems.add("link.host", "has no address");
                    Err(problems)
                }
                _ => honest(options),
            },
        ),
    ),
    Mutant::new(
        "PayloadInError",
        "quotes the body in its errors",
        "error_carries_context_without_payload",
        "the body is in it",
        Seam::Sink(|inner, _| {
            answering(inner, |envelope, answer| {
                answer.map_err(|error| {
                    let body = String::from_utf8_lossy(envelope.body()).into_owned();
                    error.with_source(std::io::Error::other(body))
                })
            })
        }),
    ),
    Mutant::new(
        "HeadersInError",
        "quotes the headers in its errors",
        "error_carries_context_without_payload",
        "a header's value is in it",
        Seam::Sink(|inner, _| {
            answering(inner, |envelope, answer| {
                answer.map_err(|error| {
                    let headers: Vec<&str> = envelope
                        .headers()
                        .iter()
                        .map(dispatch_api::HeaderField::value)
                        .collect();
                    error.with_source(std::io::Error::other(headers.join(", ")))
                })
            })
        }),
    ),
    Mutant::new(
        "CodeOfEachCall",
        "makes a code for each error",
        "error_codes_are_stable_words",
        "the code of DestinationMissing",
        Seam::Sink(|inner, _| {
            static ERRORS: AtomicU64 = AtomicU64::new(0);
            answering(inner, |_, answer| {
                answer.map_err(|error| {
                    let number = ERRORS.fetch_add(1, Ordering::SeqCst);
                    match error.class() {
                        ErrorClass::Config => {
                            SinkError::config(format!("Error{number}"), error.text().to_owned())
                        }
                        _ => error,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "PanicsOnEmptyBody",
        "panics when there is nothing in the body",
        "an_envelope_never_makes_the_sink_panic",
        "odd envelope 0: expected an answer; observed a panic",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    if envelope.body().is_empty() {
                        std::panic::resume_unwind(Box::new("an empty body"));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
];
