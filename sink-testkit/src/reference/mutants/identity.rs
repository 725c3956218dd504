//! Mutants of identity.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{DeliveryContext, HeaderField, Receipt};

use super::tools::{answering, delivering, requesting, rewriting};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "ForgetsTheTenantInTheGroup",
        "gives the messages of all tenants one group",
        "the_key_is_what_is_declared",
        "the key of a message: expected",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    entry.key = entry.key.take().map(|_| "everybody".to_owned());
                }
                request
            })
        }),
    )
    .in_mode("fair-batched"),
    Mutant::new(
        "UndeclaredKey",
        "groups messages where it is said to have no key",
        "the_key_is_what_is_declared",
        "an undeclared key: expected None; observed Some(\"harbor\")",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    entry.key = Some("harbor".to_owned());
                }
                request
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "UndeclaredReceipt",
        "gives receipts where it is said to give none",
        "the_receipt_names_the_stored_message",
        "an undeclared receipt: expected",
        Seam::Sink(|inner, _| {
            answering(inner, |envelope, answer| {
                answer.map(|receipt| receipt.with_provider_id(envelope.id().to_string()))
            })
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "PerInstanceSalt",
        "salts deduplication ids anew in every instance",
        "dedup_id_is_the_same_from_every_instance",
        "distinct deduplication ids on the wire: expected 1; observed 3",
        Seam::Wire(|inner, _| {
            static INSTANCES: AtomicU64 = AtomicU64::new(0);
            let salt = INSTANCES.fetch_add(1, Ordering::SeqCst);
            requesting(inner, move |mut request| {
                for entry in &mut request.entries {
                    let salted = entry.dedup_id.as_ref().map(|id| format!("{salt}-{id}"));
                    entry.dedup_id = salted;
                }
                request
            })
        }),
    ),
    Mutant::new(
        "AttemptInDedupId",
        "makes the number of the attempt a part of the deduplication id",
        "dedup_id_is_the_same_at_every_attempt",
        "distinct deduplication ids on the wire: expected 1; observed 2",
        Seam::Sink(|inner, parts| {
            let wire = requesting(Arc::clone(&parts.wire), |mut request| {
                for entry in &mut request.entries {
                    let attempted = entry.dedup_id.as_ref().map(|id| format!("{id}-again"));
                    entry.dedup_id = attempted;
                }
                request
            });
            let config = parts.config.clone();
            let later = crate::reference::ReferenceSink::new(config, wire, &parts.services);
            let later: Arc<dyn dispatch_api::Sink> = Arc::new(later);
            delivering(inner, move |inner, envelope, ctx| {
                let sink = match ctx.attempt_number().get() {
                    1 => inner,
                    _ => Arc::clone(&later),
                };
                Box::pin(async move { sink.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "TruncatedCollision",
        "cuts deduplication ids to a length that the broker would take anyway",
        "dedup_ids_of_similar_envelopes_differ",
        "expected 3 messages; observed 1 messages",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                if let Some(id) = &mut entry.dedup_id {
                    id.truncate(20);
                }
            })
        }),
    ),
    Mutant::new(
        "ReplaySwallowed",
        "gives a replay the deduplication id of the original",
        "a_replay_is_stored_again",
        "expected 3 messages",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                if let Some(id) = &mut entry.dedup_id {
                    id.truncate(36);
                }
            })
        }),
    ),
    Mutant::new(
        "RandomReplayId",
        "gives every attempt of a replay a deduplication id of its own",
        "a_repeat_of_a_replay_is_recognised",
        "stored replays: expected 2; observed 4",
        Seam::Wire(|inner, _| {
            static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    if let Some(id) = &mut entry.dedup_id
                        && id.contains(":replay:")
                    {
                        let attempt = ATTEMPTS.fetch_add(1, Ordering::SeqCst);
                        id.push_str(&format!("-{attempt}"));
                    }
                }
                request
            })
        }),
    ),
    Mutant::new(
        "ForeverDedup",
        "recognises repeats for ever",
        "a_repeat_after_the_window_is_stored_again",
        "messages after the window",
        Seam::Sink(|inner, _| {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            delivering(inner, move |inner, envelope, ctx| {
                let replay = ctx.replay_id().map(str::to_owned);
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = seen.insert((envelope.id(), replay));
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
        "ReceiptOfNeighbour",
        "answers with the receipt of the delivery before",
        "the_receipt_names_the_stored_message",
        "a receipt's id",
        Seam::Sink(|inner, _| {
            let last = Arc::new(Mutex::new(None::<Receipt>));
            answering(inner, move |_, answer| {
                let receipt = answer?;
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(last.replace(receipt.clone()).unwrap_or(receipt))
            })
        }),
    ),
    Mutant::new(
        "OneReceiptForAll",
        "answers every delivery with the first receipt",
        "receipts_are_unique",
        "distinct receipts: expected 12; observed 1",
        Seam::Sink(|inner, _| {
            let first = Arc::new(Mutex::new(None::<Receipt>));
            answering(inner, move |_, answer| {
                let receipt = answer?;
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(first.get_or_insert(receipt).clone())
            })
        }),
    ),
    Mutant::new(
        "InventedReceipt",
        "invents an id for what was stored before",
        "the_receipt_of_a_repeat_names_the_first",
        "the id in the receipt of the repeat",
        Seam::Sink(|inner, _| {
            let seen = Arc::new(Mutex::new(HashMap::new()));
            answering(inner, move |envelope, answer| {
                let receipt = answer?;
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let times = seen.entry(envelope.id()).or_insert(0);
                *times += 1;
                Ok(match *times {
                    1 => receipt,
                    times => receipt.with_provider_id(format!("repeat-{times}")),
                })
            })
        }),
    ),
    Mutant::new(
        "OneKeyForAll",
        "gives every message one key",
        "the_key_is_one_for_tenant_and_source",
        "distinct keys of tenants and sources",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    entry.key = entry.key.is_some().then(|| "all".to_owned());
                }
                request
            })
        }),
    ),
    Mutant::new(
        "KeyOfTheReplay",
        "orders a replay apart from what it repeats",
        "a_replay_keeps_the_key",
        "the key of a replay",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    let is_replay = |id: &String| id.contains(":replay:");
                    if entry.dedup_id.as_ref().is_some_and(is_replay) {
                        entry.key = Some("replays".to_owned());
                    }
                }
                request
            })
        }),
    ),
    Mutant::new(
        "AttemptOnTheWire",
        "writes the number of the attempt into the message",
        "the_attempt_leaves_no_trace",
        "the field headers of the third attempt",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx: DeliveryContext| {
                let attempt = ctx.attempt_number().get();
                let envelope = match attempt {
                    1 => envelope,
                    _ => {
                        let header = HeaderField::new("X-Attempt", attempt.to_string());
                        let mut headers = envelope.headers().to_vec();
                        headers.push(header);
                        envelope.with_headers(headers)
                    }
                };
                Box::pin(async move { inner.deliver(&envelope, &ctx).await })
            })
        }),
    ),
];
