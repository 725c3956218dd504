//! Mutants of `conformance::cases::order`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dispatch_api::SinkError;
use tokio::sync::Mutex;

use super::tools::{Patched, altering, answering, calling, delivering, requesting};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "EveryOtherLater",
        "holds back every other message until the next one has left",
        "order_kept_for_one_key_when_awaited",
        "order of acme",
        Seam::Sink(|inner, _| {
            let turn = Arc::new(AtomicU64::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let turn = turn.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    if turn.is_multiple_of(2) {
                        tokio::spawn(async move {
                            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                            inner.deliver(&envelope, &ctx).await
                        });
                        return Ok(dispatch_api::Receipt::new());
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "ParallelSend",
        "starts each delivery after a pause that depends on its turn",
        "order_kept_when_pipelined",
        "order of acme",
        Seam::Sink(|inner, _| {
            let turn = Arc::new(AtomicU64::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let turn = turn.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    let pause = std::time::Duration::from_millis(turn * 7 % 40);
                    tokio::time::sleep(pause).await;
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "ReordersWhenBusy",
        "lets the latest of the waiting deliveries go first once several wait",
        "order_kept_with_concurrent_keys",
        "order of",
        Seam::Sink(|inner, _| {
            let running = Arc::new(AtomicU64::new(0));
            let turn = Arc::new(AtomicU64::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let running = Arc::clone(&running);
                let pause = 500 / (1 + turn.fetch_add(1, Ordering::SeqCst));
                Box::pin(async move {
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    if others < 2 {
                        let answer = inner.deliver(&envelope, &ctx).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        return answer;
                    }
                    tokio::spawn(async move {
                        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
                        let answer = inner.deliver(&envelope, &ctx).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        answer
                    });
                    Ok(dispatch_api::Receipt::new())
                })
            })
        }),
    ),
    Mutant::new(
        "UnorderedMapBatch",
        "writes the messages of a request in the order of a hash map",
        "order_inside_one_request",
        "the messages on the wire",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                request.entries.sort_by_key(|entry| {
                    let id = entry.id.as_bytes();
                    std::cmp::Reverse(id.to_vec())
                });
                request
            })
        }),
    ),
    Mutant::new(
        "EachAtOnce",
        "sends every message in a request of its own, all at once",
        "one_request_per_key_at_a_time",
        "requests while the first is held: expected 1",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, _| {
                Box::pin(async move {
                    let direct = dispatch_api::DeliveryContext::direct();
                    inner.deliver(&envelope, &direct).await
                })
            })
        }),
    ),
    Mutant::new(
        "HeadOfLineGlobal",
        "has one request under way, whatever its key",
        "a_blocked_key_does_not_block_others",
        "the other key: expected an end within",
        Seam::Wire(|inner, _| {
            let turn = Arc::new(Mutex::new(()));
            calling(inner, move |inner, request| {
                let turn = Arc::clone(&turn);
                Box::pin(async move {
                    let _turn = turn.lock().await;
                    inner.call(request).await
                })
            })
        }),
    ),
    Mutant::new(
        "BlocksBehindFailure",
        "answers a whole batch with the failure of its head",
        "a_failed_head_is_answered_for_itself",
        "which were answered Ok",
        Seam::Sink(|inner, _| {
            let failed: Arc<std::sync::Mutex<Option<SinkError>>> = Arc::default();
            answering(inner, move |_, answer| {
                let mut failed = failed.lock().unwrap_or_else(|error| error.into_inner());
                match answer {
                    Err(error) => {
                        *failed = Some(error.clone());
                        Err(error)
                    }
                    Ok(receipt) => match failed.clone() {
                        Some(error) => Err(error),
                        None => Ok(receipt),
                    },
                }
            })
        }),
    ),
    Mutant::new(
        "ForgetsTheTenant",
        "makes the key of the source alone",
        "the_key_is_the_tenants_and_the_sources",
        "the key on the wire",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for entry in &mut request.entries {
                    let key = entry.key.take().unwrap_or_default();
                    let source = key.rsplit('/').next().unwrap_or_default();
                    entry.key = Some(format!("/{source}"));
                }
                request
            })
        }),
    ),
    Mutant::new(
        "CutsTheKey",
        "cuts a tenant that is too long, so that two keys can become one",
        "a_key_that_does_not_fit_is_refused_unsent",
        "expected an error; observed Ok",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let tenant = envelope.tenant_id().unwrap_or_default();
                    if tenant.len() <= 60 {
                        return inner.deliver(&envelope, &ctx).await;
                    }
                    let cut = tenant[..60].to_owned();
                    inner.deliver(&envelope.with_tenant(cut), &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "CutsTheTenant",
        "cuts a tenant that is long, for a key that there is not",
        "a_key_that_does_not_fit_is_refused_unsent",
        "the field tenant_id of a tenant of many characters",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                let tenant = envelope.tenant_id().unwrap_or_default();
                match tenant.len() {
                    0..=60 => envelope,
                    _ => {
                        let cut = tenant[..60].to_owned();
                        envelope.with_tenant(cut)
                    }
                }
            })
        }),
    )
    .in_mode("plain-single"),
    Mutant::new(
        "CutsTheGroup",
        "cuts a key that the destination would take whole",
        "a_key_that_does_not_fit_is_refused_unsent",
        "the key of a tenant of many characters",
        Seam::Wire(|inner, _| {
            requesting(inner, |mut request| {
                for key in request.entries.iter_mut().filter_map(|it| it.key.as_mut()) {
                    *key = key.chars().take(128).collect();
                }
                request
            })
        }),
    )
    .in_mode("fair-batched"),
    Mutant::new(
        "SeededHasher",
        "adds the instance's own number to the key",
        "the_key_is_the_same_after_a_rebuild",
        "the key of the second instance",
        Seam::Wire(|inner, _| {
            static INSTANCES: AtomicU64 = AtomicU64::new(0);
            let instance = INSTANCES.fetch_add(1, Ordering::SeqCst);
            requesting(inner, move |mut request| {
                for entry in &mut request.entries {
                    let key = entry.key.take().unwrap_or_default();
                    entry.key = Some(format!("{key}#{instance}"));
                }
                request
            })
        }),
    ),
    Mutant::new(
        "ClaimsOrder",
        "promises an order that the destination does not keep",
        "order_kept_for_one_key_when_awaited",
        "the sink's promise",
        Seam::Sink(|inner, _| {
            Patched::new(inner)
                .guarantees(|guarantees| guarantees.with_ordering(dispatch_api::Ordering::PerKey))
                .sink()
        }),
    )
    .in_mode("plain-batched"),
];
