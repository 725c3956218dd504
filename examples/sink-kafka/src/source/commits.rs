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

    /// Commits that the partition of this record is consumed as far as it is by then. The
    /// answer's end without one means that the subscription is closed.
    pub(super) fn commit(&self, place: Place) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wanted) = &*wanted {
            // A thread that has ended drops it, which answers.
            let _ = wanted.send(Commit { place, answer });
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
            let (positions, gone) = positions(&lock(&self.offsets), &mut commits);
            for gone in gone {
                let _ = gone.answer.send(Err(Code::AssignmentLost));
            }
            let answer = self.try_send(positions);
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

    fn try_send(&self, positions: BTreeMap<i32, i64>) -> Answer {
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

/// Up to where each partition of these commits is to be committed, and the commits whose
/// partition may be another member's now, who may have got further.
///
/// Those who settle at once may ask in any order: each is answered by the furthest position
/// that is known when its request is made, and none takes the group back.
fn positions(offsets: &Offsets, commits: &mut Vec<Commit>) -> (BTreeMap<i32, i64>, Vec<Commit>) {
    let is_gone = |commit: &mut Commit| offsets.position(commit.place).is_none();
    let gone = commits.extract_if(.., is_gone).collect();
    let position = |commit: &Commit| {
        let position = offsets.position(commit.place)?;
        Some((commit.place.partition, position))
    };
    (commits.iter().filter_map(position).collect(), gone)
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commits").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(places: &[Place]) -> Vec<Commit> {
        let commit = |place: &Place| Commit {
            place: *place,
            answer: oneshot::channel().0,
        };
        places.iter().map(commit).collect()
    }

    #[test]
    fn commits_that_are_asked_for_in_reverse_take_the_group_nowhere_back() {
        let mut offsets = Offsets::default();
        let first = offsets.take(0, 4).unwrap();
        let second = offsets.take(0, 5).unwrap();
        let other = offsets.take(1, 7).unwrap();
        for place in [first, second, other] {
            assert_eq!(offsets.done(place), Ok(true));
        }
        for (places, expected) in [
            (vec![second], vec![(0, 6)]),
            (vec![first], vec![(0, 6)]),
            (vec![second, first, other], vec![(0, 6), (1, 8)]),
        ] {
            let (positions, gone) = positions(&offsets, &mut asked(&places));
            assert_eq!(positions.into_iter().collect::<Vec<_>>(), expected);
            assert!(gone.is_empty());
        }
    }

    #[test]
    fn a_partition_that_is_another_member_s_is_not_committed() {
        let mut offsets = Offsets::default();
        let places = [offsets.take(0, 4).unwrap(), offsets.take(1, 7).unwrap()];
        for place in places {
            assert_eq!(offsets.done(place), Ok(true));
        }
        offsets.revoke(0);
        let mut commits = asked(&places);
        let (positions, gone) = positions(&offsets, &mut commits);
        assert_eq!(positions.into_iter().collect::<Vec<_>>(), [(1, 8)]);
        assert_eq!((gone.len(), commits.len()), (1, 1));
        assert_eq!(gone[0].place, places[0]);
    }
}
