//! Deletes and changes of visibility: one call each, or gathered.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, QueueFull, SinkError,
};
use tokio::time::{Instant, sleep};

use crate::calls::Calls;
use crate::lease::Extend;
use crate::requests::Change;

/// The most entries of a call.
pub(crate) const BATCH: usize = 10;

/// How long a gathered settlement waits for others.
const LINGER: Duration = Duration::from_millis(10);

/// How often a close looks whether all is answered.
const LOOK: Duration = Duration::from_millis(5);

/// Settles messages of one queue.
#[derive(Debug)]
pub(crate) struct Settler {
    caller: Arc<Caller>,
    gathering: Option<Gathering>,
}

/// Deletes and changes of visibility are different calls.
#[derive(Debug)]
struct Gathering {
    deletes: Batcher<Gathered>,
    changes: Batcher<Gathered>,
}

/// Calls about one queue.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) calls: Calls,
    pub(crate) queue_url: String,
}

struct Gathered(Arc<Caller>);

impl Settler {
    pub(crate) fn new(caller: Arc<Caller>, gather: bool) -> Self {
        let batcher = || {
            let mut settings = BatchSettings::default();
            settings.linger = LINGER;
            settings.max_entries = NonZeroUsize::new(BATCH).expect("10 is not zero");
            // What is out bounds what can wait.
            settings.max_bytes = usize::MAX;
            settings.queue_max_entries = usize::MAX;
            settings.queue_max_tenant_entries = usize::MAX;
            settings.queue_max_bytes = usize::MAX;
            Batcher::new(Gathered(Arc::clone(&caller)), settings)
        };
        Self {
            gathering: gather.then(|| Gathering {
                deletes: batcher(),
                changes: batcher(),
            }),
            caller,
        }
    }

    /// Makes the change, and returns when its own answer is known.
    ///
    /// # Errors
    ///
    /// Everything but the service's confirmation.
    pub(crate) async fn change(&self, handle: &Arc<str>, change: Change) -> Result<(), SinkError> {
        let Some(gathering) = &self.gathering else {
            let Caller { calls, queue_url } = &*self.caller;
            return calls.change(queue_url, handle, change).await;
        };
        let batcher = match change {
            Change::Delete => &gathering.deletes,
            Change::Visibility(_) => &gathering.changes,
        };
        let entry = BatchEntry::new("", handle.len(), (Arc::clone(handle), change));
        batcher.submit(entry, never_full).await.map(|_receipt| ())
    }

    /// Sends off what is gathered, and returns when it is answered.
    pub(crate) async fn flush(&self) {
        let Some(Gathering { deletes, changes }) = &self.gathering else {
            return;
        };
        let latest = self.caller.calls.deadline();
        while deletes.load().0 + changes.load().0 > 0 && Instant::now() < latest {
            deletes.flush();
            changes.flush();
            sleep(LOOK).await;
        }
    }
}

/// No ceiling is set.
fn never_full(full: QueueFull) -> SinkError {
    full.into_error(Duration::ZERO)
}

impl BatchSender for Gathered {
    type Entry = (Arc<str>, Change);

    async fn send(&self, entries: Vec<Self::Entry>, _: Flush) -> Vec<Answer> {
        let Caller { calls, queue_url } = &*self.0;
        let changes: Vec<(&str, Change)> = entries
            .iter()
            .map(|(handle, change)| (&**handle, *change))
            .collect();
        calls
            .change_batch(queue_url, &changes, calls.deadline())
            .await
    }
}

impl std::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gathered")
    }
}

impl Extend for Caller {
    async fn extend(&self, holds: &[(Arc<str>, u64)], deadline: Instant) -> Vec<Answer> {
        let changes: Vec<(&str, Change)> = holds
            .iter()
            .map(|(handle, seconds)| (&**handle, Change::Visibility(*seconds)))
            .collect();
        let deadline = deadline.min(self.calls.deadline());
        let changed = self.calls.change_batch(&self.queue_url, &changes, deadline);
        changed.await
    }
}
