//! Commits on their way: one request at a time, for all that was settled meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::client::{Client, lock};
use super::offsets::{Offsets, Place};

/// How long a commit rests that the group is not ready for.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a commit; the code where it failed.
type Answer = Result<(), Code>;

struct Commit {
    place: Place,
    position: i64,
    answer: oneshot::Sender<Answer>,
}

/// Takes commits until it is closed.
pub(super) struct Commits {
    wanted: Mutex<Option<mpsc::Sender<Commit>>>,
    /// Ends when what was taken is answered.
    answered: watch::Receiver<()>,
}

impl Commits {
    /// A thread of its own waits for the brokers: it outlives the runtime of whoever settles.
    pub(super) fn start(sender: Sender) -> std::io::Result<Self> {
        let (wanted, commits) = mpsc::channel();
        let (running, answered) = watch::channel(());
        std::thread::Builder::new()
            .name("sink-kafka-commits".to_owned())
            .spawn(move || {
                sender.run(&commits);
                drop(running);
            })?;
        Ok(Self {
            wanted: Mutex::new(Some(wanted)),
            answered,
        })
    }

    /// Commits that the partition of this record is consumed up to this position. The answer's
    /// end without one means that the subscription is closed.
    pub(super) fn commit(&self, place: Place, position: i64) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wanted) = &*wanted {
            // A thread that has ended drops it, which answers.
            let _ = wanted.send(Commit {
                place,
                position,
                answer,
            });
        }
        answered
    }

    /// Takes no more, and returns when what was taken is answered.
    pub(super) async fn close(&self) {
        drop(
            self.wanted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let mut answered = self.answered.clone();
        // Nothing is ever sent: it ends with the thread.
        let _ = answered.changed().await;
    }
}

/// Sends commits to the group's coordinator.
pub(super) struct Sender {
    pub(super) client: Arc<Client>,
    pub(super) topic: Arc<str>,
    pub(super) offsets: Arc<Mutex<Offsets>>,
    /// How long a group that is about to share its partitions anew is waited for.
    pub(super) timeout: Duration,
}

impl Sender {
    fn run(&self, commits: &mpsc::Receiver<Commit>) {
        while let Ok(first) = commits.recv() {
            let mut all = vec![first];
            all.extend(commits.try_iter());
            self.send(all);
        }
    }

    /// Sends these until they are answered for good.
    #[expect(
        clippy::disallowed_methods,
        reason = "this thread runs no tasks: it waits for the brokers either way"
    )]
    fn send(&self, mut commits: Vec<Commit>) {
        let latest = Instant::now() + self.timeout;
        loop {
            // Another member may have got further in a partition that is its now.
            for gone in commits.extract_if(.., |commit| !self.is_assigned(commit)) {
                let _ = gone.answer.send(Err(Code::AssignmentLost));
            }
            let answer = self.try_send(&commits);
            let is_rebalancing = matches!(
                answer,
                Err(Code::RebalanceInProgress | Code::IllegalGeneration)
            );
            if !is_rebalancing || Instant::now() >= latest {
                for commit in commits {
                    // Who does not wait any more was told otherwise.
                    let _ = commit.answer.send(answer);
                }
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn is_assigned(&self, commit: &Commit) -> bool {
        lock(&self.offsets).is_assigned(commit.place)
    }

    fn try_send(&self, commits: &[Commit]) -> Answer {
        let mut positions: BTreeMap<i32, i64> = BTreeMap::new();
        for commit in commits {
            let position = positions
                .entry(commit.place.partition)
                .or_insert(commit.position);
            *position = commit.position.max(*position);
        }
        if positions.is_empty() {
            return Ok(());
        }
        let code = |error: KafkaError| error.rdkafka_error_code().unwrap_or(Code::Fail);
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for (partition, position) in positions {
            let position = Offset::Offset(position);
            list.add_partition_offset(&self.topic, partition, position)
                .map_err(code)?;
        }
        let sent = self.client.consumer().commit(&list, CommitMode::Sync);
        sent.map_err(code)
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commits").finish_non_exhaustive()
    }
}
