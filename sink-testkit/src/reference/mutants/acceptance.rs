//! Mutants of acceptance.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{Receipt, SinkError};
use tokio::time::timeout;

use super::tools::{Patched, answering, calling, delivering, requesting};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "BlackHole",
        "answers Ok and sends nothing",
        "deliver_then_observed_exactly_once",
        "expected 25 messages",
        Seam::Sink(|inner, _| delivering(inner, |_, _, _| Box::pin(async { Ok(Receipt::new()) }))),
    ),
    Mutant::new(
        "SpawnAndForget",
        "answers Ok at once and sends in the background",
        "ok_only_after_the_destination_confirmed",
        "no answer while the destination holds",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    tokio::spawn(async move { inner.deliver(&envelope, &ctx).await });
                    Ok(Receipt::new())
                })
            })
        }),
    ),
    Mutant::new(
        "OkAfterAWhile",
        "waits for the answer a little, and answers Ok all the same",
        "ok_only_after_the_destination_confirmed",
        "expected no answer yet",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let sending = tokio::spawn(async move { inner.deliver(&envelope, &ctx).await });
                    match timeout(Duration::from_millis(100), sending).await {
                        Ok(Ok(answer)) => answer,
                        Ok(Err(_)) | Err(_) => Ok(Receipt::new()),
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "RefusesAndDelivers",
        "says that a message was refused, and stores it",
        "a_refused_message_never_lands",
        "leaked refusal",
        Seam::Sink(|inner, parts| {
            delivering(inner, move |inner, envelope, ctx| {
                let parts = parts.clone();
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    let is_refused = answer.as_ref().is_err_and(|error| {
                        error.code() == "MessageTooLarge" && error.status().is_none()
                    });
                    if is_refused {
                        let mut config = parts.config;
                        config.max_message_bytes = usize::MAX;
                        let second = crate::reference::ReferenceSink::new(
                            config,
                            parts.wire,
                            &parts.services,
                        );
                        let _ = dispatch_api::Sink::deliver(&second, &envelope, &ctx).await;
                    }
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "OptimisticOk",
        "takes a lost reply for a success",
        "a_lost_response_is_transient_and_unknown",
        "expected an error; observed Ok",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| match answer {
                Err(error) if error.code() == "ConnectionLost" => Ok(Receipt::new()),
                answer => answer,
            })
        }),
    ),
    Mutant::new(
        "RandomDedupId",
        "makes a deduplication id for each attempt",
        "a_lost_response_then_a_retry_converges",
        "duplicate",
        Seam::Wire(|inner, _| {
            static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    let attempt = ATTEMPTS.fetch_add(1, Ordering::SeqCst);
                    entry.dedup_id = Some(format!("attempt-{attempt}"));
                }
                request
            })
        }),
    ),
    Mutant::new(
        "RacyBuffer",
        "lets one of two concurrent callers overwrite the other's message",
        "a_burst_of_callers_loses_nothing",
        "lost",
        Seam::Sink(|inner, _| {
            let turn = Arc::new(AtomicU64::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let is_overwritten = turn.fetch_add(1, Ordering::SeqCst) % 61 == 60;
                Box::pin(async move {
                    if is_overwritten {
                        return Ok(Receipt::new());
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "PrefixMatcher",
        "sends to every destination whose name begins so",
        "nothing_lands_on_another_destination",
        "messages at hooks-dead",
        Seam::Wire(|inner, _| {
            static LONGEST: Mutex<String> = Mutex::new(String::new());
            calling(inner, |inner, request| {
                let mut longest = LONGEST.lock().unwrap_or_else(PoisonError::into_inner);
                let stem = request.destination.trim_end_matches(".ordered");
                let mut other = request.clone();
                if longest.starts_with(stem) {
                    other.destination.clone_from(&longest);
                } else {
                    longest.clone_from(&request.destination);
                }
                Box::pin(async move {
                    if other.destination != request.destination {
                        inner.call(other).await?;
                    }
                    inner.call(request).await
                })
            })
        }),
    ),
    Mutant::new(
        "ContentHashDedup",
        "makes the deduplication id of the body",
        "equal_bodies_stay_distinct",
        "messages with equal bodies",
        Seam::Sink(|inner, _| {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            delivering(inner, move |inner, envelope, ctx| {
                let mut seen = seen.lock().expect("no panic holds it");
                let is_new = seen.insert(envelope.sha256().to_owned());
                Box::pin(async move {
                    if is_new {
                        inner.deliver(&envelope, &ctx).await
                    } else {
                        Ok(Receipt::new())
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "ErrorsOnDuplicate",
        "fails at a message that is stored already",
        "a_repeat_is_recognised_as_declared",
        "the second delivery",
        Seam::Sink(|inner, _| {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            answering(inner, move |envelope, answer| {
                let mut seen = seen.lock().expect("no panic holds it");
                match answer {
                    Ok(_) if !seen.insert(envelope.id()) => {
                        Err(SinkError::permanent("Duplicate", "it is there already"))
                    }
                    answer => answer,
                }
            })
        }),
    ),
    Mutant::new(
        "UndeclaredDedup",
        "swallows repeats without having promised to recognise them",
        "a_repeat_is_recognised_as_declared",
        "copies of one envelope without deduplication",
        Seam::Sink(|inner, _| {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            delivering(inner, move |inner, envelope, ctx| {
                let replay = ctx.replay_id().map(str::to_owned);
                let is_new = seen
                    .lock()
                    .expect("no panic holds it")
                    .insert((envelope.id(), replay));
                Box::pin(async move {
                    if is_new {
                        inner.deliver(&envelope, &ctx).await
                    } else {
                        Ok(Receipt::new())
                    }
                })
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "BufferedDurable",
        "answers Ok as soon as the message is in its own buffer",
        "what_was_acknowledged_outlives_its_caller",
        "lost",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        inner.deliver(&envelope, &ctx).await
                    });
                    Ok(Receipt::new())
                })
            })
        }),
    ),
    Mutant::new(
        "ForgetsItsDurability",
        "calls itself not durable beside guarantees that say otherwise",
        "durability_is_said_as_declared",
        "durable()",
        Seam::Sink(|inner, _| Patched::new(inner).durable(false).sink()),
    ),
];
