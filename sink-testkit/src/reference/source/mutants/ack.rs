//! Mutants of acks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use dispatch_api::{Delivery, LeaseKeeper, Received, SettleError, Settlement, SourceError};

use super::tools::{
    PatchedDelivery, PatchedSubscription, answering, calling, changing_answers, reconfigured,
    settling,
};
use super::{SourceMutant, SourceSeam};
use crate::reference::source::{
    EntryAnswer, QueueCall, QueueFailure, QueueMessage, QueueReply, QueueRequest, QueueWire,
};

/// What was handed out on a wire: handle and id, in order.
type HandedOut = Arc<Mutex<Vec<(String, String)>>>;

/// A wire that knows what was handed out, and changes requests by it.
fn knowing(
    inner: Arc<dyn QueueWire>,
    change: fn(&[(String, String)], QueueRequest) -> QueueRequest,
) -> Arc<dyn QueueWire> {
    let handed_out = HandedOut::default();
    calling(inner, move |inner, request| {
        let handed_out = Arc::clone(&handed_out);
        Box::pin(async move {
            let request = {
                let known = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
                change(&known, request)
            };
            let reply = inner.call(request).await;
            if let Ok(QueueReply::Messages { messages, .. }) = &reply {
                let of = |message: &QueueMessage| (message.handle.clone(), message.id.clone());
                let mut known = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
                known.extend(messages.iter().map(of));
            }
            reply
        })
    })
}

/// The handles to ack too, by what was handed out and what is acked.
type More = fn(&[(String, String)], &[String]) -> Vec<String>;

