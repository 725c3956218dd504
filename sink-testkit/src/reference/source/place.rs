//! A place for messages: what each group has of it, and who holds what.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use super::wire::{EntryAnswer, QueueMessage, ReceiveCall, RedrivePolicy};
use crate::reference::broker::body_digest;

/// After its receive a message is held no longer than this.
pub(super) const MAX_HOLD: Duration = Duration::from_secs(12 * 3_600);

/// The kind of a place.
///
/// Closed on purpose: a place is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// A queue that keeps no order.
    Plain,
    /// A queue that keeps the messages of a key in order.
    Ordered,
    /// A log that is consumed in order and committed, and returns nothing before another
    /// subscription opens.
    Log,
}

/// A message as it was put.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) id: String,
    pub(super) body: Bytes,
    pub(super) attributes: Vec<(String, Bytes)>,
    pub(super) key: Option<String>,
    pub(super) sent_at: SystemTime,
    /// Deliveries of the message that it is a copy of.
    pub(super) attempts: u32,
    /// Not before this moment.
    pub(super) not_before: Option<Instant>,
    /// The only group that it is for.
    pub(super) only_for: Option<String>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) kind: PlaceKind,
    pub(super) redrive: Option<RedrivePolicy>,
    all: Vec<Arc<Stored>>,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug, Default)]
struct Group {
    entries: VecDeque<Entry>,
}

/// A message as one group has it.
#[derive(Debug)]
struct Entry {
    message: Arc<Stored>,
    receives: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Handed out from this moment on.
    Ready(Instant),
    Held(Held),
    /// Consumed, and one before it is not: only in a log.
    Consumed,
}

#[derive(Debug)]
struct Held {
    handle: String,
    /// No end in a log.
    until: Option<Instant>,
    since: Instant,
    /// The connection and its request.
    by: (u64, u64),
}

impl Entry {
    fn new(message: Arc<Stored>, now: Instant) -> Self {
        let at = message.not_before.unwrap_or(now);
        Self {
            message,
            receives: 0,
            state: State::Ready(at),
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        match &self.state {
            State::Held(held) => held.until.is_none_or(|until| until > now),
            State::Ready(_) | State::Consumed => false,
        }
    }

    /// When it may be handed out.
    fn ready_at(&self) -> Option<Instant> {
        match &self.state {
            State::Ready(at) => Some(*at),
            State::Held(held) => held.until,
            State::Consumed => None,
        }
    }

    fn is_ready(&self, now: Instant) -> bool {
        self.ready_at().is_some_and(|at| at <= now)
    }

    fn has(&self, handle: &str) -> bool {
        matches!(&self.state, State::Held(held) if held.handle == handle)
    }
}

impl Place {
    pub(super) fn new(kind: PlaceKind) -> Self {
        Self {
            kind,
            redrive: None,
            all: Vec::new(),
            groups: BTreeMap::new(),
        }
    }

    pub(super) fn put(&mut self, message: &Arc<Stored>, now: Instant) {
        self.all.push(Arc::clone(message));
        for (name, group) in &mut self.groups {
            if is_for(message, name) {
                group
                    .entries
                    .push_back(Entry::new(Arc::clone(message), now));
            }
        }
    }

    /// What the group has; a new one has the backlog.
    fn group(&mut self, name: &str, now: Instant) -> &mut Group {
        let all = &self.all;
        self.groups.entry(name.to_owned()).or_insert_with(|| {
            let backlog = all.iter().filter(|message| is_for(message, name));
            Group {
                entries: backlog
                    .map(|message| Entry::new(Arc::clone(message), now))
                    .collect(),
            }
        })
    }

    /// A subscription of the group begins: a log goes back to what is committed.
    pub(super) fn open(&mut self, group: &str, now: Instant) {
        let is_log = self.kind == PlaceKind::Log;
        for entry in &mut self.group(group, now).entries {
            if is_log && !matches!(entry.state, State::Ready(_)) {
                entry.state = State::Ready(now);
            }
        }
    }

    /// What a log handed out in answers that nobody got.
    pub(super) fn release(&mut self, group: &str, connection: u64, unanswered: &[u64]) {
        if self.kind != PlaceKind::Log || unanswered.is_empty() {
            return;
        }
        let now = Instant::now();
        for entry in &mut self.group(group, now).entries {
            let was_lost = match &entry.state {
                State::Held(held) => held.by.0 == connection && unanswered.contains(&held.by.1),
                State::Ready(_) | State::Consumed => false,
            };
            if was_lost {
                entry.receives -= 1;
                entry.state = State::Ready(now);
            }
        }
    }

