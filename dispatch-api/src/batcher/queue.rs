//! What waits and what leaves next: a state machine that knows no task, no lock and
//! no clock of its own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use tokio::time::Instant;

use super::settings::{BatchSettings, FlushReason, QueueFull};

/// Every entry is looked up a dozen times on its way through. The hash is seeded at random,
/// and nobody outside sees what it costs.
type Map<K, V> = HashMap<K, V, RandomState>;

/// What one entry brings along.
#[derive(Debug)]
pub(super) struct Arrival<T> {
    pub(super) tenant: Arc<str>,
    /// Entries of one ordering key leave in order, one request at a time.
    pub(super) ordering_key: Option<Arc<str>>,
    pub(super) bytes: usize,
    pub(super) entry: T,
}

/// The place of a waiting entry: its lane, and its number in the order of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    lane: LaneKey,
    number: u64,
}

impl Ticket {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// Entries that leave in one request, in the order of the request.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) entries: Vec<T>,
    pub(super) bytes: usize,
    pub(super) reason: FlushReason,
    pub(super) oldest: Instant,
    pub(super) held: Held,
}

/// What a request holds until it is answered: give it to [`Queue::answered`].
#[derive(Debug, Default)]
pub(super) struct Held {
    lanes: Vec<LaneKey>,
    tenants: Vec<Arc<str>>,
    bytes: usize,
}

/// What to do now.
#[derive(Debug)]
pub(super) enum Next<T> {
    /// Send this, and ask again.
    Send(Batch<T>),
    /// Nothing until something is admitted or answered, or this moment comes.
    Wait(Option<Instant>),
}

/// Entries of one ordering key, or of one tenant without a key, in the order of
/// admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LaneKey {
    Ordered(Arc<str>),
    Unordered(Arc<str>),
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    /// A request with entries of this lane is in flight: nothing leaves.
    locked: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    tenant: Arc<str>,
    bytes: usize,
    admitted_at: Instant,
    entry: T,
}

/// How many entries, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

/// How many tenants without a listed lane may stay in the turns.
const MOST_IDLE_TURNS: usize = 64;

/// The queue of one destination.
///
/// A lane that is not locked and not empty is listed by its head, the oldest entry:
/// in `heads`, and under the head's tenant in `tenants`.
#[derive(Debug)]
pub(super) struct Queue<T> {
    settings: BatchSettings,
    lanes: Map<LaneKey, Lane<T>>,
    /// The listed lanes by the number of their head: the first one is due first.
    heads: BTreeMap<u64, LaneKey>,
    /// The listed lanes by the tenant and the number of their head.
    tenants: Map<Arc<str>, BTreeMap<u64, LaneKey>>,
    /// Whose turn it is. Holds every tenant with a listed lane once, and perhaps some
    /// that have none any more.
    turns: VecDeque<Arc<str>>,
    in_turns: HashSet<Arc<str>, RandomState>,
    /// What waits in listed lanes.
    ready: Load,
    /// What was admitted and is not answered.
    unanswered: Load,
    unanswered_by_tenant: Map<Arc<str>, usize>,
    requests: usize,
    next_number: u64,
    /// Entries with a smaller number do not linger.
    flush_below: u64,
}

impl<T> Queue<T> {
    pub(super) fn new(settings: BatchSettings) -> Self {
        Self {
            settings,
            lanes: Map::default(),
            heads: BTreeMap::new(),
            tenants: Map::default(),
            turns: VecDeque::new(),
            in_turns: HashSet::default(),
            ready: Load::default(),
            unanswered: Load::default(),
            unanswered_by_tenant: Map::default(),
            requests: 0,
            next_number: 0,
            flush_below: 0,
        }
    }

