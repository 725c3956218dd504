//! Mutants of retries.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{Consumer, Received, SettleError, Settlement};
use futures_util::FutureExt as _;

use super::tools::{
    PatchedSubscription, answering, changing_received, rebuilt, resettling, settling,
};
use super::{SourceMutant, SourceSeam};
use crate::conformance::source::RawMessage;

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "RetryIsAck",
        "acks what is retried",
        "retry_brings_the_same_message_back",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::Retry => Settlement::Ack,
                settlement => settlement,
            })
        }),
    ),
    SourceMutant::new(
        "WaitsForTheHold",
        "lets go of what is retried, and leaves it to the end of its hold",
        "retry_is_prompt",
        "a retry: expected it comes well within the hold",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    match settlement {
                        Settlement::Retry => Ok(()),
                        _ => delivery.settle(settlement).await,
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "NewBodyOnRetry",
        "writes into the body what number the delivery is",
        "retry_content_is_the_original",
        "the body: expected the bytes of the first delivery",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let count = received.redelivery_count().unwrap_or_default();
                let spaces = " ".repeat(count.saturating_sub(1) as usize);
                let body = [&received.body()[..], spaces.as_bytes()].concat();
                rebuilt(received, received.id(), body)
            })
        }),
    ),
    SourceMutant::new(
        "CountsOnceForAll",
        "takes each delivery for the first",
        "retry_count_grows_by_one",
        "the count of deliveries: expected Some(2); observed Some(1)",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                received.clone().with_redelivery_count(Some(1))
            })
        }),
    ),
    SourceMutant::new(
        "CountsForItself",
        "counts the deliveries of its own subscription",
        "retry_count_survives_a_reconnect",
        "the count at a new subscription: expected Some(2); observed Some(1)",
        SourceSeam::Subscription(|inner, _| {
            let counts: Mutex<BTreeMap<String, u32>> = Mutex::default();
            changing_received(inner, move |received| {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(received.id().to_owned()).or_default();
                *count += 1;
                received.clone().with_redelivery_count(Some(*count))
            })
        }),
    ),
    SourceMutant::new(
        "RetriesTheNextToo",
        "retries what is settled after a retry",
        "retry_of_some_leaves_the_others",
        "what comes again: expected 2 messages, each once; observed 4 messages",
        SourceSeam::Subscription(|inner, _| {
            let is_next = Arc::new(AtomicBool::new(false));
            resettling(inner, move |settlement| {
                let was_next = is_next.swap(settlement == Settlement::Retry, Ordering::SeqCst);
                match was_next {
                    true => Settlement::Retry,
                    false => settlement,
                }
            })
        }),
    ),
    SourceMutant::new(
        "LosesTheThirdRetry",
        "acks what is retried for the third time",
        "retry_storm_loses_nothing",
        "consume: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                let count = delivery.received().redelivery_count().unwrap_or_default();
                match (settlement, count) {
                    (Settlement::Retry, 3..) => delivery.settle(Settlement::Ack),
                    _ => delivery.settle(settlement),
                }
            })
        }),
    ),
    SourceMutant::new(
        "PanicIsAck",
        "acks what a handler panics on",
        "retry_from_a_panic",
        "consume: expected an end within",
        SourceSeam::Consume(|subscription, settings, handler, stop| {
            Box::pin(async move {
                let handler = move |received: Received| {
                    let handling = AssertUnwindSafe(handler(received)).catch_unwind();
                    async move { handling.await.unwrap_or(Settlement::Ack) }
                };
                Consumer::new(settings)
                    .run(subscription, handler, stop)
                    .await
            })
        }),
    ),
    SourceMutant::new(
        "WaitsForItsHandler",
        "gives a handler all the time that it takes",
        "retry_from_a_time_out",
        "consume: expected an end within",
        SourceSeam::Consume(|subscription, mut settings, handler, stop| {
            Box::pin(async move {
                settings.handler_timeout = Duration::from_secs(86_400);
                Consumer::new(settings)
                    .run(subscription, move |received| handler(received), stop)
                    .await
            })
        }),
    ),
    SourceMutant::new(
        "RetryErrorIsOk",
        "says that a retry that failed was carried out",
        "retry_failure_is_reported_and_message_returns",
        "retry: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |settlement, settled| match settlement {
                Settlement::Retry => Ok(()),
                _ => settled,
            })
        }),
    ),
    SourceMutant::new(
        "NoAnswerIsRefused",
        "takes a retry without an answer for one that changed nothing",
        "retry_lost_reply_is_not_success",
        "a retry whose reply is lost: expected \"unknown\"; observed \"refused\"",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |_, settled| match settled {
                Err(SettleError::Unknown(error)) => Err(SettleError::Refused(error)),
                settled => settled,
            })
        }),
    ),
    SourceMutant::new(
        "ForgetsItsOrder",
        "does not say that its deliveries are in order",
        "retry_keeps_the_order_of_its_key",
        "a subscription with order by key: expected that it says so",
        SourceSeam::Subscription(|inner, _| {
            PatchedSubscription::new(inner)
                .ordered(false)
                .subscription()
        }),
    ),
    SourceMutant::new(
        "RetryIsDeadToo",
        "keeps a dead letter of what is retried",
        "retry_is_not_a_drop",
        "dead letters below the cap: expected 0; observed 2",
        SourceSeam::Subscription(|inner, parts| {
            settling(inner, move |delivery, settlement| {
                if settlement == Settlement::Retry
                    && let Some(dead) = &parts.plan.dead_letter
                {
                    let message = RawMessage::new(delivery.received().body().clone());
                    let _ = parts.broker.put(dead, &[message]);
                }
                delivery.settle(settlement)
            })
        }),
    ),
];
