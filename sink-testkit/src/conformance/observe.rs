//! Listening to metrics, spans and log records on the thread of a case.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

/// What was measured and told while something ran on this thread.
///
/// Metrics are taken while [`Observer::metrics`]'s guard lives, spans and records of all
/// levels and targets from [`Observer::listen`] on.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    recorder: Arc<Counts>,
    text: Arc<Mutex<Vec<u8>>>,
    /// Whose records of level trace are left out.
    wire_logs: &'static [&'static str],
}

impl Observer {
    /// Nothing was observed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out records of level trace of targets that begin like one of these: see
    /// [`Profile::wire_logs`](super::Profile::wire_logs).
    #[must_use]
    pub fn without_wire_logs(mut self, targets: &'static [&'static str]) -> Self {
        self.wire_logs = targets;
        self
    }

    /// The recorder, for `metrics::set_default_local_recorder`.
    #[must_use]
    pub fn metrics(&self) -> &impl Recorder {
        &*self.recorder
    }

    /// Takes spans and records of this thread until the guard is dropped. The first call in
    /// a process installs the subscriber that does it.
    ///
    /// # Panics
    ///
    /// When another subscriber is installed already, or a feature of `tracing` leaves levels
    /// out: nothing would be heard, and every case about what is told would pass.
    #[must_use]
    pub fn listen(&self) -> Listening {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // One subscriber for all threads: what is enabled is cached for the process, and
            // subscribers that come and go race with that.
            let is_heard = dynamic_filter_fn(|metadata, _| {
                HEARD.with_borrow(|heard| heard.as_ref().is_some_and(|heard| heard.hears(metadata)))
            });
            let layer = tracing_subscriber::fmt::layer()
                .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
                .with_ansi(false)
                .with_writer(|| Writer)
                .with_filter(is_heard);
            let subscriber = tracing_subscriber::registry().with(layer);
            // A suite that hears nothing would find no secret anywhere.
            tracing::subscriber::set_global_default(subscriber)
                .expect("no other subscriber is installed in the process of the suite");
            assert_eq!(
                tracing::level_filters::STATIC_MAX_LEVEL,
                tracing::level_filters::LevelFilter::TRACE,
                "the suite hears every level: no feature of tracing may leave some out"
            );
        });
        let before = HEARD.replace(Some(Heard {
            text: Arc::clone(&self.text),
            wire_logs: self.wire_logs,
        }));
        Listening {
            before,
            _of_this_thread: PhantomData,
        }
    }

    /// The value of a counter by the value of one of its labels.
    #[must_use]
    pub fn counter_by(&self, name: &str, label: &str) -> BTreeMap<String, u64> {
        let mut values = BTreeMap::new();
        for (key, counter) in &*lock(&self.recorder.counters) {
            if key.name() == name {
                let value = key.labels().find(|known| known.key() == label);
                let value = value.map_or_else(String::new, |label| label.value().to_owned());
                *values.entry(value).or_default() += counter.load(Ordering::SeqCst);
            }
        }
        values.retain(|_, count| *count > 0);
        values
    }

    /// Every series of every metric, name and labels.
    #[must_use]
    pub fn series(&self) -> Vec<String> {
        let counters = lock(&self.recorder.counters);
        let others = lock(&self.recorder.others);
        let keys = counters.keys().chain(others.iter());
        keys.map(|key| {
            let labels = key.labels().map(|label| (label.key(), label.value()));
            format!("{} {:?}", key.name(), labels.collect::<Vec<_>>())
        })
        .collect()
    }

    /// Everything that was told, a line a record.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.text)).into_owned()
    }

    /// The lines of warnings and errors.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| {
            let mut words = line.split_whitespace().skip(1);
            words
                .next()
                .is_some_and(|level| level == "WARN" || level == "ERROR")
        });
        lines.map(str::to_owned).collect()
    }

    /// Everything that was measured or told.
    #[must_use]
    pub fn everything(&self) -> String {
        format!("{}\n{}", self.text(), self.series().join("\n"))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Counts {
    counters: Mutex<BTreeMap<Key, Arc<AtomicU64>>>,
    others: Mutex<Vec<Key>>,
}

impl Counts {
    fn other(&self, key: &Key) {
        let mut others = lock(&self.others);
        if !others.contains(key) {
            others.push(key.clone());
        }
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

struct Ignored;

impl HistogramFn for Ignored {
    fn record(&self, _value: f64) {}
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = lock(&self.counters);
        let counter = counters.entry(key.clone()).or_default();
        Counter::from_arc(Arc::clone(counter))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.other(key);
        Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.other(key);
        Histogram::from_arc(Arc::new(Ignored))
    }
}

thread_local! {
    /// Who listens on this thread.
    static HEARD: RefCell<Option<Heard>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    wire_logs: &'static [&'static str],
}

impl Heard {
    fn hears(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let is_wire_log = *metadata.level() == tracing::Level::TRACE
            && self
                .wire_logs
                .iter()
                .any(|target| metadata.target().starts_with(target));
        !is_wire_log
    }
}

/// Somebody listens on this thread until it is dropped.
#[derive(Debug)]
pub struct Listening {
    before: Option<Heard>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        HEARD.set(self.before.take());
    }
}

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HEARD.with_borrow(|heard| {
            if let Some(heard) = heard {
                lock(&heard.text).extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up_by_a_label() {
        let observer = Observer::new();
        metrics::with_local_recorder(observer.metrics(), || {
            metrics::counter!("sent", "error_type" => "", "queue" => "a").increment(2);
            metrics::counter!("sent", "error_type" => "", "queue" => "b").increment(1);
            metrics::counter!("sent", "error_type" => "Throttled", "queue" => "a").increment(1);
        });
        let expected = [(String::new(), 3), ("Throttled".to_owned(), 1)];
        assert_eq!(observer.counter_by("sent", "error_type"), expected.into());
    }

    #[test]
    fn warnings_are_told_from_other_records() {
        let observer = Observer::new();
        let listening = observer.listen();
        tracing::warn!("careful");
        tracing::info!("WARN is only a word here");
        drop(listening);
        tracing::warn!("nobody listens");
        assert_eq!(observer.warnings().len(), 1);
        assert!(observer.text().contains("only a word here"));
    }
}
