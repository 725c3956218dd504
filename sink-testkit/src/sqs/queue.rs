//! One queue and its messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;

use super::clock::Timestamp;
use super::dedup::DeduplicationMemory;
use super::error::{ErrorCode, ServiceError, invalid_parameter};
use super::limits::VISIBILITY;
use super::message::{Receipt, StoredMessage};
use super::queue_attributes::{QueueAttributes, Scope};
use super::receipt_handle::ReceiptHandle;

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) uid: u64,
    pub(crate) arn: String,
    pub(crate) attributes: QueueAttributes,
    pub(crate) created_at: Timestamp,
    pub(crate) modified_at: Timestamp,
    pub(crate) purged_at: Option<Timestamp>,
    pub(crate) deduplication: DeduplicationMemory,
    pub(crate) attempts: HashMap<String, Attempt>,
    /// In the order in which they came.
    messages: BTreeMap<u64, StoredMessage>,
    next_arrival: u64,
    /// The same by the time at which they are to be had.
    schedule: BTreeSet<(Timestamp, u64)>,
    /// The same by message group; FIFO queues only.
    groups: BTreeMap<String, BTreeSet<u64>>,
    /// No message can be past its retention before this.
    next_expiry: Timestamp,
    /// The scope of deduplication that the queue was made with. A later change has no effect.
    pub(crate) scope: Option<Scope>,
}

/// What a receive with an attempt id delivered.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    pub(crate) delivered: Vec<ReceiptHandle>,
}

/// A place in the queue from which a receive goes on looking.
#[derive(Debug)]
pub(crate) enum Cursor {
    Fifo {
        /// The groups not looked at yet, the next one last.
        groups: Vec<String>,
        after: Option<u64>,
    },
    Standard(Option<(Timestamp, u64)>),
}

impl Queue {
    pub(crate) fn new(uid: u64, arn: String, attributes: QueueAttributes, now: Timestamp) -> Self {
        Self {
            uid,
            arn,
            scope: attributes.fifo.as_ref().map(|fifo| fifo.scope),
            attributes,
            created_at: now,
            modified_at: now,
            purged_at: None,
            deduplication: DeduplicationMemory::default(),
            attempts: HashMap::new(),
            messages: BTreeMap::new(),
            next_arrival: 0,
            schedule: BTreeSet::new(),
            groups: BTreeMap::new(),
            next_expiry: Timestamp::MAX,
        }
    }

    pub(crate) const fn is_fifo(&self) -> bool {
        self.attributes.fifo.is_some()
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = &StoredMessage> {
        self.messages.values()
    }

    pub(crate) fn message(&self, arrival: u64) -> Option<&StoredMessage> {
        self.messages.get(&arrival)
    }

    pub(crate) fn push(&mut self, message: StoredMessage) {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.schedule.insert((message.visible_at, arrival));
        if self.is_fifo()
            && let Some(group) = &message.group_id
        {
            self.groups
                .entry(group.clone())
                .or_default()
                .insert(arrival);
        }
        let expiry = message.retained_from.plus(self.attributes.retention);
        self.next_expiry = self.next_expiry.min(expiry);
        self.messages.insert(arrival, message);
    }

    pub(crate) fn remove(&mut self, arrival: u64) -> Option<StoredMessage> {
        let message = self.messages.remove(&arrival)?;
        self.schedule.remove(&(message.visible_at, arrival));
        if let Some(group) = &message.group_id
            && let Some(members) = self.groups.get_mut(group)
        {
            members.remove(&arrival);
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
        Some(message)
    }

    /// Empties the queue, and its memory of what was sent.
    pub(crate) fn purge(&mut self, now: Timestamp) {
        self.messages.clear();
        self.schedule.clear();
        self.groups.clear();
        self.attempts.clear();
        self.deduplication = DeduplicationMemory::default();
        self.next_expiry = Timestamp::MAX;
        self.purged_at = Some(now);
    }

    /// Takes over new settings. A changed delay reaches back on FIFO queues only ("CreateQueue").
    pub(crate) fn set_attributes(&mut self, attributes: QueueAttributes, now: Timestamp) {
        let delay = attributes.delay;
        let delay_changed = self.attributes.delay != delay;
        self.attributes = attributes;
        self.modified_at = now;
        self.next_expiry = Timestamp::default();
        if self.is_fifo() && delay_changed {
            let waiting: Vec<(u64, Timestamp)> = self
                .messages
                .iter()
                .filter(|(_, message)| message.receipt.is_none() && message.source_arn.is_none())
                .map(|(arrival, message)| (*arrival, message.sent_at.plus(delay)))
                .collect();
            for (arrival, visible_at) in waiting {
                self.show_at(arrival, visible_at);
            }
        }
    }

    /// Drops what is older than the retention period.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        if now < self.next_expiry {
            return;
        }
        let retention = self.attributes.retention;
        let end = |message: &StoredMessage| message.retained_from.plus(retention);
        let old: Vec<u64> = self
            .messages
            .iter()
            .filter(|(_, message)| end(message) <= now)
            .map(|(arrival, _)| *arrival)
            .collect();
        for arrival in old {
            self.remove(arrival);
        }
        self.next_expiry = self.messages().map(end).min().unwrap_or(Timestamp::MAX);
    }