/// A wire that acks more than it is asked to: the handles that `more` names.
fn acking_more(inner: Arc<dyn QueueWire>, more: More) -> Arc<dyn QueueWire> {
    let handed_out = HandedOut::default();
    calling(inner, move |inner, request| {
        let handed_out = Arc::clone(&handed_out);
        Box::pin(async move {
            let reply = inner.call(request.clone()).await;
            let also = {
                let mut known = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok(QueueReply::Messages { messages, .. }) = &reply {
                    let of = |message: &QueueMessage| (message.handle.clone(), message.id.clone());
                    known.extend(messages.iter().map(of));
                }
                match &request.call {
                    QueueCall::Ack(handles) => more(&known, handles),
                    _ => Vec::new(),
                }
            };
            if !also.is_empty() {
                let mut ack = request;
                ack.call = QueueCall::Ack(also);
                let _ = inner.call(ack).await;
            }
            reply
        })
    })
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "AckIsNothing",
        "says that it acked, and does not",
        "ack_consumes_for_good",
        "count what is left: expected 0 messages; observed 3 messages",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    match settlement {
                        Settlement::Ack => Ok(()),
                        _ => delivery.settle(settlement).await,
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "AcksOnReceive",
        "acks what it receives",
        "ack_only_when_asked",
        "messages while the delivery is open: expected 1; observed 0",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    if let Ok(QueueReply::Messages { messages, .. }) = &reply
                        && !messages.is_empty()
                    {
                        let handles = messages.iter().map(|message| message.handle.clone());
                        let mut ack = request;
                        ack.call = QueueCall::Ack(handles.collect());
                        let _ = inner.call(ack).await;
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "AckErrorIsOk",
        "says that an ack that failed was carried out",
        "ack_failure_is_reported_and_message_returns",
        "ack: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |settlement, settled| match settlement {
                Settlement::Ack => Ok(()),
                _ => settled,
            })
        }),
    ),
    SourceMutant::new(
        "AnsweredIsOk",
        "takes an answered request for one whose every part was carried out",
        "ack_batch_partial_failure_is_told_per_message",
        "the ack that failed in its batch: expected an error; observed ok",
        SourceSeam::Wire(|inner, _| {
            changing_answers(inner, |_, answers| answers.fill(EntryAnswer::Done))
        }),
    ),
    SourceMutant::new(
        "OneFailureIsAll",
        "takes one failure of a request for that of all",
        "ack_batch_partial_failure_is_told_per_message",
        "an ack beside it: expected \"ok\"",
        SourceSeam::Wire(|inner, _| {
            changing_answers(inner, |_, answers| {
                let mut failures = answers.iter();
                let failure = failures.find(|answer| **answer != EntryAnswer::Done);
                if let Some(failure) = failure.cloned() {
                    answers.fill(failure);
                }
            })
        }),
    ),
    SourceMutant::new(
        "FirstHandleKept",
        "settles by the handle of a message's first delivery",
        "ack_uses_the_latest_hold",
        "ack: expected Ok",
        SourceSeam::Wire(|inner, _| {
            knowing(inner, |known, mut request| {
                if let QueueCall::Ack(handles) = &mut request.call {
                    for handle in handles {
                        let id = known.iter().find(|(of, _)| of == handle);
                        let first =
                            id.and_then(|(_, id)| known.iter().find(|(_, known)| known == id));
                        if let Some((first, _)) = first {
                            handle.clone_from(first);
                        }
                    }
                }
                request
            })
        }),
    ),
    SourceMutant::new(
        "LostIsOk",
        "says that an ack after a lost hold was carried out",
        "ack_after_a_lost_hold_is_not_success",
        "an ack of a lost hold: expected \"lost\"; observed \"ok\"",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |_, settled| match settled {
                Err(SettleError::Lost(_)) => Ok(()),
                settled => settled,
            })
        }),
    ),
    SourceMutant::new(
        "AcksTheMessage",
        "acks a message whoever holds it",
        "ack_never_takes_what_another_holds",
        "messages after a late ack: expected 1; observed 0",
        SourceSeam::Wire(|inner, _| {
            knowing(inner, |known, mut request| {
                if let QueueCall::Ack(handles) = &mut request.call {
                    for handle in handles {
                        let id = known.iter().find(|(of, _)| of == handle);
                        let mut latest = known.iter().rev();
                        let latest = id.and_then(|(_, id)| latest.find(|(_, known)| known == id));
                        if let Some((latest, _)) = latest {
                            handle.clone_from(latest);
                        }
                    }
                }
                request
            })
        }),
    ),
    SourceMutant::new(
        "HighWaterAck",
        "acks what was received before a message with it",
        "ack_out_of_order_is_safe",
        "what was not acked: expected that it comes again",
        SourceSeam::Wire(|inner, _| {
            let wire = acking_more(inner, |known, acked| {
                let is_acked = |(handle, _): &(String, String)| acked.contains(handle);
                let upto = known.iter().rposition(is_acked).unwrap_or_default();
                let before = known[..upto].iter();
                before.map(|(handle, _)| handle.clone()).collect()
            });
            // It takes what was acked on the way for what it acked itself.
            changing_answers(wire, |_, answers| {
                for answer in answers {
                    if *answer == EntryAnswer::Gone {
                        *answer = EntryAnswer::Done;
                    }
                }
            })
        }),
    ),
    SourceMutant::new(
        "NoAnswerIsOk",
        "takes an ack without an answer for one that was carried out",
        "ack_lost_reply_is_unknown",
        "an ack whose reply is lost: expected \"unknown\"; observed \"ok\"",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |_, settled| match settled {
                Err(SettleError::Unknown(_)) => Ok(()),
                settled => settled,
            })
        }),
    ),
    SourceMutant::new(
        "AwaitsAcksForADay",
        "waits for the answer to an ack as long as it takes",
        "ack_silence_is_unknown_and_bounded",
        "ack: expected an end within",
        SourceSeam::Source(|_, parts| {
            reconfigured(&parts, |settings| {
                settings.timeout = Duration::from_secs(86_400);
            })
        }),
    ),
    SourceMutant::new(
        "BoundToItsThread",
        "settles only where it received",
        "ack_from_another_runtime",
        "an ack on another runtime: expected \"ok\"; observed \"refused\"",
        SourceSeam::Subscription(|inner, _| {
            let home = thread::current().id();
            settling(inner, move |delivery, settlement| {
                Box::pin(async move {
                    if thread::current().id() == home {
                        return delivery.settle(settlement).await;
                    }
                    Err(SettleError::Refused(SourceError::transient(
                        "WrongThread",
                        "this is not the thread that it was received on",
                    )))
                })
            })
        }),
    ),
    SourceMutant::new(
        "LeavesOutTheLast",
        "leaves the last of many acks out of its request",
        "ack_of_many_at_once_consumes_all",
        "count what is left: expected 0 messages",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, mut request| {
                Box::pin(async move {
                    let mut is_shorter = false;
                    if let QueueCall::Ack(handles) = &mut request.call
                        && handles.len() > 5
                    {
                        handles.pop();
                        is_shorter = true;
                    }
                    let mut reply = inner.call(request).await;
                    if let Ok(QueueReply::Answers(answers)) = &mut reply
                        && is_shorter
                    {
                        answers.push(EntryAnswer::Done);
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "AcksAllInHand",
        "acks with a message all that was received",
        "ack_leaves_its_neighbours",
        "count what is left: expected 2 messages; observed 0 messages",
        SourceSeam::Wire(|inner, _| {
            acking_more(inner, |known, _| {
                let known = known.iter().rev().take(10);
                known.map(|(handle, _)| handle.clone()).collect()
            })
        }),
    ),
    SourceMutant::new(
        "NamesEntriesByMessage",
        "names the parts of a request by their messages, so that two of one are refused",
        "ack_of_one_delivered_twice_in_one_request",
        "the ack of the second delivery: expected \"ok\"",
        SourceSeam::Wire(|inner, _| {
            let handed_out: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
            calling(inner, move |inner, request| {
                let handed_out = Arc::clone(&handed_out);
                Box::pin(async move {
                    if let QueueCall::Ack(handles) = &request.call {
                        let known = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
                        let mut ids: Vec<_> =
                            handles.iter().map(|handle| known.get(handle)).collect();
                        let count = ids.len();
                        ids.sort_unstable();
                        ids.dedup();
                        if ids.len() < count {
                            return Ok(QueueReply::Failed(QueueFailure::new("InvalidCount")));
                        }
                    }
                    let reply = inner.call(request).await;
                    if let Ok(QueueReply::Messages { messages, .. }) = &reply {
                        let of =
                            |message: &QueueMessage| (message.handle.clone(), message.id.clone());
                        let mut known = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
                        known.extend(messages.iter().map(of));
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "LosesWhatItSettles",
        "reports the hold of what was acked as lost",
        "ack_ends_the_hold_without_loss",
        "the hold of what was acked: expected no loss; observed it was lost",
        SourceSeam::Subscription(|inner, _| {
            let each = |delivery: Box<dyn Delivery>| -> Box<dyn Delivery> {
                let received = delivery.received();
                let (keeper, lease) = LeaseKeeper::new(received.lease().until());
                let (id, body) = (received.id(), received.body().clone());
                let received = Received::new(id, body, lease)
                    .with_attributes(received.attributes().to_vec())
                    .with_group(received.group().map(str::to_owned))
                    .with_redelivery_count(received.redelivery_count());
                let keeper = Arc::new(keeper);
                let patched = PatchedDelivery::new(delivery).received(received);
                Box::new(patched.settle(move |delivery, settlement| {
                    let keeper = Arc::clone(&keeper);
                    Box::pin(async move {
                        let settled = delivery.settle(settlement).await;
                        keeper.lose();
                        settled
                    })
                }))
            };
            PatchedSubscription::new(inner).each(each).subscription()
        }),
    ),
];
