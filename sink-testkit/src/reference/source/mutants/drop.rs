//! Mutants of messages that will never be handled.

use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::Settlement;

use super::redrive::bury;
use super::tools::{answering, calling, resettling, settling};
use super::{SourceMutant, SourceSeam};
use crate::reference::source::{QueueCall, QueueReply};

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "DropIsRetry",
        "gives a dropped message back",
        "drop_never_comes_back",
        "count what is left: expected 0 messages; observed 1 messages",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::Drop => Settlement::Retry,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "DropsIntoDeadLetters",
        "puts every dropped message where spent ones go",
        "drop_is_not_a_dead_letter",
        "dead letters after a drop: expected 0; observed 1",
        SourceSeam::Subscription(|inner, parts| {
            settling(inner, move |delivery, settlement| {
                if settlement == Settlement::Drop {
                    bury(&parts, delivery.received(), true);
                }
                delivery.settle(settlement)
            })
        }),
    ),
    SourceMutant::new(
        "DropAtTheCapIsLost",
        "consumes a message that is dropped at its last attempt",
        "drop_at_the_cap_is_kept",
        "read dead letters: expected 1 messages; observed 0 messages",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::Drop => Settlement::Ack,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "DropsTheWholeReceive",
        "consumes all that came in the same receive",
        "drop_leaves_its_neighbours",
        "count what is left: expected 2 messages; observed 0 messages",
        SourceSeam::Wire(|inner, _| {
            let received: Arc<Mutex<Vec<String>>> = Arc::default();
            calling(inner, move |inner, mut request| {
                let received = Arc::clone(&received);
                Box::pin(async move {
                    if let QueueCall::Ack(handles) = &mut request.call {
                        let received = received.lock().unwrap_or_else(PoisonError::into_inner);
                        let others = received.iter().filter(|handle| !handles.contains(handle));
                        let others: Vec<String> = others.cloned().collect();
                        handles.extend(others);
                    }
                    let reply = inner.call(request).await?;
                    if let QueueReply::Messages { messages, .. } = &reply
                        && !messages.is_empty()
                    {
                        let handles = messages.iter().map(|message| message.handle.clone());
                        *received.lock().unwrap_or_else(PoisonError::into_inner) =
                            handles.collect();
                    }
                    Ok(reply)
                })
            })
        }),
    ),
    SourceMutant::new(
        "HopesForDrops",
        "answers Ok for a drop that did not reach the broker",
        "drop_failure_is_reported",
        "drop: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |settlement, settled| match settlement {
                Settlement::Drop => Ok(()),
                _ => settled,
            })
        }),
    ),
];
