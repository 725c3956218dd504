//! A batcher, and a destination that notes what reaches it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, FlushReason, QueueFull, Receipt,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// One request, as the sender saw it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Duration,
    pub(crate) entries: Vec<String>,
    pub(crate) reason: FlushReason,
}

/// Takes `latency` for a request, and answers it as told.
pub(crate) struct Recorder {
    pub(crate) start: Instant,
    pub(crate) latency: Duration,
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) answer: Box<Reply>,
    /// Whether the owner of what is `gone` has withdrawn.
    pub(crate) withdrawn: AtomicBool,
}

pub(crate) type Reply = dyn Fn(&[String]) -> Vec<Answer> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Through(pub(crate) Arc<Recorder>);

impl BatchSender for Through {
    type Entry = String;

    async fn send(&self, entries: Vec<String>, flush: Flush) -> Vec<Answer> {
        self.0.sent.lock().unwrap().push(Sent {
            at: self.0.start.elapsed(),
            entries: entries.clone(),
            reason: flush.reason,
        });
        sleep(self.0.latency).await;
        (self.0.answer)(&entries)
    }

    fn is_withdrawn(&self, entry: &String) -> bool {
        entry.starts_with("gone") && self.0.withdrawn.load(Ordering::Relaxed)
    }
}

pub(crate) struct Bench {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) batcher: Arc<Batcher<Through>>,
}

pub(crate) fn all_ok(entries: &[String]) -> Vec<Answer> {
    let ids = entries.iter();
    ids.map(|entry| Ok(Receipt::new().with_provider_id(entry)))
        .collect()
}

impl Bench {
    pub(crate) fn new(latency_ms: u64, settings: BatchSettings) -> Self {
        Self::answering(latency_ms, settings, all_ok)
    }

    pub(crate) fn answering(
        latency_ms: u64,
        settings: BatchSettings,
        answer: impl Fn(&[String]) -> Vec<Answer> + Send + Sync + 'static,
    ) -> Self {
        let recorder = Arc::new(Recorder {
            start: Instant::now(),
            latency: Duration::from_millis(latency_ms),
            sent: Mutex::default(),
            answer: Box::new(answer),
            withdrawn: AtomicBool::new(false),
        });
        let batcher = Batcher::new(Through(Arc::clone(&recorder)), settings);
        Self {
            recorder,
            batcher: Arc::new(batcher),
        }
    }

    /// Submits in order: the entry is admitted when this returns.
    pub(crate) async fn submit(&self, entry: BatchEntry<String>) -> JoinHandle<Answer> {
        let batcher = Arc::clone(&self.batcher);
        let submitted = tokio::spawn(async move {
            let pause = Duration::from_millis(7);
            batcher.submit(entry, |full| full.into_error(pause)).await
        });
        tokio::task::yield_now().await;
        submitted
    }

    /// A submission that nobody has polled.
    pub(crate) async fn submission(&self, tenant: &str, name: &str) -> Answer {
        let entry = BatchEntry::new(tenant, 100, name.to_owned());
        let full = |full: QueueFull| full.into_error(ms(7));
        self.batcher.submit(entry, full).await
    }

    pub(crate) async fn submit_of(&self, tenant: &str, name: &str) -> JoinHandle<Answer> {
        self.submit(BatchEntry::new(tenant, 100, name.to_owned()))
            .await
    }

    pub(crate) async fn submit_in(&self, group: &str, name: &str) -> JoinHandle<Answer> {
        let entry = BatchEntry::new("t", 100, name.to_owned());
        self.submit(entry.with_ordering_key(group)).await
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.recorder.sent.lock().unwrap().clone()
    }

    pub(crate) fn batches(&self) -> Vec<Vec<String>> {
        self.sent().into_iter().map(|sent| sent.entries).collect()
    }
}

pub(crate) fn settings() -> BatchSettings {
    BatchSettings::default()
}

pub(crate) fn limited(change: impl FnOnce(&mut BatchSettings)) -> BatchSettings {
    let mut settings = BatchSettings::default();
    change(&mut settings);
    settings
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

pub(crate) async fn answers(handles: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for handle in handles {
        answers.push(handle.await.unwrap());
    }
    answers
}

pub(crate) fn ids(answers: &[Answer]) -> Vec<&str> {
    let ids = answers.iter().map(|answer| match answer {
        Ok(receipt) => receipt.provider_id.as_deref().unwrap(),
        Err(error) => error.code(),
    });
    ids.collect()
}
