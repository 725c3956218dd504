//! Mutants of batches.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{DeliveryContext, Envelope, Sink, SinkError};

use super::tools::{answering, as_stored, calling, changing_results, delivering, replying};
use super::{Mutant, Parts, Seam};
use crate::reference::Reply;
use crate::reference::reply::{FailedEntry, Results};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "NeverShares",
        "sends each message in a request of its own",
        "batch_shares_requests",
        "requests: expected 1; observed 5",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, _| {
                Box::pin(async move { inner.deliver(&envelope, &DeliveryContext::direct()).await })
            })
        }),
    ),
    Mutant::new(
        "SharesInSilence",
        "sends batches although it declares none",
        "batch_shares_requests",
        "messages of each request without batching: expected [1, 1, 1, 1, 1]; observed [5]",
        Seam::Build(|options, _, honest| {
            let mut options = options.clone();
            options["batch"] = true.into();
            honest(&options)
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "AllOkOn200",
        "takes a good status for the success of all messages",
        "batch_partial_failure_per_caller",
        "caller 1 of a batch of which two fail: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for failed in std::mem::take(&mut results.failed) {
                    let mut entries = request.entries.iter();
                    let entry = entries.find(|entry| entry.id == failed.id);
                    results.stored.extend(entry.map(as_stored));
                }
            })
        }),
    ),
    Mutant::new(
        "AllFailOnAny",
        "fails all messages of a batch when one failed",
        "batch_partial_failure_per_caller",
        "caller 0 of a batch of which two fail: expected Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |_, results| {
                if let Some(code) = results.failed.first().map(|failed| failed.code.clone()) {
                    for stored in std::mem::take(&mut results.stored) {
                        results.failed.push(FailedEntry {
                            id: stored.id,
                            code: code.clone(),
                            text: String::new(),
                        });
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "FirstClassForAll",
        "gives every failed message the failure of the first",
        "batch_entry_classes_differ",
        "caller 1 of a batch with different failures: expected \"retry_after\"",
        Seam::Wire(|inner, _| {
            changing_results(inner, |_, results| {
                if let Some(code) = results.failed.first().map(|failed| failed.code.clone()) {
                    for failed in &mut results.failed {
                        failed.code.clone_from(&code);
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "MissingIsOk",
        "takes a message that the reply does not mention for stored",
        "batch_unaccounted_entry_fails",
        "that is not mentioned: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for entry in &request.entries {
                    let is_mentioned = results.stored.iter().any(|stored| stored.id == entry.id)
                        || results.failed.iter().any(|failed| failed.id == entry.id);
                    if !is_mentioned {
                        results.stored.push(as_stored(entry));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "CallerHangs",
        "never answers the caller whose message is not mentioned",
        "batch_unaccounted_entry_fails",
        "the answers: expected an end within",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    match inner.deliver(&envelope, &ctx).await {
                        Err(error) if error.code() == "BatchEntryMissing" => {
                            std::future::pending().await
                        }
                        answer => answer,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "StoredWins",
        "takes a message that is in both lists for stored",
        "batch_entry_in_both_lists_is_unknown",
        "in both lists: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |_, results| {
                let Results { stored, failed } = results;
                failed.retain(|failed| !stored.iter().any(|stored| stored.id == failed.id));
            })
        }),
    ),
    Mutant::new(
        "CountsResults",
        "distrusts a whole reply that has more results than messages",
        "batch_repeated_result_harms_no_neighbour",
        "caller 0 of a batch with a result that comes twice: expected Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |_, results| {
                let mut ids: Vec<&String> = results.stored.iter().map(|entry| &entry.id).collect();
                ids.sort_unstable();
                let count = ids.len();
                ids.dedup();
                if ids.len() < count {
                    results.stored.clear();
                }
            })
        }),
    ),
    Mutant::new(
        "IndexPanic",
        "panics at a result for a message that it did not send",
        "batch_unknown_result_id_is_ignored",
        "SinkPanicked",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for stored in &results.stored {
                    if !request.entries.iter().any(|entry| entry.id == stored.id) {
                        std::panic::resume_unwind(Box::new("an index out of bounds"));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "PositionalMatching",
        "matches results by their place in the reply",
        "batch_result_order_irrelevant",
        "results in reverse: expected Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for (stored, entry) in results.stored.iter_mut().zip(&request.entries) {
                    stored.id.clone_from(&entry.id);
                }
            })
        }),
    ),
    Mutant::new(
        "OnlyFirstNotified",
        "tells the failure of a request to its first caller only",
        "batch_whole_request_failure_fails_every_member",
        "caller 1 of a request that is lost: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            replying(inner, |request, reply| {
                if request.entries.len() < 2 || reply.as_ref().is_ok_and(|r| r.status == 200) {
                    return reply;
                }
                let mut results = Results::default();
                results.failed.push(FailedEntry {
                    id: request.entries[0].id.clone(),
                    code: "Unavailable".to_owned(),
                    text: String::new(),
                });
                results.stored = request.entries[1..].iter().map(as_stored).collect();
                Ok(Reply::new(200, results.to_body()))
            })
        }),
    ),
    Mutant::new(
        "ResendsAll",
        "sends the request before again when one fails",
        "batch_later_request_failure_keeps_earlier_successes",
        "messages in the requests: expected each once",
        Seam::Wire(|inner, _| {
            let before: Arc<Mutex<Option<_>>> = Arc::default();
            calling(inner, move |inner, request| {
                let before = Arc::clone(&before);
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    let earlier = {
                        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
                        before.replace(request)
                    };
                    if let (Err(_), Some(earlier)) = (&reply, earlier) {
                        let _ = inner.call(earlier).await;
                    }
                    reply
                })
            })
        }),
    ),
    Mutant::new(
        "EnvelopeIdAsEntryId",
        "names the entries of a request by their envelopes",
        "batch_entry_ids_unique",
        "distinct ids of entries: expected 3; observed 2",
        Seam::Wire(|inner, _| {
            calling(inner, |inner, mut request| {
                Box::pin(async move {
                    let own: Vec<(String, String)> = request
                        .entries
                        .iter_mut()
                        .map(|entry| {
                            let envelope =
                                crate::conformance::StoredMessage::new(entry.body.clone());
                            let own = std::mem::replace(&mut entry.id, envelope.envelope_id());
                            (own, entry.id.clone())
                        })
                        .collect();
                    let reply = inner.call(request).await?;
                    Ok(crate::reference::script::changed(reply, |results| {
                        let ids = results.stored.iter_mut().map(|entry| &mut entry.id);
                        for id in ids.chain(results.failed.iter_mut().map(|entry| &mut entry.id)) {
                            if let Some((own, _)) = own.iter().find(|(_, of)| of == id) {
                                id.clone_from(own);
                            }
                        }
                    }))
                })
            })
        }),
    ),
    Mutant::new(
        "WholeBatchRefused",
        "refuses the neighbours of a message that is too large",
        "batch_bad_member_does_not_poison_others",
        "caller 0 of a batch with a message too large: expected Ok",
        Seam::Sink(|inner, _| {
            let has_refused = Arc::new(AtomicBool::new(false));
            answering(inner, move |_, answer| {
                let is_too_large = |error: &SinkError| error.code() == "MessageTooLarge";
                if answer.as_ref().is_err_and(is_too_large) {
                    has_refused.store(true, Ordering::SeqCst);
                    return answer;
                }
                match has_refused.load(Ordering::SeqCst) {
                    true => Err(SinkError::permanent("MessageTooLarge", "the batch")),
                    false => answer,
                }
            })
        }),
    ),
    Mutant::new(
        "WholeBatchOfTheCharacter",
        "refuses the neighbours of a message with a control character",
        "batch_member_with_forbidden_characters_fails_alone",
        "caller 0 of a batch with a control character: expected Ok",
        Seam::Sink(|inner, _| {
            let refused: Arc<Mutex<Option<SinkError>>> = Arc::default();
            answering(inner, move |envelope, answer| {
                let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                let key = envelope.dedupe_key().unwrap_or_default();
                if key.contains('\u{1}')
                    && let Err(error) = &answer
                {
                    *refused = Some(error.clone());
                }
                match refused.clone() {
                    Some(error) => Err(error),
                    None => answer,
                }
            })
        }),
    ),
    Mutant::new(
        "ResendsTheAccepted",
        "sends the accepted neighbours along when a message is attempted again",
        "batch_failed_member_alone_is_sent_again",
        "messages of the second attempt: expected 1",
        Seam::Sink(|inner, _| {
            let before: Arc<Mutex<Vec<Envelope>>> = Arc::default();
            delivering(inner, move |inner, envelope, ctx| {
                let before = Arc::clone(&before);
                Box::pin(async move {
                    let neighbours = {
                        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
                        let is_again = before.iter().any(|known| known.id() == envelope.id());
                        match is_again {
                            true => before.clone(),
                            false => {
                                before.push(envelope.clone());
                                Vec::new()
                            }
                        }
                    };
                    let others = neighbours
                        .iter()
                        .filter(|known| known.id() != envelope.id())
                        .map(|known| inner.deliver(known, &ctx));
                    let others = futures_util::future::join_all(others);
                    let (answer, _) = tokio::join!(inner.deliver(&envelope, &ctx), others);
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "SharedBuffer",
        "sends what it is given to the destination of the host's first sink",
        "batch_does_not_mix_destinations",
        "what was sent to hooks: expected",
        Seam::Sink(|inner, parts| shared(inner, &parts, "the first sink")),
    ),
    Mutant::new(
        "SharedByDestination",
        "sends with the credentials of the destination's first sink",
        "batch_does_not_mix_credentials",
        "whose request a message is in: expected true; observed false",
        Seam::Sink(|inner, parts| shared(inner, &parts, &parts.config.destination)),
    ),
];

struct Shared(Arc<dyn Sink>);

/// The first sink of this key within the host, in the place of every later one.
fn shared(inner: Arc<dyn Sink>, parts: &Parts, key: &str) -> Arc<dyn Sink> {
    let own = Arc::clone(&inner);
    let pool = parts.services.pool();
    let first = pool.get_or_try_create(key, || Ok::<_, Infallible>(Shared(inner)));
    let Ok(first) = first;
    delivering(own, move |_, envelope, ctx| {
        let first = Arc::clone(&first);
        Box::pin(async move { first.0.deliver(&envelope, &ctx).await })
    })
}
