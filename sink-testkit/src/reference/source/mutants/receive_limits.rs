//! Mutants of how much comes.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{Delivery, Settlement};

use super::tools::{changing_received, closing, rebuilt, receiving, reconfigured};
use super::{SourceMutant, SourceSeam};

/// What one request may bring.
const MANY: NonZeroUsize = NonZeroUsize::new(10).expect("10 is not zero");

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "CutsLongBodies",
        "reads a body into a buffer of 64 KiB",
        "receive_of_the_largest_message",
        "the largest body: expected",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let body = received.body();
                let body = body.slice(..body.len().min(65_536));
                rebuilt(received, received.id(), body)
            })
        }),
    ),
    SourceMutant::new(
        "AsksForTooMany",
        "asks for more than it was asked for",
        "receive_never_brings_more_than_asked",
        "a receive of 3: expected 3 deliveries at most",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, _| {
                Box::pin(async move { inner.receive(MANY).await })
            })
        }),
    ),
    SourceMutant::new(
        "WantsAllItAskedFor",
        "gives back what comes when it is less than was asked for",
        "receive_small_rest_is_delivered",
        "7 messages, 5 at a time: expected 7 messages",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let deliveries = inner.receive(max).await?;
                    if deliveries.len() == max.get() {
                        return Ok(deliveries);
                    }
                    for delivery in deliveries {
                        let _ = delivery.settle(Settlement::Retry).await;
                    }
                    Ok(Vec::new())
                })
            })
        }),
    ),
    SourceMutant::new(
        "HoldsForASecond",
        "holds for a second, whatever it is told, and never extends",
        "receive_hands_out_nothing_twice_within_a_hold",
        "watch for what must not come: expected nothing",
        SourceSeam::Source(|_, parts| {
            reconfigured(&parts, |settings| {
                settings.hold = Duration::from_secs(1);
                settings.extends = false;
            })
        }),
    ),
    SourceMutant::new(
        "GreedyPrefetch",
        "takes as many as there are, and keeps those for later",
        "receive_prefetch_is_bounded",
        "messages in hand after a receive of 2: expected from 2 to 2",
        SourceSeam::Subscription(|inner, _| {
            let kept: Arc<Mutex<VecDeque<Box<dyn Delivery>>>> = Arc::default();
            receiving(inner, move |inner, max| {
                let kept = Arc::clone(&kept);
                Box::pin(async move {
                    let is_empty = kept
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .is_empty();
                    let more = match is_empty {
                        true => inner.receive(MANY).await?,
                        false => Vec::new(),
                    };
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend(more);
                    let count = kept.len().min(max.get());
                    Ok(kept.drain(..count).collect())
                })
            })
        }),
    ),
    SourceMutant::new(
        "ReceivesAfterClose",
        "goes on after it was closed",
        "receive_after_close_takes_nothing",
        "deliveries of a closed subscription: expected 0; observed 1",
        SourceSeam::Subscription(|inner, _| closing(inner, |_| Box::pin(async {}))),
    ),
];
