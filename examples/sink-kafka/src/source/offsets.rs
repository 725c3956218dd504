//! Which records are out, and up to where a partition is consumed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dispatch_api::LeaseKeeper;
use tokio::time::Instant;

use super::record::StoredRecord;

/// A record that was taken from a partition, during one assignment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) partition: i32,
    pub(super) offset: i64,
    assignment: u64,
}

/// A partition, from when its first record came until it is taken away.
#[derive(Debug)]
struct Partition {
    assignment: u64,
    /// Behind the last record that was taken.
    next: i64,
    /// What was taken and is not done, with who tells its holder of a loss.
    out: BTreeMap<i64, Option<LeaseKeeper>>,
    /// What was asked to be committed.
    committed: i64,
    /// A record of it came back: nothing of it is handed out before.
    blocked_until: Option<Instant>,
}

/// What waits in this process until it is handed out.
#[derive(Debug)]
struct Waiting {
    place: Place,
    due: Instant,
    record: StoredRecord,
}

/// The records of one subscription.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    partitions: BTreeMap<i32, Partition>,
    assignments: u64,
    /// By place in each partition.
    waiting: VecDeque<Waiting>,
    /// Of this member's partitions those that the client asks for no records.
    paused: BTreeSet<i32>,
    /// The group has told this member which partitions are its.
    has_joined: bool,
    is_closed: bool,
}

impl Offsets {
    /// A record came; `None` once the subscription is closed.
    pub(super) fn take(&mut self, partition: i32, offset: i64) -> Option<Place> {
        if self.is_closed {
            return None;
        }
        let assignments = &mut self.assignments;
        let known = self.partitions.entry(partition).or_insert_with(|| {
            *assignments += 1;
            Partition {
                assignment: *assignments,
                next: offset,
                out: BTreeMap::new(),
                committed: offset,
                blocked_until: None,
            }
        });
        known.next = known.next.max(offset + 1);
        let place = Place {
            partition,
            offset,
            assignment: known.assignment,
        };
        if let Some(earlier) = known.out.insert(offset, None) {
            // It is handed out once: what was made of it before is void.
            self.waiting.retain(|waiting| waiting.place != place);
            if let Some(keeper) = earlier {
                keeper.lose();
            }
        }
        Some(place)
    }

    fn of(&mut self, place: Place) -> Option<&mut Partition> {
        let partition = self.partitions.get_mut(&place.partition)?;
        let is_held =
            partition.assignment == place.assignment && partition.out.contains_key(&place.offset);
        is_held.then_some(partition)
    }

    /// Up to where the partition of this record is to be committed, which is never less than
    /// what was asked before; `None` once the partition is not this subscription's as it was.
    pub(super) fn position(&self, place: Place) -> Option<i64> {
        let partition = self.partitions.get(&place.partition)?;
        (partition.assignment == place.assignment).then_some(partition.committed)
    }

    /// Whether the record is still this subscription's to settle.
    pub(super) fn is_held(&mut self, place: Place) -> bool {
        self.of(place).is_some()
    }

    /// Who tells the holder of the record of its loss.
    pub(super) fn hold(&mut self, place: Place, keeper: LeaseKeeper) {
        match self.of(place) {
            Some(partition) => {
                let earlier = partition.out.insert(place.offset, Some(keeper));
                if let Some(keeper) = earlier.flatten() {
                    keeper.lose();
                }
            }
            None => keeper.lose(),
        }
    }

    /// The record is done. Whether its partition is consumed further than what was asked to be
    /// committed, which [`Offsets::position`] tells.
    ///
    /// # Errors
    ///
    /// It is not this subscription's any more.
    pub(super) fn done(&mut self, place: Place) -> Result<bool, NotHeld> {
        let partition = self.of(place).ok_or(NotHeld)?;
        partition.out.remove(&place.offset);
        let first = partition.out.keys().next().copied();
        let position = first.unwrap_or(partition.next);
        if position <= partition.committed {
            return Ok(false);
        }
        partition.committed = position;
        Ok(true)
    }

    /// The record is handed out again from this moment on, and nothing of its partition
    /// before. Has no effect where it is not this subscription's any more.
    pub(super) fn put_back(&mut self, place: Place, due: Instant, record: StoredRecord) -> bool {
        let Some(partition) = self.of(place) else {
            return false;
        };
        partition.out.insert(place.offset, None);
        let until = partition.blocked_until.unwrap_or(due);
        partition.blocked_until = Some(until.max(due));
        self.delay(place, due, record);
        true
    }

    /// The record is handed out from this moment on.
    pub(super) fn delay(&mut self, place: Place, due: Instant, record: StoredRecord) {
        let at = self
            .waiting
            .partition_point(|waiting| waiting.place < place);
        self.waiting.insert(at, Waiting { place, due, record });
    }

