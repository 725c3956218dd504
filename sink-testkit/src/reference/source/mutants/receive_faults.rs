//! Mutants of receives that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dispatch_api::{Settlement, SourceError};
use tokio::sync::oneshot;

use super::tools::{calling, changing_messages, receiving, reconfigured};
use super::{SourceMutant, SourceSeam};
use crate::reference::broker::body_digest;
use crate::reference::source::{QueueCall, QueueReply};

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "ErrorIsNothing",
        "says that nothing came when a receive fails",
        "receive_fetch_error_is_reported_and_recovers",
        "a broken receive: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move { Ok(inner.receive(max).await.unwrap_or_default()) })
            })
        }),
    ),
    SourceMutant::new(
        "EveryErrorIsTransient",
        "takes every error for one that passes",
        "receive_error_classes_are_the_tables",
        "the row Missing: expected \"config\"; observed \"transient\"",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let received = inner.receive(max).await;
                    received.map_err(|error| {
                        SourceError::transient(error.code().to_owned(), error.text().to_owned())
                    })
                })
            })
        }),
    ),
    SourceMutant::new(
        "WaitsForADay",
        "waits for an answer as long as it takes",
        "receive_silence_is_bounded",
        "receive: expected an end within",
        SourceSeam::Source(|_, parts| {
            reconfigured(&parts, |settings| {
                settings.timeout = Duration::from_secs(86_400);
            })
        }),
    ),
    SourceMutant::new(
        "AsksAgainInSecret",
        "asks once more when a receive fails, and tells nobody",
        "receive_lost_reply_comes_back",
        "a receive whose reply is lost: expected an error; observed Ok of 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    match inner.receive(max).await {
                        Err(_) => inner.receive(max).await,
                        received => received,
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "IgnoresDigests",
        "does not compare a body with its digest",
        "receive_integrity_mismatch_is_not_delivered",
        "deliveries with a wrong digest: expected 0; observed 1",
        SourceSeam::Wire(|inner, _| {
            changing_messages(inner, |messages| {
                for message in messages {
                    message.digest = body_digest(&message.body);
                }
            })
        }),
    ),
    SourceMutant::new(
        "AcksWhatIsSpoilt",
        "acks a message that does not fit its digest, to be rid of it",
        "receive_integrity_mismatch_is_not_settled",
        "count what is left: expected 1 messages; observed 0 messages",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    if let Ok(QueueReply::Messages { messages, .. }) = &reply {
                        let spoilt = messages
                            .iter()
                            .filter(|message| body_digest(&message.body) != message.digest);
                        let handles: Vec<String> =
                            spoilt.map(|message| message.handle.clone()).collect();
                        if !handles.is_empty() {
                            let mut ack = request;
                            ack.call = QueueCall::Ack(handles);
                            let _ = inner.call(ack).await;
                        }
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "GivesUpAfterThree",
        "asks no more after three failures",
        "receive_repeated_failures_stay_errors_and_then_recover",
        "failed receive 4: expected an error; observed Ok of 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            let failures = Arc::new(AtomicU64::new(0));
            receiving(inner, move |inner, max| {
                let failures = Arc::clone(&failures);
                Box::pin(async move {
                    if failures.load(Ordering::SeqCst) >= 3 {
                        return Ok(Vec::new());
                    }
                    let received = inner.receive(max).await;
                    if received.is_err() {
                        failures.fetch_add(1, Ordering::SeqCst);
                    }
                    received
                })
            })
        }),
    ),
    SourceMutant::new(
        "AcksWhatNobodyAwaits",
        "acks what comes to a receive that was dropped",
        "receive_dropped_while_waiting_loses_nothing",
        "what came after the drop: expected 1 messages",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                let (sender, receiver) = oneshot::channel();
                tokio::spawn(async move {
                    let received = inner.receive(max).await;
                    if let Err(Ok(deliveries)) = sender.send(received) {
                        for delivery in deliveries {
                            let _ = delivery.settle(Settlement::Ack).await;
                        }
                    }
                });
                Box::pin(async move {
                    receiver.await.unwrap_or_else(|_| {
                        Err(SourceError::transient("Stopped", "the receive was stopped"))
                    })
                })
            })
        }),
    ),
];