    /// Takes an entry in, or says which ceiling it would pass.
    pub(super) fn admit(&mut self, arrival: Arrival<T>, now: Instant) -> Result<Ticket, QueueFull> {
        let Arrival {
            tenant,
            ordering_key,
            bytes,
            entry,
        } = arrival;
        let of_tenant = self.unanswered_by_tenant.get(&tenant).copied().unwrap_or(0);
        if self.unanswered.entries >= self.settings.queue_max_entries {
            return Err(QueueFull::Entries);
        }
        if of_tenant >= self.settings.queue_max_tenant_entries {
            return Err(QueueFull::TenantEntries);
        }
        if bytes
            > self
                .settings
                .queue_max_bytes
                .saturating_sub(self.unanswered.bytes)
        {
            return Err(QueueFull::Bytes);
        }
        self.unanswered.entries += 1;
        self.unanswered.bytes += bytes;
        self.unanswered_by_tenant
            .insert(Arc::clone(&tenant), of_tenant + 1);

        let number = self.next_number;
        self.next_number += 1;
        let key = match ordering_key {
            Some(key) => LaneKey::Ordered(key),
            None => LaneKey::Unordered(Arc::clone(&tenant)),
        };
        let lane = self.lanes.entry(key.clone()).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            bytes: 0,
            locked: false,
        });
        lane.bytes += bytes;
        lane.waiting.push_back(Waiting {
            number,
            tenant,
            bytes,
            admitted_at: now,
            entry,
        });
        let (is_head, locked) = (lane.waiting.len() == 1, lane.locked);
        if !locked {
            self.ready.entries += 1;
            self.ready.bytes += bytes;
            if is_head {
                self.list(&key);
            }
        }
        Ok(Ticket { lane: key, number })
    }

    /// Whether an entry that was just admitted gives cause to ask [`Queue::next`].
    pub(super) fn has_news(&self) -> bool {
        self.requests < self.settings.max_inflight.get()
            && (self.ready.entries == 1 || self.is_full())
    }

    /// Takes a waiting entry out again; `None` when it has left already.
    pub(super) fn cancel(&mut self, ticket: &Ticket) -> Option<T> {
        let lane = self.lanes.get_mut(&ticket.lane)?;
        let index = lane
            .waiting
            .binary_search_by_key(&ticket.number, |waiting| waiting.number)
            .ok()?;
        let locked = lane.locked;
        if index == 0 && !locked {
            self.unlist(&ticket.lane);
        }
        let lane = self.lanes.get_mut(&ticket.lane)?;
        let waiting = lane.waiting.remove(index)?;
        lane.bytes -= waiting.bytes;
        if !locked {
            self.ready.entries -= 1;
            self.ready.bytes -= waiting.bytes;
            if index == 0 {
                self.list(&ticket.lane);
            }
        }
        self.forget_if_empty(&ticket.lane);
        self.settle(&waiting.tenant, waiting.bytes);
        self.forget_turns();
        Some(waiting.entry)
    }

    /// Takes tenants that have no listed lane any more out of the turns, once they are the
    /// most: batches do it as they form, and where callers go away none may ever form.
    fn forget_turns(&mut self) {
        if self.turns.len() > 2 * self.tenants.len() + MOST_IDLE_TURNS {
            let tenants = &self.tenants;
            self.turns.retain(|tenant| tenants.contains_key(tenant));
            self.in_turns.retain(|tenant| tenants.contains_key(tenant));
        }
    }

    /// What to do now.
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        if self.requests >= self.settings.max_inflight.get() {
            return Next::Wait(None);
        }
        let Some((&number, key)) = self.heads.first_key_value() else {
            return Next::Wait(None);
        };
        let oldest = self.head(key).admitted_at;
        let due = oldest + self.settings.linger;
        let reason = if self.ready.entries >= self.settings.max_entries.get() {
            FlushReason::Entries
        } else if self.ready.bytes >= self.settings.max_bytes {
            FlushReason::Bytes
        } else if number < self.flush_below {
            FlushReason::Requested
        } else if now >= due {
            FlushReason::Linger
        } else {
            return Next::Wait(Some(due));
        };
        Next::Send(self.form_batch(reason))
    }

    /// Frees what a request held, once all its entries are answered.
    pub(super) fn answered(&mut self, held: Held) {
        self.requests -= 1;
        for key in held.lanes {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.locked = false;
                self.ready.entries += lane.waiting.len();
                self.ready.bytes += lane.bytes;
                self.list(&key);
                self.forget_if_empty(&key);
            }
        }
        self.unanswered.bytes -= held.bytes;
        for tenant in held.tenants {
            self.settle(&tenant, 0);
        }
    }

    /// Sets other bounds, and returns those that held.
    pub(super) fn reconfigure(&mut self, settings: BatchSettings) -> BatchSettings {
        std::mem::replace(&mut self.settings, settings)
    }

    /// Lets nothing that waits now linger any longer.
    pub(super) fn flush(&mut self) {
        self.flush_below = self.next_number;
    }

    /// Forgets every request in flight, and takes out all that waits. Numbers go on, so that
    /// no ticket of before is that of a later entry.
    pub(super) fn start_over(&mut self) -> Vec<T> {
        let next = Self {
            next_number: self.next_number,
            ..Self::new(self.settings)
        };
        std::mem::replace(self, next).take_waiting(|_| true)
    }

    /// Takes out what waits and is `meant`, in the order of admission.
    pub(super) fn take_waiting(&mut self, meant: impl Fn(&T) -> bool) -> Vec<T> {
        let mut tickets = Vec::new();
        for (key, lane) in &self.lanes {
            for waiting in lane.waiting.iter().filter(|waiting| meant(&waiting.entry)) {
                tickets.push(Ticket {
                    lane: key.clone(),
                    number: waiting.number,
                });
            }
        }
        tickets.sort_unstable_by_key(|ticket| ticket.number);
        tickets
            .iter()
            .filter_map(|ticket| self.cancel(ticket))
            .collect()
    }

    /// What was admitted and is not answered.
    pub(super) fn unanswered(&self) -> Load {
        self.unanswered
    }

    /// How many requests are in flight.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    fn is_full(&self) -> bool {
        self.ready.entries >= self.settings.max_entries.get()
            || self.ready.bytes >= self.settings.max_bytes
    }

    /// Takes entries tenant by tenant, each tenant's oldest first, until the batch is full
    /// or the next entry does not fit.
    fn form_batch(&mut self, reason: FlushReason) -> Batch<T> {
        let mut entries = Vec::with_capacity(self.settings.max_entries.get());
        let (mut bytes, mut oldest) = (0, None::<Instant>);
        let mut held = Held::default();
        while entries.len() < self.settings.max_entries.get()
            && let Some((tenant, key)) = self.next_turn()
        {
            let size = self.head(&key).bytes;
            if !entries.is_empty() && bytes + size > self.settings.max_bytes {
                // It stays this tenant's turn: its entry opens the next batch.
                self.turns.push_front(Arc::clone(&tenant));
                self.in_turns.insert(tenant);
                break;
            }
            let waiting = self.take_head(&key);
            bytes += size;
            oldest = Some(oldest.map_or(waiting.admitted_at, |at| at.min(waiting.admitted_at)));
            entries.push(waiting.entry);
            held.tenants.push(waiting.tenant);
            match &key {
                // Held until the answer, empty or not.
                LaneKey::Ordered(_) if held.lanes.contains(&key) => {}
                LaneKey::Ordered(_) => held.lanes.push(key),
                LaneKey::Unordered(_) => self.forget_if_empty(&key),
            }
            self.take_turn_again(tenant);
        }
        held.bytes = bytes;
        for key in &held.lanes {
            self.lock(key);
        }
        self.requests += 1;
        Batch {
            entries,
            bytes,
            reason,
            oldest: oldest.expect("a batch is formed when a lane is listed"),
            held,
        }
    }

    /// The tenant whose turn it is, and its lane with the oldest head.
    fn next_turn(&mut self) -> Option<(Arc<str>, LaneKey)> {
        loop {
            let tenant = self.turns.pop_front()?;
            self.in_turns.remove(&tenant);
            if let Some(lanes) = self.tenants.get(&tenant)
                && let Some((_, key)) = lanes.first_key_value()
            {
                return Some((tenant, key.clone()));
            }
        }
    }

    fn take_turn_again(&mut self, tenant: Arc<str>) {
        if self.tenants.contains_key(&tenant) && self.in_turns.insert(Arc::clone(&tenant)) {
            self.turns.push_back(tenant);
        }
    }

    /// The oldest entry of a listed lane.
    fn head(&self, key: &LaneKey) -> &Waiting<T> {
        self.lanes
            .get(key)
            .and_then(|lane| lane.waiting.front())
            .expect("a listed lane is not empty")
    }

    fn take_head(&mut self, key: &LaneKey) -> Waiting<T> {
        self.unlist(key);
        let lane = self.lanes.get_mut(key).expect("a listed lane exists");
        let waiting = lane
            .waiting
            .pop_front()
            .expect("a listed lane is not empty");
        lane.bytes -= waiting.bytes;
        self.ready.entries -= 1;
        self.ready.bytes -= waiting.bytes;
        self.list(key);
        waiting
    }

    /// Holds a lane back until its request is answered.
    fn lock(&mut self, key: &LaneKey) {
        self.unlist(key);
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.locked = true;
            self.ready.entries -= lane.waiting.len();
            self.ready.bytes -= lane.bytes;
        }
    }

    /// Lists a lane by its head, if it has one and is not locked.
    fn list(&mut self, key: &LaneKey) {
        let Some(lane) = self.lanes.get(key).filter(|lane| !lane.locked) else {
            return;
        };
        let Some(head) = lane.waiting.front() else {
            return;
        };
        let (number, tenant) = (head.number, Arc::clone(&head.tenant));
        self.heads.insert(number, key.clone());
        self.tenants
            .entry(Arc::clone(&tenant))
            .or_default()
            .insert(number, key.clone());
        self.take_turn_again(tenant);
    }

    fn unlist(&mut self, key: &LaneKey) {
        let Some(head) = self.lanes.get(key).and_then(|lane| lane.waiting.front()) else {
            return;
        };
        self.heads.remove(&head.number);
        if let Some(lanes) = self.tenants.get_mut(&head.tenant) {
            lanes.remove(&head.number);
            if lanes.is_empty() {
                self.tenants.remove(&head.tenant);
            }
        }
    }

    fn forget_if_empty(&mut self, key: &LaneKey) {
        if self
            .lanes
            .get(key)
            .is_some_and(|lane| lane.waiting.is_empty() && !lane.locked)
        {
            self.lanes.remove(key);
        }
    }

    /// Counts one entry of a tenant as answered.
    fn settle(&mut self, tenant: &Arc<str>, bytes: usize) {
        self.unanswered.entries -= 1;
        self.unanswered.bytes -= bytes;
        if let Some(count) = self.unanswered_by_tenant.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.unanswered_by_tenant.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tenants_whose_callers_all_went_away_leave_no_turn_behind() {
        let mut queue = Queue::new(BatchSettings::default());
        let now = Instant::now();
        for number in 0..10_000 {
            let arrival = Arrival {
                tenant: format!("tenant-{number}").into(),
                ordering_key: None,
                bytes: 1,
                entry: number,
            };
            let ticket = queue.admit(arrival, now).expect("there is room");
            assert_eq!(queue.cancel(&ticket), Some(number));
            assert!(queue.turns.len() <= MOST_IDLE_TURNS + 1, "{number}");
            assert_eq!(queue.in_turns.len(), queue.turns.len());
        }
    }
}
