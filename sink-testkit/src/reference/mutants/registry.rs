//! Mutants of registration.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dispatch_api::{
    Admission, Description, Fingerprint, Outcome, Problems, Sink, SinkError, SinkPlugin,
};

use super::tools::{Patched, delivering};
use super::{Mutant, Seam};
use crate::reference::ReferenceConfig;
use crate::reference::plugin::{WORLD, World, build};

const SUMMARY: &str = "the reference broker, in memory";

static SPACED: SinkPlugin =
    SinkPlugin::new("Reference Broker", SUMMARY, ReferenceConfig::schema, build);

static UNSTABLE: SinkPlugin = SinkPlugin::new("reference", SUMMARY, ReferenceConfig::schema, build)
    .with_credentials(|_, _| {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = CALLS.fetch_add(1, Ordering::SeqCst);
        Fingerprint::of([&call.to_be_bytes()[..]])
    });

static AGEING: SinkPlugin = SinkPlugin::new("reference", SUMMARY, ReferenceConfig::schema, build)
    .with_credentials(|options, services| {
        let pool = services.pool();
        let world = pool.get_or_try_create::<World, ()>(WORLD, || Err(()));
        let name = options["destination"].as_str().unwrap_or_default();
        let stored = world.map_or(0, |world| world.broker.stored(name).len());
        Fingerprint::of([&stored.to_be_bytes()[..]])
    });

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "KindOfTwoWords",
        "has a kind that is no word",
        "registry_kind_is_a_word",
        "the kind: expected a lower-case word",
        Seam::Plugin(&SPACED),
    ),
    Mutant::new(
        "UnstableFingerprint",
        "takes equal credentials for others each time",
        "registry_equal_options_have_one_key",
        "equal options: expected one key",
        Seam::Plugin(&UNSTABLE),
    ),
    Mutant::new(
        "ThreadBound",
        "delivers on the thread that it was built on, and nowhere else",
        "registry_sink_usable_from_every_thread",
        "deliver on another thread",
        Seam::Sink(|inner, _| {
            let home = thread::current().id();
            delivering(inner, move |inner, envelope, ctx| {
                Box::pin(async move {
                    if thread::current().id() != home && ctx.is_direct() {
                        return Err(SinkError::transient(
                            Outcome::NotStored,
                            "WrongThread",
                            "the sink lives on another thread",
                        ));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "StaticConfig",
        "gives a second sink of a destination the options of the first",
        "registry_instances_isolated",
        "expected an error; observed Ok",
        Seam::Build(|options, services, honest| {
            let name = options["destination"].as_str().unwrap_or_default();
            let first = services
                .pool()
                .get_or_try_create::<First, Problems>(name, || honest(options).map(First))?;
            let sink = Arc::clone(&first.0);
            // The wrapper holds the entry of the pool.
            Ok(delivering(sink, move |inner, envelope, ctx| {
                let first = Arc::clone(&first);
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    drop(first);
                    answer
                })
            }))
        }),
    ),
    Mutant::new(
        "DrainsItsNeighbours",
        "closes every sink of a destination when one is drained",
        "registry_sink_of_a_drained_ones_options_delivers",
        "deliver: expected Ok; observed transient: SinkClosed",
        Seam::Sink(|inner, parts| {
            let shared = parts
                .services
                .pool()
                .get_or_try_create::<AtomicBool, ()>(&parts.config.destination, || {
                    Ok(AtomicBool::new(false))
                });
            let Ok(is_closed) = shared else {
                return inner;
            };
            let closing = Arc::clone(&is_closed);
            Patched::new(inner)
                .deliver(move |inner, envelope, ctx| {
                    let is_closed = is_closed.load(Ordering::SeqCst);
                    Box::pin(async move {
                        if is_closed {
                            return Err(SinkError::transient(
                                Outcome::NotStored,
                                "SinkClosed",
                                "a neighbour was drained",
                            ));
                        }
                        inner.deliver(&envelope, &ctx).await
                    })
                })
                .drain(move |inner, deadline| {
                    closing.store(true, Ordering::SeqCst);
                    Box::pin(async move { inner.drain(deadline).await })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "OneTenantOnly",
        "delivers for the tenant that came first",
        "routes_deliver_through_a_lease",
        "deliver by a route: expected Ok",
        Seam::Sink(|inner, _| {
            let first = Arc::new(Mutex::new(None::<String>));
            delivering(inner, move |inner, envelope, ctx| {
                let tenant = envelope.tenant_id().unwrap_or_default().to_owned();
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                let is_first = *first.get_or_insert_with(|| tenant.clone()) == tenant;
                Box::pin(async move {
                    if !is_first {
                        return Err(SinkError::permanent("WrongTenant", "not this tenant's"));
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "AgeingFingerprint",
        "takes its credentials for others after every delivery",
        "routes_keep_a_sink_of_equal_options",
        "sinks drained by a swap to equal options",
        Seam::Plugin(&AGEING),
    ),
    Mutant::new(
        "ClaimsTooMuch",
        "promises an order that nobody keeps",
        "declared_guarantees_match_the_profile",
        "guarantees: expected",
        Seam::Sink(|inner, _| {
            let promise = |guarantees: dispatch_api::Guarantees| {
                guarantees.with_ordering(dispatch_api::Ordering::PerKey)
            };
            Patched::new(inner).guarantees(promise).sink()
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "ClaimsTooLittle",
        "does not say how much metadata fits",
        "declared_guarantees_match_the_profile",
        "guarantees: expected",
        Seam::Sink(|inner, _| {
            let promise = |mut guarantees: dispatch_api::Guarantees| {
                guarantees.max_attributes = None;
                guarantees
            };
            Patched::new(inner).guarantees(promise).sink()
        }),
    ),
    Mutant::new(
        "LeavesAdmissionToTheHost",
        "bounds itself and says that the host has to",
        "declared_admission_matches_the_profile",
        "admission: expected SelfLimited",
        Seam::Sink(|inner, _| Patched::new(inner).admission(Admission::HostLimited).sink()),
    ),
    Mutant::new(
        "StaleDescription",
        "describes a destination of another name",
        "describe_matches_reality",
        "the address: expected",
        Seam::Sink(|inner, _| {
            let describe = |description: Option<Description>| {
                let description = description?;
                Some(Description::new(
                    description.protocol,
                    description.server,
                    "default",
                ))
            };
            Patched::new(inner).describe(describe).sink()
        }),
    ),
    Mutant::new(
        "SecretInDescription",
        "describes its credentials too",
        "describe_matches_reality",
        "the description: expected no secret",
        Seam::Sink(|inner, parts| {
            let secret = parts.config.secret.clone();
            let describe = move |description: Option<Description>| {
                description.map(|description| description.with_property("secret", &*secret))
            };
            Patched::new(inner).describe(describe).sink()
        }),
    ),
    Mutant::new(
        "UndeclaredDescription",
        "describes itself where it is said to describe nothing",
        "describe_matches_reality",
        "an undeclared description: expected None",
        Seam::Sink(|inner, _| {
            let describe = |_| Some(Description::new("memory", "here", "hooks"));
            Patched::new(inner).describe(describe).sink()
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "RestlessDescription",
        "describes each instance otherwise",
        "describe_tells_destinations_apart",
        "one destination: expected",
        Seam::Sink(|inner, _| {
            static INSTANCES: AtomicU64 = AtomicU64::new(0);
            let instance = INSTANCES.fetch_add(1, Ordering::SeqCst).to_string();
            let describe = move |description: Option<Description>| {
                description.map(|description| description.with_property("instance", &*instance))
            };
            Patched::new(inner).describe(describe).sink()
        }),
    ),
];

/// The first sink of a destination.
struct First(Arc<dyn Sink>);
