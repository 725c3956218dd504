//! Settlements on their way: one request each, or gathered.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, QueueFull, SinkError,
};
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::queue::MAX_ENTRIES;
use super::wire::{HoldChange, QueueCall};

/// How long a gathered settlement waits for others.
const LINGER: Duration = Duration::from_millis(20);

/// How often a close looks whether all is answered.
const LOOK: Duration = Duration::from_millis(5);

/// What becomes of a message at the broker.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Ack(String),
    Return(HoldChange),
}

pub(super) struct Settler {
    client: Arc<Client>,
    gathering: Option<Gathering>,
}

/// The two are different requests.
struct Gathering {
    acks: Batcher<Gathered>,
    returns: Batcher<Gathered>,
}

struct Gathered(Arc<Client>);

impl Settler {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let batcher = || {
            let mut settings = BatchSettings::default();
            settings.linger = LINGER;
            settings.max_entries = NonZeroUsize::new(MAX_ENTRIES).expect("10 is not zero");
            // What is out bounds what can wait.
            settings.max_bytes = usize::MAX;
            settings.queue_max_entries = usize::MAX;
            settings.queue_max_tenant_entries = usize::MAX;
            settings.queue_max_bytes = usize::MAX;
            Batcher::new(Gathered(Arc::clone(&client)), settings)
        };
        Self {
            gathering: client.settings.is_batched.then(|| Gathering {
                acks: batcher(),
                returns: batcher(),
            }),
            client,
        }
    }

    /// Makes the change, and returns when its own answer is known.
    pub(super) async fn settle(&self, change: Change) -> Result<(), SinkError> {
        let answer = match (&self.gathering, &change) {
            (None, _) => {
                let mut answers = send(&self.client, vec![change]).await;
                answers
                    .pop()
                    .unwrap_or_else(|| Err(self.client.unexpected()))
            }
            (Some(gathering), Change::Ack(_)) => {
                let entry = BatchEntry::new("", 0, change);
                gathering.acks.submit(entry, never_full).await
            }
            (Some(gathering), Change::Return(_)) => {
                let entry = BatchEntry::new("", 0, change);
                gathering.returns.submit(entry, never_full).await
            }
        };
        answer.map(|_receipt| ())
    }

    /// Sends off what is gathered, and returns when it is answered.
    pub(super) async fn flush(&self) {
        let Some(Gathering { acks, returns }) = &self.gathering else {
            return;
        };
        let latest = self.client.deadline();
        while acks.load().0 + returns.load().0 > 0 && Instant::now() < latest {
            acks.flush();
            returns.flush();
            sleep(LOOK).await;
        }
    }
}

/// No ceiling is set.
fn never_full(full: QueueFull) -> SinkError {
    full.into_error(Duration::ZERO)
}

/// One request for changes of one kind.
async fn send(client: &Client, changes: Vec<Change>) -> Vec<Answer> {
    let mut acked = Vec::new();
    let mut returned = Vec::new();
    for change in changes {
        match change {
            Change::Ack(handle) => acked.push(handle),
            Change::Return(change) => returned.push(change),
        }
    }
    let call = match returned.is_empty() {
        true => QueueCall::Ack(acked),
        false => QueueCall::Return(returned),
    };
    client.change(call, client.deadline()).await
}

impl BatchSender for Gathered {
    type Entry = Change;

    async fn send(&self, entries: Vec<Change>, _: Flush) -> Vec<Answer> {
        send(&self.0, entries).await
    }
}
