//! Mutants of retries that wait.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::Settlement;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::tools::{
    PatchedDelivery, PatchedSubscription, answering, changing_received, rebuilt, resettling,
    settling,
};
use super::{SourceMutant, SourceSeam};

/// The longest delay of the reference.
const LONGEST: Duration = Duration::from_secs(12 * 3_600);

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "ImmediateRedelivery",
        "gives a delayed retry back at once",
        "retry_after_is_never_early",
        "the time of its return: expected not before 8s",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::RetryAfter(_) => Settlement::Retry,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "PretendsAndAcks",
        "consumes what it cannot delay",
        "retry_after_is_never_early",
        "count what is left: expected 1 messages; observed 0 messages",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::RetryAfter(_) => Settlement::Ack,
                other => other,
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "DelayIsTheHold",
        "lets every delayed retry wait for the hold's time",
        "retry_after_is_not_absurdly_late",
        "the time of its return: expected not later than 13s",
        SourceSeam::Subscription(|inner, parts| {
            let hold = parts.settings.hold;
            resettling(inner, move |settlement| match settlement {
                Settlement::RetryAfter(_) => Settlement::RetryAfter(hold),
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "TruncatesDelays",
        "rounds a delay down to whole seconds",
        "retry_after_fraction_rounds_up",
        "the time of its return: expected not before 1.4s",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::RetryAfter(delay) => {
                    Settlement::RetryAfter(Duration::from_secs(delay.as_secs()))
                }
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "ZeroIsTheHold",
        "takes a delay of zero for none given, and waits for the hold's time",
        "retry_after_zero_means_now",
        "the time of its return: expected not later than 3s",
        SourceSeam::Subscription(|inner, parts| {
            let hold = parts.settings.hold;
            resettling(inner, move |settlement| match settlement {
                Settlement::RetryAfter(Duration::ZERO) => Settlement::RetryAfter(hold),
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "LongDelaysAreNone",
        "gives back at once what is to wait longer than it can",
        "retry_after_above_the_maximum_is_shortened_or_refused",
        "watch for what must not come: expected nothing",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::RetryAfter(delay) if delay > LONGEST => Settlement::Retry,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "AcksLongDelays",
        "consumes what is to wait longer than it can",
        "retry_after_above_the_maximum_is_shortened_or_refused",
        "count what is left: expected 1 messages; observed 0 messages",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::RetryAfter(delay) if delay > LONGEST => Settlement::Ack,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "PanicsOnLongDelays",
        "computes with a delay that is too long, and panics",
        "retry_after_above_the_maximum_is_shortened_or_refused",
        "expected Ok or an error; observed a panic",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    match settlement {
                        Settlement::RetryAfter(Duration::MAX) => {
                            resume_unwind(Box::new("the delay overflows"))
                        }
                        other => delivery.settle(other).await,
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "TimerInTheProcess",
        "waits in the process, which forgets it at the close",
        "retry_after_survives_the_consumer",
        "the time of its return: expected not later than 13s",
        SourceSeam::Subscription(|inner, _| {
            let timers: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
            let kept = Arc::clone(&timers);
            PatchedSubscription::new(inner)
                .each(move |delivery| {
                    let timers = Arc::clone(&timers);
                    Box::new(
                        PatchedDelivery::new(delivery).settle(move |delivery, settlement| {
                            let timers = Arc::clone(&timers);
                            Box::pin(async move {
                                let Settlement::RetryAfter(delay) = settlement else {
                                    return delivery.settle(settlement).await;
                                };
                                let timer = tokio::spawn(async move {
                                    sleep(delay).await;
                                    let _ = delivery.settle(Settlement::Retry).await;
                                });
                                let mut timers =
                                    timers.lock().unwrap_or_else(PoisonError::into_inner);
                                timers.push(timer);
                                Ok(())
                            })
                        }),
                    )
                })
                .close(move |inner| {
                    let timers = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    timers.iter().for_each(JoinHandle::abort);
                    drop(timers);
                    Box::pin(async move { inner.close().await })
                })
                .subscription()
        }),
    ),
    SourceMutant::new(
        "SleepsInTheSettlement",
        "waits for the delay before it answers",
        "retry_after_does_not_stall_others",
        "retry_after: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    let Settlement::RetryAfter(delay) = settlement else {
                        return delivery.settle(settlement).await;
                    };
                    sleep(delay).await;
                    delivery.settle(Settlement::Retry).await
                })
            })
        }),
    ),
    SourceMutant::new(
        "CountsFromOne",
        "calls every delivery the first",
        "retry_after_keeps_count_and_identity",
        "the count of deliveries: expected Some(2); observed Some(1)",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                received.clone().with_redelivery_count(Some(1))
            })
        }),
    ),
    SourceMutant::new(
        "NewIdEachTime",
        "gives each delivery an id of its own",
        "retry_after_keeps_count_and_identity",
        "the broker's id",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let count = received.redelivery_count().unwrap_or_default();
                let id = format!("{}-{count}", received.id());
                rebuilt(received, id, received.body().clone())
            })
        }),
    ),
    SourceMutant::new(
        "HopesForReturns",
        "answers Ok for a delayed retry that did not reach the broker",
        "retry_after_failure_is_reported",
        "retry_after: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |settlement, settled| match settlement {
                Settlement::RetryAfter(_) => Ok(()),
                _ => settled,
            })
        }),
    ),
];
