//! Mutants of `conformance::cases::telemetry`.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::counter;

use super::tools::{altering, answering, delivering, requesting};
use super::{Mutant, Seam};

const SENT: &str = "messaging_client_sent_messages_total";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "CountsOnStart",
        "counts a message as sent when its request leaves",
        "a_success_is_counted_when_it_is_known",
        "counted while the reply is held",
        Seam::Wire(|inner, _| {
            requesting(inner, |request| {
                counter!(SENT, "error_type" => "").increment(1);
                request
            })
        }),
    ),
    Mutant::new(
        "OneLabelForAll",
        "counts every failure once more, under one code",
        "failures_are_counted_by_code",
        "counted by code",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                if answer.is_err() {
                    counter!(SENT, "error_type" => "failed").increment(1);
                }
                answer
            })
        }),
    ),
    Mutant::new(
        "CountsRequests",
        "counts the request beside its messages",
        "a_batch_is_counted_by_its_messages",
        "counted of a batch",
        Seam::Wire(|inner, _| {
            requesting(inner, |request| {
                if request.entries.len() > 1 {
                    counter!(SENT, "error_type" => "").increment(1);
                }
                request
            })
        }),
    ),
    Mutant::new(
        "CancelIsFailure",
        "counts a delivery whose caller went away as failed",
        "a_cancelled_delivery_is_no_failure",
        "counted under a code",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let mut guard = CountsOnDrop(true);
                    let answer = inner.deliver(&envelope, &ctx).await;
                    guard.0 = false;
                    answer
                })
            })
        }),
    ),
    Mutant::new(
        "IdAsLabel",
        "puts the envelope's id into a label",
        "labels_are_bounded",
        "no id, tenant or source",
        Seam::Sink(|inner, _| {
            answering(inner, |envelope, answer| {
                counter!("deliveries", "id" => envelope.id().to_string()).increment(1);
                answer
            })
        }),
    ),
    Mutant::new(
        "CountsInSilence",
        "counts some messages where it is said to count none",
        "labels_are_bounded",
        "undeclared metrics: expected None",
        Seam::Wire(|inner, _| {
            requesting(inner, |request| {
                counter!(SENT, "error_type" => "").increment(1);
                request
            })
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "TracesInSilence",
        "has a span where it is said to have none",
        "labels_are_bounded",
        "undeclared spans: expected no field by a name of messaging",
        Seam::Wire(|inner, _| {
            requesting(inner, |request| {
                let name = &*request.destination;
                tracing::debug_span!("send", messaging.destination.name = name).in_scope(|| ());
                request
            })
        }),
    )
    .in_mode("bare"),
    Mutant::new(
        "NamelessSpan",
        "has no span, as without instrumentation",
        "a_span_tells_of_the_request",
        "span: expected",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let nobody = tracing::subscriber::NoSubscriber::default();
                    let delivery = inner.deliver(&envelope, &ctx);
                    tracing::instrument::WithSubscriber::with_subscriber(delivery, nobody).await
                })
            })
        }),
    )
    .in_mode("ordered-single"),
    Mutant::new(
        "ErrorOnShutdown",
        "warns of its own closing",
        "clean_runs_are_quiet",
        "warnings of a clean run",
        Seam::Sink(|inner, _| {
            super::tools::Patched::new(inner)
                .drain(|inner, deadline| {
                    Box::pin(async move {
                        tracing::warn!("the connection is closing");
                        inner.drain(deadline).await
                    })
                })
                .sink()
        }),
    ),
    Mutant::new(
        "LogPerFailure",
        "writes a warning for every failed message",
        "an_outage_does_not_flood_the_log",
        "warnings of thirty failures",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                if let Err(error) = &answer {
                    tracing::warn!(%error, "a delivery failed");
                }
                answer
            })
        }),
    ),
    Mutant::new(
        "HookErrorFailsDelivery",
        "lets a panic of the recorder through to its caller",
        "observer_failure_does_not_change_outcome",
        "deliver: expected an answer; observed a panic",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                counter!("deliveries").increment(1);
                answer
            })
        }),
    ),
    Mutant::new(
        "HookErrorSendsAgain",
        "takes a panic of the recorder for a failure, and delivers once more",
        "observer_failure_does_not_change_outcome",
        "duplicate",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    let told = catch_unwind(|| counter!("deliveries").increment(1));
                    match told {
                        Ok(()) => answer,
                        Err(_) => inner.deliver(&envelope, &ctx).await,
                    }
                })
            })
        }),
    )
    .in_mode("plain-batched"),
    Mutant::new(
        "DebugsEnvelope",
        "writes the body into a record at trace level",
        "payloads_are_never_told",
        "payload: expected it is told nowhere",
        Seam::Sink(|inner, _| {
            answering(inner, |envelope, answer| {
                tracing::trace!(body = ?envelope.body(), "delivered");
                answer
            })
        }),
    ),
    Mutant::new(
        "Retracer",
        "puts its own span into the trace context",
        "the_trace_travels_once_and_unchanged",
        "traceparent on the wire",
        Seam::Sink(|inner, _| {
            static SPANS: AtomicU64 = AtomicU64::new(1);
            altering(inner, |envelope| {
                let span = SPANS.fetch_add(1, Ordering::SeqCst);
                let parent = format!("00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01");
                let state = envelope.tracestate().map(str::to_owned);
                envelope.with_trace(parent, state)
            })
        }),
    ),
];

/// Counts a failure when it is dropped before its time.
struct CountsOnDrop(bool);

impl Drop for CountsOnDrop {
    fn drop(&mut self) {
        if self.0 {
            counter!(SENT, "error_type" => "Cancelled").increment(1);
        }
    }
}