    /// When the next hidden message becomes visible.
    pub(crate) fn next_visible(&self, now: Timestamp) -> Timestamp {
        self.schedule
            .range((Excluded((now, u64::MAX)), Unbounded))
            .next()
            .map_or(Timestamp::MAX, |(at, _)| *at)
    }

    pub(crate) fn in_flight(&self, now: Timestamp) -> usize {
        self.schedule
            .range((Excluded((now, u64::MAX)), Unbounded))
            .filter_map(|(_, arrival)| self.messages.get(arrival))
            .filter(|message| message.is_in_flight(now))
            .count()
    }

    pub(crate) fn cursor(&self) -> Cursor {
        if !self.is_fifo() {
            return Cursor::Standard(None);
        }
        let mut groups: Vec<(&u64, &String)> = self
            .groups
            .iter()
            .filter_map(|(group, members)| Some((members.first()?, group)))
            .collect();
        groups.sort_unstable_by(|left, right| right.cmp(left));
        Cursor::Fifo {
            groups: groups.into_iter().map(|(_, group)| group.clone()).collect(),
            after: None,
        }
    }

    /// The next message that may be delivered.
    ///
    /// On a FIFO queue that is the next one of a group as long as none before it is hidden, and then the
    /// first of the group whose oldest message is next.
    pub(crate) fn next_candidate(&self, cursor: &mut Cursor, now: Timestamp) -> Option<u64> {
        match cursor {
            Cursor::Standard(after) => {
                let from = after.map_or(Unbounded, Excluded);
                let next = *self
                    .schedule
                    .range((from, Included((now, u64::MAX))))
                    .next()?;
                *after = Some(next);
                Some(next.1)
            }
            Cursor::Fifo { groups, after } => loop {
                let group = groups.last()?;
                let from = after.map_or(Unbounded, Excluded);
                let next = self
                    .groups
                    .get(group)
                    .and_then(|members| members.range((from, Unbounded)).next())
                    .filter(|arrival| {
                        self.messages
                            .get(arrival)
                            .is_some_and(|message| !message.is_hidden(now))
                    });
                match next {
                    Some(arrival) => {
                        *after = Some(*arrival);
                        return Some(*arrival);
                    }
                    None => {
                        groups.pop();
                        *after = None;
                    }
                }
            },
        }
    }

    /// The number that the next message will have; those that a receive itself puts back are not before it.
    pub(crate) const fn next_arrival(&self) -> u64 {
        self.next_arrival
    }

    /// Marks a message as received and hides it.
    pub(crate) fn receive(
        &mut self,
        arrival: u64,
        number: u64,
        now: Timestamp,
        visibility: Duration,
    ) -> Option<&StoredMessage> {
        let message = self.messages.get_mut(&arrival)?;
        message.receive_count = message.receive_count.saturating_add(1);
        message.first_received_at.get_or_insert(now);
        message.receipt = Some(Receipt {
            number,
            received_at: now,
            changed: false,
        });
        self.show_at(arrival, now.plus(visibility));
        self.messages.get(&arrival)
    }

