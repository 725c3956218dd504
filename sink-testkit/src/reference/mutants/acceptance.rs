//! Mutants of acceptance.

use std::sync::atomic::{AtomicU64, Ordering};

use dispatch_api::Receipt;

use super::tools::{answering, delivering, requesting};
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
];
