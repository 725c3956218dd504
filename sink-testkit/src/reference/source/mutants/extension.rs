//! Mutants of holds that are extended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dispatch_api::{Lease, LeaseKeeper, Settlement};
use tokio::time::{Instant, sleep};

use super::hold::{haunted, held};
use super::tools::{
    calling, changing_answers, changing_received, reconfigured, replying, settling,
};
use super::{SourceMutant, SourceSeam};
use crate::reference::source::{EntryAnswer, HoldChange, QueueCall, QueueReply, QueueRequest};

fn is_extension(request: &QueueRequest) -> bool {
    matches!(request.call, QueueCall::Extend(_))
}

fn all_of(request: &QueueRequest, answer: &EntryAnswer) -> QueueReply {
    let handles = request.call.handles();
    QueueReply::Answers(vec![answer.clone(); handles.len()])
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "NoHeartbeat",
        "extends nothing",
        "hold_is_extended_while_it_is_kept",
        "watch for what must not come: expected nothing; observed",
        SourceSeam::Source(|_, parts| reconfigured(&parts, |settings| settings.extends = false)),
    ),
    SourceMutant::new(
        "KeepsTheFirstEnd",
        "does not say that a hold was extended",
        "hold_extension_precedes_its_end",
        "the end of a hold that is kept: expected in the future all the time",
        SourceSeam::Subscription(|inner, parts| {
            let hold = parts.settings.hold;
            changing_received(inner, move |received| {
                let end = Instant::now() + hold;
                held(received, LeaseKeeper::new(Some(end)).1)
            })
        }),
    ),
    SourceMutant::new(
        "ZombieHeartbeat",
        "extends once more after the settlement",
        "hold_extension_stops_on_settle",
        "extensions after the settlement: expected",
        SourceSeam::Wire(|inner, parts| {
            let hold = parts.settings.hold;
            calling(inner, move |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    if let QueueCall::Ack(handles) = &request.call {
                        let mut zombie = request.clone();
                        let changes = handles.iter().map(|handle| HoldChange {
                            handle: handle.clone(),
                            time: hold,
                        });
                        zombie.call = QueueCall::Extend(changes.collect());
                        tokio::spawn(async move {
                            sleep(hold / 2).await;
                            inner.call(zombie).await
                        });
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "OutlivesTheDrop",
        "extends a delivery that was dropped",
        "hold_extension_stops_on_drop",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            haunted(inner, |delivery, runtime| {
                runtime.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(delivery);
                });
            })
        }),
    ),
    SourceMutant::new(
        "OutlivesTheHandler",
        "extends a delivery whose handler panicked",
        "hold_extension_stops_on_panic",
        "consume: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    if settlement != Settlement::Retry {
                        return delivery.settle(settlement).await;
                    }
                    tokio::spawn(async move {
                        std::future::pending::<()>().await;
                        drop(delivery);
                    });
                    Ok(())
                })
            })
        }),
    ),
    SourceMutant::new(
        "IgnoresGone",
        "takes a refused extension for one that was made",
        "hold_extension_refused_is_told",
        "a hold that is not extended: expected it is told as lost",
        SourceSeam::Wire(|inner, _| {
            changing_answers(inner, |request, answers| {
                if is_extension(request) {
                    answers.fill(EntryAnswer::Done);
                }
            })
        }),
    ),
    SourceMutant::new(
        "GivesUpAtOnce",
        "gives a hold up after one extension that failed",
        "hold_extension_failure_is_tried_again",
        "watch for what must not come: expected nothing; observed 1 deliveries",
        SourceSeam::Wire(|inner, _| {
            replying(inner, |request, reply| match reply {
                Err(_) if is_extension(request) => Ok(all_of(request, &EntryAnswer::Gone)),
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "ExtendsOnlyOne",
        "extends one delivery of those that it has",
        "hold_extension_covers_buffered_deliveries",
        "watch for what must not come: expected nothing; observed",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, mut request| {
                Box::pin(async move {
                    let all = all_of(&request, &EntryAnswer::Done);
                    let QueueCall::Extend(changes) = &mut request.call else {
                        return inner.call(request).await;
                    };
                    changes.truncate(1);
                    inner.call(request).await?;
                    Ok(all)
                })
            })
        }),
    ),
    SourceMutant::new(
        "AllHeldOnAnAnswer",
        "takes an answer for the success of every extension in it",
        "hold_extension_partial_failure_loses_only_those",
        "the hold whose extension fails: expected it is told as lost",
        SourceSeam::Wire(|inner, _| {
            changing_answers(inner, |request, answers| {
                if is_extension(request) {
                    answers.fill(EntryAnswer::Done);
                }
            })
        }),
    ),
    SourceMutant::new(
        "AllLostOnAny",
        "gives up every hold of a request in which one extension failed",
        "hold_extension_partial_failure_loses_only_those",
        "neighbours that somebody else got: expected 0; observed 9",
        SourceSeam::Wire(|inner, _| {
            changing_answers(inner, |request, answers| {
                let is_done = |answer: &EntryAnswer| *answer == EntryAnswer::Done;
                if is_extension(request) && !answers.iter().all(is_done) {
                    answers.fill(EntryAnswer::Gone);
                }
            })
        }),
    ),
    SourceMutant::new(
        "NeverEnds",
        "does not say that the broker extends no more",
        "hold_extension_ends",
        "a hold at the end of all extensions: expected it is told as lost",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| held(received, Lease::unlimited()))
        }),
    ),
    SourceMutant::new(
        "EndsTooSoon",
        "says that a hold is lost after an hour",
        "hold_extension_ends",
        "a hold at the end of all extensions: expected it is held for",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let hour = Duration::from_secs(3_600);
                let (keeper, lease) = LeaseKeeper::new(Some(Instant::now() + hour));
                tokio::spawn(async move {
                    sleep(hour).await;
                    keeper.lose();
                });
                held(received, lease)
            })
        }),
    ),
    SourceMutant::new(
        "ExtensionWins",
        "leaves out a settlement while an extension is under way",
        "settlement_wins_over_an_extension_under_way",
        "the time of its return: expected not later than",
        SourceSeam::Wire(|inner, _| {
            let under_way = Arc::new(AtomicUsize::new(0));
            calling(inner, move |inner, request| {
                let under_way = Arc::clone(&under_way);
                let done = all_of(&request, &EntryAnswer::Done);
                Box::pin(async move {
                    match &request.call {
                        QueueCall::Extend(_) => {
                            under_way.fetch_add(1, Ordering::SeqCst);
                            tokio::spawn(async move {
                                let _ = inner.call(request).await;
                                under_way.fetch_sub(1, Ordering::SeqCst);
                            });
                            Ok(done)
                        }
                        QueueCall::Return(_) if under_way.load(Ordering::SeqCst) > 0 => Ok(done),
                        _ => inner.call(request).await,
                    }
                })
            })
        }),
    ),
];
