//! Mutants of stopping.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dispatch_api::{ConsumerReport, Settlement, Stop};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::tools::{
    PatchedDelivery, PatchedSubscription, closing, consuming, receiving, resettling, settling,
};
use super::{SourceMutant, SourceSeam};

/// Waits until somebody asks to stop.
async fn asked(stop: &Stop) {
    while stop.deadline().is_none() {
        sleep(Duration::from_millis(1)).await;
    }
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "AbortsHandlers",
        "drops the handlers as soon as it is asked to stop",
        "stop_waits_for_running_handlers",
        "acknowledged: expected 1; observed 0",
        SourceSeam::Consume(|subscription, settings, handler, stop| {
            Box::pin(async move {
                let at_once = Stop::new();
                let mut run = consuming(subscription, settings, handler, at_once.clone());
                tokio::select! {
                    report = &mut run => return report,
                    () = asked(&stop) => at_once.by(Instant::now()),
                }
                run.await
            })
        }),
    ),
    SourceMutant::new(
        "AcksWhatItAbandons",
        "acknowledges the messages of handlers that were dropped",
        "stop_at_the_deadline_acknowledges_nothing",
        "what is left: expected 1; observed 0",
        SourceSeam::Subscription(|inner, _| {
            resettling(inner, |settlement| match settlement {
                Settlement::Retry => Settlement::Ack,
                other => other,
            })
        }),
    ),
    SourceMutant::new(
        "BufferedStayHeld",
        "forgets what it should give back",
        "stop_gives_back_what_waits_at_once",
        "what comes back at once",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    match settlement {
                        Settlement::Retry => Ok(()),
                        other => delivery.settle(other).await,
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "DropsTheReply",
        "ends at once, and forgets what a receive brings then",
        "stop_loses_no_receive_under_way",
        "what comes back at once",
        SourceSeam::Consume(|subscription, settings, handler, stop| {
            let forgetful = receiving(subscription, |inner, max| {
                Box::pin(async move {
                    let (sender, receiver) = oneshot::channel();
                    tokio::spawn(async move {
                        if let Err(unheard) = sender.send(inner.receive(max).await) {
                            std::mem::forget(unheard);
                        }
                    });
                    receiver.await.unwrap_or_else(|_| Ok(Vec::new()))
                })
            });
            Box::pin(async move {
                let run = consuming(forgetful, settings, handler, stop.clone());
                tokio::select! {
                    report = run => report,
                    () = asked(&stop) => ConsumerReport::default(),
                }
            })
        }),
    ),
    SourceMutant::new(
        "UnflushedAcks",
        "answers before it acknowledges, which it does later",
        "stop_flushes_settlements",
        "what is left right after the end: expected 0",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                Box::pin(async move {
                    if settlement != Settlement::Ack {
                        return delivery.settle(settlement).await;
                    }
                    tokio::spawn(async move {
                        sleep(Duration::from_secs(5)).await;
                        delivery.settle(settlement).await
                    });
                    Ok(())
                })
            })
        }),
    ),
    SourceMutant::new(
        "MissesAnEarlierStop",
        "does not see that it was asked to stop before it began",
        "stop_asked_twice_is_one_stop",
        "stop: expected an end within",
        SourceSeam::Consume(
            |subscription, settings, handler, stop| match stop.deadline() {
                Some(_) => consuming(subscription, settings, handler, Stop::new()),
                None => consuming(subscription, settings, handler, stop),
            },
        ),
    ),
    SourceMutant::new(
        "ClosesWhenAnswered",
        "does not end before the broker has answered once more",
        "stop_with_a_silent_broker_is_bounded",
        "stop: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            closing(inner, |inner| {
                Box::pin(async move {
                    while inner.receive(NonZeroUsize::MIN).await.is_err() {
                        sleep(Duration::from_secs(1)).await;
                    }
                    inner.close().await;
                })
            })
        }),
    ),
    SourceMutant::new(
        "SecondCloseHangs",
        "waits for ever when it is closed again",
        "close_twice_is_harmless",
        "close: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            let is_closed = Arc::new(AtomicBool::new(false));
            closing(inner, move |inner| {
                let was_closed = is_closed.swap(true, Ordering::SeqCst);
                Box::pin(async move {
                    if was_closed {
                        std::future::pending::<()>().await;
                    }
                    inner.close().await;
                })
            })
        }),
    ),
    SourceMutant::new(
        "PurgesOnClose",
        "consumes what is left when it is closed",
        "open_and_close_change_nothing",
        "what is left: expected 3",
        SourceSeam::Subscription(|inner, _| {
            closing(inner, |inner| {
                Box::pin(async move {
                    let ten = NonZeroUsize::new(10).expect("10 is not zero");
                    for delivery in inner.receive(ten).await.unwrap_or_default() {
                        let _ = delivery.settle(Settlement::Ack).await;
                    }
                    inner.close().await;
                })
            })
        }),
    ),
    SourceMutant::new(
        "ClosesTheSharedConnection",
        "closes the connection that all subscriptions share",
        "close_of_one_leaves_the_other",
        "receive: expected Ok",
        SourceSeam::Subscription(|inner, parts| {
            closing(inner, move |inner| {
                let broker = Arc::clone(&parts.broker);
                Box::pin(async move {
                    inner.close().await;
                    broker.restart();
                })
            })
        }),
    ),
    SourceMutant::new(
        "OkWithoutEffect",
        "answers Ok after it was closed, and does nothing",
        "settle_after_close_is_honest",
        "count what is left: expected 0 messages",
        SourceSeam::Subscription(|inner, _| {
            let is_closed = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_closed);
            PatchedSubscription::new(inner)
                .close(move |inner| {
                    told.store(true, Ordering::SeqCst);
                    Box::pin(async move { inner.close().await })
                })
                .each(move |delivery| {
                    let is_closed = Arc::clone(&is_closed);
                    let patched = PatchedDelivery::new(delivery);
                    Box::new(patched.settle(move |delivery, settlement| {
                        let is_closed = Arc::clone(&is_closed);
                        Box::pin(async move {
                            match is_closed.load(Ordering::SeqCst) {
                                true => Ok(()),
                                false => delivery.settle(settlement).await,
                            }
                        })
                    }))
                })
                .subscription()
        }),
    ),
    SourceMutant::new(
        "LosesOneOnClose",
        "takes a message along when it is closed",
        "resume_after_close_loses_nothing",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            closing(inner, |inner| {
                Box::pin(async move {
                    let last = inner.receive(NonZeroUsize::MIN).await;
                    for delivery in last.unwrap_or_default() {
                        let _ = delivery.settle(Settlement::Ack).await;
                    }
                    inner.close().await;
                })
            })
        }),
    ),
    SourceMutant::new(
        "DiesOnDisconnect",
        "receives nothing more once its connection broke",
        "resume_after_a_restart_of_the_broker",
        "what came: expected 3 messages",
        SourceSeam::Subscription(|inner, _| {
            let is_dead = Arc::new(AtomicBool::new(false));
            receiving(inner, move |inner, max| {
                let is_dead = Arc::clone(&is_dead);
                Box::pin(async move {
                    if is_dead.load(Ordering::SeqCst) {
                        return Ok(Vec::new());
                    }
                    let received = inner.receive(max).await;
                    is_dead.store(received.is_err(), Ordering::SeqCst);
                    received
                })
            })
        }),
    ),
    SourceMutant::new(
        "AnErrorIsEmpty",
        "takes a receive that failed for one that brought nothing",
        "consumer_goes_on_after_failed_receives",
        "failed receives: expected 3",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move { Ok(inner.receive(max).await.unwrap_or_default()) })
            })
        }),
    ),
    SourceMutant::new(
        "NeverEmpty",
        "does not return before it has a message",
        "consumer_until_empty_ends_by_itself",
        "until empty: expected an end within",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    loop {
                        let received = inner.receive(max).await?;
                        if !received.is_empty() {
                            return Ok(received);
                        }
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "CountsDropsAsAcks",
        "reports what was dropped as acknowledged",
        "consumer_report_adds_up",
        "acknowledged: expected 3; observed 6",
        SourceSeam::Consume(|subscription, settings, handler, stop| {
            Box::pin(async move {
                let mut report = consuming(subscription, settings, handler, stop).await;
                report.acked += std::mem::take(&mut report.dropped);
                report
            })
        }),
    ),
    SourceMutant::new(
        "PumpBlocks",
        "begins nothing while a handler runs",
        "consumer_stuck_handler_leaves_the_others_room",
        "the others: expected 5 messages",
        SourceSeam::Consume(|subscription, mut settings, handler, stop| {
            settings.concurrency = NonZeroUsize::MIN;
            consuming(subscription, settings, handler, stop)
        }),
    ),
];