    /// Hands out what may be handed out now. `new_handle` makes a handle.
    pub(super) fn hand_out(
        &mut self,
        group: &str,
        call: &ReceiveCall,
        connection: u64,
        mut new_handle: impl FnMut() -> String,
    ) -> Vec<QueueMessage> {
        let now = Instant::now();
        let kind = self.kind;
        let mut given = Vec::new();
        let entries = &mut self.group(group, now).entries;
        // While one of a key is held or delayed, the key has to wait.
        let mut busy: HashSet<String> = HashSet::new();
        for entry in entries.iter() {
            let is_waiting = match kind {
                PlaceKind::Plain => false,
                PlaceKind::Ordered => !entry.is_ready(now),
                // A copy that is not due yet has left its place in the order.
                PlaceKind::Log => entry.is_held(now),
            };
            if is_waiting && let Some(key) = &entry.message.key {
                busy.insert(key.clone());
            }
        }
        for entry in entries.iter_mut() {
            if given.len() == call.max {
                break;
            }
            let key = entry.message.key.as_ref();
            if !entry.is_ready(now) || key.is_some_and(|key| busy.contains(key)) {
                continue;
            }
            let handle = new_handle();
            entry.receives += 1;
            entry.state = State::Held(Held {
                handle: handle.clone(),
                until: (kind != PlaceKind::Log).then(|| now + call.hold),
                since: now,
                by: (connection, call.number),
            });
            let message = &entry.message;
            given.push(QueueMessage {
                id: message.id.clone(),
                handle,
                body: message.body.clone(),
                digest: body_digest(&message.body),
                attributes: message.attributes.clone(),
                key: message.key.clone(),
                receives: message.attempts + entry.receives,
                sent_at: message.sent_at,
            });
        }
        given
    }

    /// When something may be handed out that may not be now.
    pub(super) fn next_ready(&self, group: &str) -> Option<Instant> {
        let now = Instant::now();
        let entries = &self.groups.get(group)?.entries;
        let times = entries.iter().filter_map(Entry::ready_at);
        times.filter(|at| *at > now).min()
    }

    /// Takes out what the redrive policy says is spent and nobody holds.
    pub(super) fn take_spent(&mut self) -> Vec<Arc<Stored>> {
        let Some(policy) = &self.redrive else {
            return Vec::new();
        };
        let (now, cap) = (Instant::now(), policy.max_attempts);
        let mut spent = Vec::new();
        for group in self.groups.values_mut() {
            group.entries.retain(|entry| {
                let is_spent = entry.receives >= cap && entry.is_ready(now);
                if is_spent {
                    spent.push(Arc::clone(&entry.message));
                }
                !is_spent
            });
        }
        spent
    }

    /// Consumes a message for good.
    pub(super) fn ack(&mut self, group: &str, handle: &str) -> EntryAnswer {
        let Some(group) = self.groups.get_mut(group) else {
            return EntryAnswer::Gone;
        };
        let Some(index) = group.entries.iter().position(|entry| entry.has(handle)) else {
            return EntryAnswer::Gone;
        };
        match self.kind {
            PlaceKind::Plain | PlaceKind::Ordered => {
                group.entries.remove(index);
            }
            PlaceKind::Log => {
                group.entries[index].state = State::Consumed;
                // Committed is what has nothing open before it.
                while let Some(first) = group.entries.front()
                    && matches!(first.state, State::Consumed)
                {
                    group.entries.pop_front();
                }
            }
        }
        EntryAnswer::Done
    }

    /// Gives a message back after a time, or holds it on for one.
    pub(super) fn change(
        &mut self,
        group: &str,
        handle: &str,
        time: Duration,
        gives_back: bool,
    ) -> EntryAnswer {
        if self.kind == PlaceKind::Log {
            return EntryAnswer::Failed("NotInALog".to_owned());
        }
        let now = Instant::now();
        let entries = self.groups.get_mut(group).map(|group| &mut group.entries);
        let entry = entries.and_then(|entries| entries.iter_mut().find(|entry| entry.has(handle)));
        let Some(entry) = entry.filter(|entry| entry.is_held(now)) else {
            return EntryAnswer::Gone;
        };
        let State::Held(held) = &mut entry.state else {
            return EntryAnswer::Gone;
        };
        if now + time > held.since + MAX_HOLD {
            return EntryAnswer::Failed("HoldTooLong".to_owned());
        }
        if gives_back {
            entry.state = State::Ready(now + time);
        } else {
            held.until = Some(now + time);
        }
        EntryAnswer::Done
    }

    /// Ends every hold.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        for entry in self
            .groups
            .values_mut()
            .flat_map(|group| &mut group.entries)
        {
            if let State::Held(held) = &mut entry.state
                && held.until.is_none_or(|until| until > now)
            {
                held.until = Some(now);
            }
        }
    }

    /// The body of the message with this handle.
    pub(super) fn body_of(&self, group: &str, handle: &str) -> Option<Bytes> {
        let entries = &self.groups.get(group)?.entries;
        let entry = entries.iter().find(|entry| entry.has(handle))?;
        Some(entry.message.body.clone())
    }

    pub(super) fn unsettled(&self, name: &str) -> usize {
        match self.groups.get(name) {
            Some(group) => group.entries.len(),
            // A group that is not there yet will have it all.
            None => self
                .all
                .iter()
                .filter(|message| is_for(message, name))
                .count(),
        }
    }

    pub(super) fn in_hand(&self, group: &str) -> usize {
        let now = Instant::now();
        let entries = self.groups.get(group).map(|group| &group.entries);
        entries.map_or(0, |entries| {
            entries.iter().filter(|entry| entry.is_held(now)).count()
        })
    }

    /// What was put and is not consumed by every group.
    pub(super) fn stored(&self) -> Vec<Arc<Stored>> {
        if self.groups.is_empty() {
            return self.all.clone();
        }
        let mut open: HashSet<&str> = HashSet::new();
        for group in self.groups.values() {
            open.extend(group.entries.iter().map(|entry| &*entry.message.id));
        }
        let all = self.all.iter();
        all.filter(|message| open.contains(&*message.id))
            .cloned()
            .collect()
    }
}

fn is_for(message: &Stored, group: &str) -> bool {
    let only_for = message.only_for.as_deref();
    only_for.is_none_or(|only_for| only_for == group)
}
