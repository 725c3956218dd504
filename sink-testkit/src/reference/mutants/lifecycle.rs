//! Mutants of `conformance::cases::lifecycle`.

use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::DrainReport;
use tokio::runtime::Handle;

use super::tools::{Patched, delivering};
use super::{Mutant, Seam};
use crate::reference::plugin::world;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "SendsHello",
        "sends a first message to see whether the destination is there",
        "building_sends_nothing",
        "messages of a sink that is only built",
        Seam::Sink(|inner, _| {
            let hello = Arc::clone(&inner);
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move {
                    let id = dispatch_api::EnvelopeId::v7(0, &[7; 10]);
                    let envelope = dispatch_api::Envelope::new(id, "hello", 0, b"hello".to_vec());
                    let direct = dispatch_api::DeliveryContext::direct();
                    hello.deliver(&envelope, &direct).await
                });
            }
            inner
        }),
    ),
    Mutant::new(
        "CreatesItsDestination",
        "creates a destination that is missing",
        "building_sends_nothing",
        "destinations after building",
        Seam::Build(|options, services, honest| {
            let sink = honest(options)?;
            let name = options["destination"].as_str().unwrap_or_default();
            let broker = &world(services)?.broker;
            if !broker.destinations().iter().any(|known| known == name) {
                broker.create(name, usize::MAX);
            }
            Ok(sink)
        }),
    ),
    Mutant::new(
        "UnwrapOnNone",
        "waits, when drained, for the end of a task that a first delivery would have started",
        "a_drain_before_the_first_delivery_is_fine",
        "the drain of an idle sink: expected an end within",
        Seam::Sink(|inner, _| {
            let started = Arc::new(tokio::sync::Notify::new());
            let on_delivery = Arc::clone(&started);
            Patched::new(inner)
                .deliver(move |inner, envelope, ctx| {
                    on_delivery.notify_one();
                    Box::pin(async move { inner.deliver(&envelope, &ctx).await })
                })
                .drain(move |inner, deadline| {
                    let started = Arc::clone(&started);
                    Box::pin(async move {
                        started.notified().await;
                        started.notify_one();
                        inner.drain(deadline).await
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "NameClash",
        "lets one instance of the same options take the place of another",
        "a_second_instance_works_beside_the_first",
        "deliver: expected Ok",
        Seam::Build(|options, services, honest| {
            let newest = services
                .pool()
                .get_or_try_create::<_, dispatch_api::Problems>("newest", || {
                    Ok(Mutex::new(0_u64))
                })?;
            let own = {
                let mut number = newest.lock().unwrap_or_else(PoisonError::into_inner);
                *number += 1;
                *number
            };
            let sink = delivering(honest(options)?, move |inner, envelope, ctx| {
                let current = *newest.lock().unwrap_or_else(PoisonError::into_inner);
                Box::pin(async move {
                    if current != own {
                        return Err(dispatch_api::SinkError::transient(
                            dispatch_api::Outcome::NotStored,
                            "NameTaken",
                            "another instance took the name",
                        ));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            });
            Ok(sink)
        }),
    ),
    Mutant::new(
        "PanicInDrop",
        "panics when it is dropped while a request is under way",
        "dropping_a_sink_with_work_under_way_is_quiet",
        "dropping the sink: expected silence; observed a panic",
        Seam::Sink(|inner, _| {
            let running = Arc::new(Mutex::new(0_usize));
            let bomb = Bomb(Arc::clone(&running));
            delivering(inner, move |inner, envelope, ctx| {
                let running = Arc::clone(&running);
                let _ = &bomb;
                Box::pin(async move {
                    *running.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    let answer = inner.deliver(&envelope, &ctx).await;
                    *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "LeakedTask",
        "starts a task for each sink that never ends",
        "tasks_do_not_pile_up",
        "tasks after twenty sinks",
        Seam::Sink(|inner, _| {
            Patched::new(inner)
                .drain(|inner, deadline| {
                    Box::pin(async move {
                        tokio::spawn(std::future::pending::<()>());
                        let report: DrainReport = inner.drain(deadline).await;
                        report
                    })
                })
                .sink()
        }),
    ),
];

/// Panics when it is dropped while something runs.
struct Bomb(Arc<Mutex<usize>>);

impl Drop for Bomb {
    #[expect(clippy::panic, reason = "the mutant's fault is a panic")]
    fn drop(&mut self) {
        let running = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running > 0 && !std::thread::panicking() {
            panic!("dropped while a request is under way");
        }
    }
}