    /// Removes the message of a handle ("DeleteMessage").
    ///
    /// On a standard queue a handle works on after its time, until a later receive made a newer one: then
    /// the answer is good but the message stays. A FIFO queue refuses both.
    pub(crate) fn delete(
        &mut self,
        handle: ReceiptHandle,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let Some(message) = self.messages.get(&handle.arrival) else {
            return Ok(());
        };
        let is_newest = is_newest(message, handle);
        if self.is_fifo() && !(is_newest && message.is_hidden(now)) {
            return Err(expired_handle());
        }
        if is_newest {
            self.remove(handle.arrival);
        }
        Ok(())
    }

    /// Hides the message of a handle for another time from now on ("ChangeMessageVisibility").
    pub(crate) fn change_visibility(
        &mut self,
        handle: ReceiptHandle,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let is_fifo = self.is_fifo();
        let message = self
            .messages
            .get_mut(&handle.arrival)
            .ok_or_else(not_available)?;
        let is_newest = is_newest(message, handle);
        if is_fifo && !(is_newest && message.is_hidden(now)) {
            return Err(expired_handle());
        }
        let Some(receipt) = message.receipt.as_mut().filter(|_| is_newest) else {
            return Err(not_available());
        };
        let limit = Duration::from_secs(VISIBILITY.end().unsigned_abs());
        if now.since(receipt.received_at).saturating_add(visibility) > limit {
            return Err(invalid_parameter(format!(
                "the total visibility timeout is beyond the limit of {} seconds from the receive on",
                VISIBILITY.end()
            )));
        }
        receipt.changed = true;
        self.show_at(handle.arrival, now.plus(visibility));
        Ok(())
    }

    /// Ends the visibility timeout of every message that is in flight.
    pub(crate) fn end_holds(&mut self, now: Timestamp) {
        let messages = self.messages.iter();
        let held: Vec<u64> = messages
            .filter(|(_, message)| message.is_in_flight(now))
            .map(|(arrival, _)| *arrival)
            .collect();
        for arrival in held {
            self.show_at(arrival, now);
        }
    }

    /// Repeats a receive: the same messages with the same handles, hidden afresh.
    pub(crate) fn repeat(
        &mut self,
        handles: &[ReceiptHandle],
        now: Timestamp,
        visibility: Duration,
    ) -> Result<(), ServiceError> {
        let untouched = handles.iter().all(|handle| {
            self.messages.get(&handle.arrival).is_some_and(|message| {
                message
                    .receipt
                    .is_some_and(|receipt| receipt.number == handle.number && !receipt.changed)
            })
        });
        if !untouched {
            return Err(invalid_parameter(
                "a message of this receive attempt was changed or deleted since",
            ));
        }
        for handle in handles {
            self.show_at(handle.arrival, now.plus(visibility));
        }
        Ok(())
    }

    fn show_at(&mut self, arrival: u64, visible_at: Timestamp) {
        if let Some(message) = self.messages.get_mut(&arrival) {
            self.schedule.remove(&(message.visible_at, arrival));
            message.visible_at = visible_at;
            self.schedule.insert((visible_at, arrival));
        }
    }
}

fn is_newest(message: &StoredMessage, handle: ReceiptHandle) -> bool {
    message
        .receipt
        .is_some_and(|receipt| receipt.number == handle.number)
}

fn expired_handle() -> ServiceError {
    invalid_parameter("the receipt handle has expired")
}

fn not_available() -> ServiceError {
    invalid_parameter(
        "the message does not exist or is not available for a change of its visibility timeout",
    )
}

pub(crate) fn bad_handle() -> ServiceError {
    ServiceError::new(
        ErrorCode::ReceiptHandleIsInvalid,
        "the receipt handle is not valid for this queue",
    )
}
