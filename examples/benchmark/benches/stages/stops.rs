//! The points of a delivery at which sink-sqs turns to its host, and the CPU time at each.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dispatch_api::Clock;
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

use crate::CpuTime;

thread_local! {
    /// When the time was asked for last.
    static ASKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// When the span was left first after that.
    static LEFT_FIRST: Cell<Option<Duration>> = const { Cell::new(None) };
    /// When the span was left last.
    static LEFT_LAST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// When the request was in the metrics.
    static TOLD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// From the last question for the time to the end of that poll, of the last request.
pub(super) fn signing() -> Duration {
    let left = LEFT_FIRST.get().expect("the request's span was left");
    left.saturating_sub(ASKED.get())
}

/// From the end of the span to the metrics, of the last request.
pub(super) fn reconciling() -> Duration {
    TOLD.get().saturating_sub(LEFT_LAST.get())
}

/// Listens to spans and metrics from now on.
pub(super) fn listen() {
    tracing::subscriber::set_global_default(Spans).expect("nobody else listens to spans");
    metrics::set_global_recorder(Requests).expect("nobody else listens to metrics");
}

/// The system's clock, which sink-sqs asks right before it signs.
pub(super) struct StopClock;

impl Clock for StopClock {
    fn now(&self) -> SystemTime {
        LEFT_FIRST.set(None);
        let now = SystemTime::now();
        ASKED.set(CpuTime::now());
        now
    }
}

/// Listens to the spans of requests.
struct Spans;

impl Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("sink_sqs")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        let now = CpuTime::now();
        if LEFT_FIRST.get().is_none() {
            LEFT_FIRST.set(Some(now));
        }
        LEFT_LAST.set(now);
    }
}

/// Listens to how long requests took, which is told when their answer is understood.
struct Requests;

impl Recorder for Requests {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "messaging_client_operation_duration_seconds" => Histogram::from_arc(Arc::new(Told)),
            _ => Histogram::noop(),
        }
    }
}

struct Told;

impl HistogramFn for Told {
    fn record(&self, _: f64) {
        TOLD.set(CpuTime::now());
    }
}
