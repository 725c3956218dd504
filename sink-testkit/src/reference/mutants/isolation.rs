//! Mutants of isolation and fairness.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dispatch_api::{Answer, DeliveryContext, Envelope, Outcome, QueueFull, Receipt, SinkError};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::batch_bounds::with_settings;
use super::tools::{answering, delivering};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "SharedOneshot",
        "gives a caller the receipt of the one before",
        "results_never_cross_callers",
        "its receipt: expected",
        Seam::Sink(|inner, _| {
            let last: Arc<Mutex<Option<Receipt>>> = Arc::default();
            answering(inner, move |_, answer| {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                answer.map(|receipt| last.replace(receipt.clone()).unwrap_or(receipt))
            })
        }),
    ),
    Mutant::new(
        "Unbounded",
        "opens as many requests as there is work",
        "in_flight_bound_respected",
        "open requests: expected 2; observed 4",
        Seam::Sink(|_, parts| {
            with_settings(parts, |settings| {
                settings.max_inflight = NonZeroUsize::MIN.saturating_add(63);
            })
        }),
    ),
    Mutant::new(
        "GlobalLock",
        "delivers one message of the host at a time",
        "slow_destination_does_not_block_another",
        "a delivery beside a slow destination: expected an end within",
        Seam::Sink(|inner, parts| {
            let pool = parts.services.pool();
            let lock = pool.get_or_try_create("a lock", || Ok::<_, Infallible>(Semaphore::new(1)));
            let Ok(lock) = lock;
            delivering(inner, move |inner, envelope, ctx| {
                let lock = Arc::clone(&lock);
                Box::pin(async move {
                    let _held = lock.acquire().await;
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    )
    .in_mode("ordered-single"),
    Mutant::new(
        "OneAtATime",
        "delivers one message of the sink at a time",
        "a_held_delivery_does_not_block_an_unrelated_one",
        "a delivery beside one that is held: expected an end within",
        Seam::Sink(|inner, _| {
            let lock = Arc::new(Semaphore::new(1));
            delivering(inner, move |inner, envelope, ctx| {
                let lock = Arc::clone(&lock);
                Box::pin(async move {
                    let _held = lock.acquire().await;
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    )
    .in_mode("ordered-single"),
    Mutant::new(
        "AnswersTheWaiting",
        "answers Ok to what waits behind a request, and delivers it later",
        "a_held_delivery_does_not_block_an_unrelated_one",
        "deliveries behind one that is held: expected no answer yet",
        Seam::Sink(|inner, _| {
            let running = Arc::new(AtomicUsize::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let running = Arc::clone(&running);
                Box::pin(async move {
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    let delivery = async move {
                        let answer = inner.deliver(&envelope, &ctx).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        answer
                    };
                    if others == 0 {
                        return delivery.await;
                    }
                    tokio::spawn(delivery);
                    Ok(Receipt::new())
                })
            })
        }),
    )
    .in_mode("text-only"),
    Mutant::new(
        "FifoQueue",
        "sends in the order of arrival, whosever it is",
        "tenant_fairness_under_flood",
        "the small tenant's last message: expected among the first 19",
        Seam::Sink(|inner, _| {
            let turn = Arc::new(Semaphore::new(1));
            delivering(inner, move |inner, envelope, ctx| {
                let turn = Arc::clone(&turn);
                Box::pin(async move {
                    // A semaphore lets callers pass in the order in which they came.
                    let _turn = turn.acquire().await;
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "TenantCeilingIgnored",
        "takes as much of one tenant as of all",
        "tenant_ceiling_refuses_the_tenant",
        "a delivery over batch_queue_tenant_max: expected a refusal at once",
        Seam::Build(|options, _, honest| {
            let mut options = options.clone();
            if let Some(options) = options.as_object_mut() {
                options.remove("batch_queue_tenant_max");
            }
            honest(&options)
        }),
    ),
    Mutant::new(
        "OneCeilingForAll",
        "takes the ceiling of one tenant for that of all",
        "tenant_ceiling_leaves_room_for_others",
        "a tenant beside one at its ceiling: expected Ok",
        Seam::Sink(|inner, parts| {
            let room = parts.config.batching;
            let room = room.map(|settings| settings.queue_max_tenant_entries);
            let used = Arc::new(AtomicUsize::new(0));
            delivering(inner, move |inner, envelope, ctx| {
                let used = Arc::clone(&used);
                Box::pin(async move {
                    if room.is_some_and(|room| used.load(Ordering::SeqCst) >= room) {
                        let pause = Duration::from_millis(1);
                        return Err(QueueFull::TenantEntries.into_error(pause));
                    }
                    used.fetch_add(1, Ordering::SeqCst);
                    let answer = inner.deliver(&envelope, &ctx).await;
                    used.fetch_sub(1, Ordering::SeqCst);
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "UnboundedBuffer",
        "keeps whatever it is given while the destination is away",
        "outage_memory_bounded",
        "a delivery over batch_queue_max: expected a refusal at once",
        Seam::Build(|options, _, honest| {
            let mut options = options.clone();
            if let Some(options) = options.as_object_mut() {
                options.remove("batch_queue_max");
            }
            honest(&options)
        }),
    ),
    Mutant::new(
        "SilentBuffer",
        "answers Ok during an outage, and keeps the message for later",
        "outage_ends_in_errors_and_then_in_none",
        "a delivery during an outage: expected an error; observed Ok",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    match inner.deliver(&envelope, &ctx).await {
                        Err(error) if error.code() == "ConnectionLost" => {
                            tokio::spawn(async move {
                                tokio::time::sleep(Duration::from_secs(1)).await;
                                inner.deliver(&envelope, &ctx).await
                            });
                            Ok(Receipt::new())
                        }
                        answer => answer,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "TaskOnFirstRuntime",
        "delivers from a task that it started once",
        "caller_runtime_may_die",
        "the second delivery on the second runtime: expected Ok",
        Seam::Sink(|inner, _| {
            let worker: Arc<OnceLock<mpsc::UnboundedSender<Job>>> = Arc::default();
            delivering(inner, move |inner, envelope, ctx| {
                let worker = Arc::clone(&worker);
                Box::pin(async move {
                    let worker = worker.get_or_init(|| {
                        let (jobs, mut waiting) = mpsc::unbounded_channel::<Job>();
                        tokio::spawn(async move {
                            while let Some((envelope, ctx, reply)) = waiting.recv().await {
                                let inner = Arc::clone(&inner);
                                tokio::spawn(async move {
                                    let _ = reply.send(inner.deliver(&envelope, &ctx).await);
                                });
                            }
                        });
                        jobs
                    });
                    let (reply, answer) = oneshot::channel();
                    let _ = worker.send((envelope, ctx, reply));
                    answer.await.unwrap_or_else(|_| {
                        Err(SinkError::transient(
                            Outcome::Unknown,
                            "WorkerGone",
                            "the task that delivers has ended",
                        ))
                    })
                })
            })
        }),
    ),
];

type Job = (Envelope, DeliveryContext, oneshot::Sender<Answer>);
