//! Mutants of `conformance::cases::lifetime`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::{DrainReport, Outcome, Receipt, SinkError};
use tokio::sync::watch;

use super::tools::{Patched, caching, calling, delivering, requesting};
use super::{Mutant, Seam};
use crate::reference::WireError;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "StalePool",
        "takes one connection after another from its pool that the broker has closed",
        "idle_connection_reconnects",
        "the second delivery after an idle close: expected Ok",
        Seam::Wire(|inner, _| {
            let stale = Arc::new(AtomicU64::new(0));
            calling(inner, move |inner, request| {
                let stale = Arc::clone(&stale);
                Box::pin(async move {
                    if stale.load(Ordering::SeqCst) > 0 {
                        stale.fetch_sub(1, Ordering::SeqCst);
                        return Err(WireError::NotSent);
                    }
                    let reply = inner.call(request).await;
                    if matches!(reply, Err(WireError::NotSent)) {
                        stale.store(3, Ordering::SeqCst);
                    }
                    reply
                })
            })
        }),
    ),
    Mutant::new(
        "CachesForever",
        "keeps the credentials that it found first",
        "credentials_rotate_without_rebuild",
        "deliveries with other credentials: expected Ok",
        Seam::Sink(caching),
    ),
    Mutant::new(
        "DropsBuffer",
        "lets go of what waits when it is drained, and calls it done",
        "a_drain_finishes_accepted_work",
        "accepted deliveries answered Ok",
        Seam::Sink(|inner, _| {
            let (closing, _) = watch::channel(false);
            let closing = Arc::new(closing);
            let on_drain = Arc::clone(&closing);
            Patched::new(inner)
                .deliver(move |inner, envelope, ctx| {
                    let mut closed = closing.subscribe();
                    Box::pin(async move {
                        tokio::select! {
                            biased;
                            _ = closed.wait_for(|closed| *closed) => Err(closed_error()),
                            answer = inner.deliver(&envelope, &ctx) => answer,
                        }
                    })
                })
                .drain(move |inner, deadline| {
                    on_drain.send_replace(true);
                    Box::pin(async move { inner.drain(deadline).await })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "CountsNothing",
        "reports a drain that found nothing to do",
        "a_drain_counts_what_it_finished",
        "answered, by the report",
        Seam::Sink(|inner, _| {
            Patched::new(inner)
                .drain(|inner, deadline| {
                    Box::pin(async move {
                        inner.drain(deadline).await;
                        DrainReport::new(0, 0)
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "DrainsForEver",
        "waits for the last answer, whatever the deadline",
        "a_drain_ends_at_its_deadline",
        "the drain: expected an end within",
        Seam::Sink(|inner, _| {
            Patched::new(inner)
                .drain(|inner, _| {
                    Box::pin(async move {
                        let late = tokio::time::Instant::now() + Duration::from_secs(3_600);
                        inner.drain(late).await
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "SilentOk",
        "answers Ok after it was closed",
        "a_delivery_after_the_drain_is_refused_unsent",
        "a delivery after the drain: expected an error; observed Ok",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    match inner.deliver(&envelope, &ctx).await {
                        Err(error) if error.code() == "SinkClosed" => Ok(Receipt::new()),
                        answer => answer,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "SecondCloseHangs",
        "waits for a signal that only the first drain sends",
        "a_drain_may_be_repeated",
        "drain: expected an end within",
        Seam::Sink(|inner, _| {
            let drained = Arc::new(AtomicBool::new(false));
            Patched::new(inner)
                .drain(move |inner, deadline| {
                    let again = drained.swap(true, Ordering::SeqCst);
                    Box::pin(async move {
                        if again {
                            std::future::pending::<()>().await;
                        }
                        inner.drain(deadline).await
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "StaticClient",
        "keeps one client for the process, which the first drain closes",
        "a_drained_sink_leaves_another_alone",
        "the other sink after the drain",
        Seam::Build(|options, services, honest| {
            // What is closed lies with the host, and so with every sink of it.
            let closed = services
                .pool()
                .get_or_try_create::<_, dispatch_api::Problems>("closed", || {
                    Ok(AtomicBool::new(false))
                })?;
            let on_drain = Arc::clone(&closed);
            let sink = Patched::new(honest(options)?)
                .deliver(move |inner, envelope, ctx| {
                    let is_closed = closed.load(Ordering::SeqCst);
                    Box::pin(async move {
                        match is_closed {
                            true => Err(closed_error()),
                            false => inner.deliver(&envelope, &ctx).await,
                        }
                    })
                })
                .drain(move |inner, deadline| {
                    on_drain.store(true, Ordering::SeqCst);
                    Box::pin(async move { inner.drain(deadline).await })
                });
            Ok(sink.sink())
        }),
    ),
    Mutant::new(
        "NeedsNewClient",
        "gives up for good once the destination was away",
        "a_restart_of_the_destination_needs_no_rebuild",
        "deliver after the restart",
        Seam::Wire(|inner, _| {
            let is_broken = Arc::new(AtomicBool::new(false));
            calling(inner, move |inner, request| {
                let is_broken = Arc::clone(&is_broken);
                Box::pin(async move {
                    if is_broken.load(Ordering::SeqCst) {
                        return Err(WireError::NotSent);
                    }
                    let reply = inner.call(request).await;
                    if reply.is_err() {
                        is_broken.store(true, Ordering::SeqCst);
                    }
                    reply
                })
            })
        }),
    ),
    Mutant::new(
        "LastDestinationForAll",
        "sends everything to the destination of the sink that was built last",
        "two_sinks_share_no_destination",
        "messages",
        Seam::Wire(|inner, config| {
            static LAST: Mutex<String> = Mutex::new(String::new());
            config.destination.clone_into(&mut last(&LAST));
            requesting(inner, |mut request| {
                last(&LAST).clone_into(&mut request.destination);
                request
            })
        }),
    ),
];

fn last(name: &Mutex<String>) -> MutexGuard<'_, String> {
    name.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed_error() -> SinkError {
    SinkError::transient(Outcome::NotStored, "SinkClosed", "the sink is closed")
}