    /// The next record that is to be handed out now.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Place, StoredRecord)> {
        let at = (0..self.waiting.len()).find(|at| self.due_of(&self.waiting[*at]) <= now)?;
        let Waiting { place, record, .. } = self.waiting.remove(at)?;
        Some((place, record))
    }

    /// When the next record is to be handed out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.waiting.iter().map(|waiting| self.due_of(waiting));
        due.min()
    }

    fn due_of(&self, waiting: &Waiting) -> Instant {
        let partition = self.partitions.get(&waiting.place.partition);
        match partition.and_then(|partition| partition.blocked_until) {
            Some(until) => waiting.due.max(until),
            None => waiting.due,
        }
    }

    /// Whether something of the partition has to be handed out first.
    pub(super) fn is_blocked(&self, partition: i32, now: Instant) -> bool {
        let partition = self.partitions.get(&partition);
        let until = partition.and_then(|partition| partition.blocked_until);
        until.is_some_and(|until| until > now)
    }

    /// How many of them wait for nothing but to be handed out.
    pub(super) fn ready(&self, now: Instant) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|waiting| waiting.due <= now).count()
    }

    /// The group has told this member which partitions are its, or is about to tell it anew.
    pub(super) fn set_joined(&mut self, has_joined: bool) {
        self.has_joined = has_joined;
    }

    /// Whether what comes is what there is for this member.
    pub(super) fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// How many records wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The partitions that the client asks for no records.
    pub(super) fn paused(&mut self) -> &mut BTreeSet<i32> {
        &mut self.paused
    }

    /// The partition is another member's now: what is out of it is lost.
    pub(super) fn revoke(&mut self, partition: i32) {
        self.paused.remove(&partition);
        let Some(gone) = self.partitions.remove(&partition) else {
            return;
        };
        self.waiting
            .retain(|waiting| waiting.place.partition != partition);
        for keeper in gone.out.into_values().flatten() {
            keeper.lose();
        }
    }

    /// Everything that is out is lost, and nothing more is taken.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        let partitions: Vec<i32> = self.partitions.keys().copied().collect();
        for partition in partitions {
            self.revoke(partition);
        }
    }
}

/// The record is not this subscription's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotHeld;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn taken(offsets: &mut Offsets, partition: i32, these: &[i64]) -> Vec<Place> {
        let take = |offset: &i64| offsets.take(partition, *offset).unwrap();
        these.iter().map(take).collect()
    }

    #[test]
    fn a_partition_is_consumed_up_to_the_first_record_that_is_not_done() {
        let mut offsets = Offsets::default();
        let places = taken(&mut offsets, 0, &[4, 5, 6, 9]);
        let mut done = |place: Place| {
            let is_further = offsets.done(place)?;
            Ok(is_further.then(|| offsets.position(place).unwrap()))
        };
        assert_eq!(done(places[2]), Ok(None));
        assert_eq!(done(places[0]), Ok(Some(5)));
        assert_eq!(done(places[1]), Ok(Some(9)));
        assert_eq!(done(places[3]), Ok(Some(10)));
        assert_eq!(done(places[3]), Err(NotHeld));
    }

    #[test]
    fn a_record_of_an_earlier_assignment_is_nobody_s_to_settle() {
        let mut offsets = Offsets::default();
        let early = taken(&mut offsets, 0, &[4])[0];
        let (keeper, lease) = LeaseKeeper::new(None);
        offsets.hold(early, keeper);
        offsets.revoke(0);
        assert!(lease.is_lost());
        let late = taken(&mut offsets, 0, &[4])[0];
        assert_eq!(offsets.done(early), Err(NotHeld));
        assert_eq!(offsets.position(early), None);
        assert_eq!(offsets.done(late), Ok(true));
        assert_eq!(offsets.position(late), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_back_goes_before_what_is_behind_it() {
        let mut offsets = Offsets::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let places = taken(&mut offsets, 0, &[1, 2, 3]);
        let other = taken(&mut offsets, 1, &[1])[0];
        offsets.put_back(places[1], now, StoredRecord::default());
        offsets.put_back(places[0], later, StoredRecord::default());
        offsets.put_back(other, now, StoredRecord::default());
        assert!(offsets.is_blocked(0, now) && !offsets.is_blocked(1, now));
        assert_eq!(offsets.due(now).unwrap().0, other);
        assert!(offsets.due(now).is_none());
        assert_eq!(offsets.next_due(), Some(later));
        assert_eq!(offsets.due(later).unwrap().0, places[0]);
        assert_eq!(offsets.due(later).unwrap().0, places[1]);
        assert_eq!(offsets.waiting(), 0);
        // Nothing was done, so nothing is consumed.
        assert_eq!(offsets.done(places[2]), Ok(false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_record_holds_up_no_other() {
        let mut offsets = Offsets::default();
        let now = Instant::now();
        let places = taken(&mut offsets, 0, &[1, 2]);
        offsets.delay(
            places[0],
            now + Duration::from_secs(9),
            StoredRecord::default(),
        );
        assert!(!offsets.is_blocked(0, now));
        assert_eq!(offsets.done(places[1]), Ok(false));
        assert_eq!(offsets.next_due(), Some(now + Duration::from_secs(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_comes_once_more_is_lost_to_who_has_it_and_waits_no_more() {
        let mut offsets = Offsets::default();
        let places = taken(&mut offsets, 0, &[1, 2]);
        let (keeper, lease) = LeaseKeeper::new(None);
        offsets.hold(places[0], keeper);
        offsets.delay(places[1], Instant::now(), StoredRecord::default());
        assert_eq!(taken(&mut offsets, 0, &[1, 2]), places);
        assert!(lease.is_lost());
        assert_eq!(offsets.waiting(), 0);
        let (keeper, lease) = LeaseKeeper::new(None);
        offsets.hold(places[0], keeper);
        assert!(!lease.is_lost());
        assert_eq!(offsets.done(places[0]), Ok(true));
    }

    #[test]
    fn a_closed_subscription_takes_nothing_and_has_lost_what_is_out() {
        let mut offsets = Offsets::default();
        let place = taken(&mut offsets, 0, &[1])[0];
        offsets.close();
        assert_eq!(offsets.done(place), Err(NotHeld));
        assert_eq!(offsets.take(0, 2), None);
    }
}
