//! Mutants of order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dispatch_api::Settlement;

use super::tools::{PatchedSubscription, changing_messages, consuming, receiving, resettling};
use super::{SourceMutant, SourceSeam};

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "ClaimsOrder",
        "says that it is ordered, and is not",
        "order_is_declared_as_it_is",
        "is_ordered: expected false; observed true",
        SourceSeam::Subscription(|inner, _| {
            PatchedSubscription::new(inner).ordered(true).subscription()
        }),
    )
    .in_mode("plain-single"),
    SourceMutant::new(
        "ReversesAReply",
        "hands out the messages of a reply from the last to the first",
        "consume_order_per_key_among_many",
        "the order of a key",
        SourceSeam::Wire(|inner, _| changing_messages(inner, |messages| messages.reverse())),
    ),
    SourceMutant::new(
        "ParallelInKey",
        "does not say that it is ordered, so that a key is handled all at once",
        "consume_one_of_a_key_at_a_time",
        "handlers of one key at once: expected 1",
        SourceSeam::Subscription(|inner, _| {
            PatchedSubscription::new(inner)
                .ordered(false)
                .subscription()
        }),
    ),
    SourceMutant::new(
        "GlobalSerial",
        "handles one message at a time, of whatever key",
        "consume_keys_beside_each_other",
        "while one key waits",
        SourceSeam::Consume(|subscription, mut settings, handler, stop| {
            settings.concurrency = std::num::NonZeroUsize::MIN;
            consuming(subscription, settings, handler, stop)
        }),
    ),
    SourceMutant::new(
        "AcksTheRest",
        "acknowledges what is given back behind a message that failed",
        "consume_failed_member_brings_back_the_rest",
        "the places [0, 0, 1, 2]",
        SourceSeam::Subscription(|inner, _| {
            let has_retried = Arc::new(AtomicBool::new(false));
            resettling(inner, move |settlement| match settlement {
                Settlement::Retry if has_retried.swap(true, Ordering::SeqCst) => Settlement::Ack,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "SkipsUnacked",
        "takes what another one held for done",
        "consume_order_after_a_handover",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let mut first_time = Vec::new();
                    for delivery in inner.receive(max).await? {
                        match delivery.received().redelivery_count() {
                            Some(2..) => drop(delivery.settle(Settlement::Ack).await),
                            _ => first_time.push(delivery),
                        }
                    }
                    Ok(first_time)
                })
            })
        }),
    ),
];
