//! What is known of a case: what is admitted, what the destination has seen and said, and
//! what is wrong with it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchSender, BatchSettings, Flush, FlushReason, Outcome, QueueFull, Receipt,
    Reconciliation, SinkError,
};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: usize,
    /// Its first submission's number: a retry is another entry of the same hook.
    pub(crate) hook: usize,
    pub(crate) tenant: usize,
    pub(crate) group: Option<usize>,
    pub(crate) bytes: usize,
}

/// What the destination has seen, and what it said.
#[derive(Default)]
pub(crate) struct Seen {
    /// Numbers in the order in which they were sent.
    pub(crate) sent: Vec<usize>,
    pub(crate) in_flight: usize,
    pub(crate) groups_in_flight: HashSet<usize>,
    pub(crate) hooks_in_flight: HashSet<usize>,
    /// The groups in flight when each request was formed that has not begun yet.
    pub(crate) formed: VecDeque<HashSet<usize>>,
    /// Numbers that went away while they waited.
    pub(crate) cancelled: HashSet<usize>,
    pub(crate) last_of_group: HashMap<usize, usize>,
    /// What each entry's caller has to be told.
    pub(crate) told: HashMap<usize, String>,
    pub(crate) faults: Vec<String>,
}

/// How often each kind of event happened, over all cases.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// What is admitted and not answered, as the ceilings count it.
#[derive(Default)]
pub(crate) struct Unanswered {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    pub(crate) by_tenant: BTreeMap<usize, usize>,
}

impl Unanswered {
    /// Which ceiling this entry would pass, as its refusal begins.
    pub(crate) fn refuses(&self, entry: &Entry, settings: &BatchSettings) -> Option<QueueFull> {
        let of_tenant = self.by_tenant.get(&entry.tenant).copied().unwrap_or(0);
        if self.entries + 1 > settings.queue_max_entries {
            Some(QueueFull::Entries)
        } else if of_tenant + 1 > settings.queue_max_tenant_entries {
            Some(QueueFull::TenantEntries)
        } else if self.bytes + entry.bytes > settings.queue_max_bytes {
            Some(QueueFull::Bytes)
        } else {
            None
        }
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        self.entries += 1;
        self.bytes += entry.bytes;
        *self.by_tenant.entry(entry.tenant).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, entry: &Entry) {
        self.entries -= 1;
        self.bytes -= entry.bytes;
        *self.by_tenant.entry(entry.tenant).or_default() -= 1;
    }

    pub(crate) fn is_within(&self, settings: &BatchSettings) -> bool {
        let of_tenant = self.by_tenant.values().max().copied().unwrap_or(0);
        self.entries <= settings.queue_max_entries
            && self.bytes <= settings.queue_max_bytes
            && of_tenant <= settings.queue_max_tenant_entries
    }
}

pub(crate) struct World {
    pub(crate) settings: BatchSettings,
    pub(crate) unanswered: Mutex<Unanswered>,
    pub(crate) seen: Mutex<Seen>,
    pub(crate) rng: Mutex<Rng>,
    pub(crate) events: Mutex<Events>,
    pub(crate) start: Instant,
    /// When each entry was admitted.
    pub(crate) admitted: Mutex<HashMap<usize, Duration>>,
    /// What is admitted, has not left and still has a caller.
    pub(crate) waiting: Mutex<BTreeMap<usize, Entry>>,
    /// The oldest entry of a tenant that could leave, and how many requests left without it.
    pub(crate) passed: Mutex<BTreeMap<usize, (usize, usize)>>,
    pub(crate) tenants: usize,
    pub(crate) is_closed: AtomicBool,
}

impl World {
    pub(crate) fn count(&self, event: &'static str) {
        *self.events.lock().unwrap().entry(event).or_default() += 1;
    }

    pub(crate) fn fault(&self, text: String) {
        self.seen.lock().unwrap().faults.push(text);
    }

    pub(crate) fn roll(&self, sides: u32) -> u32 {
        self.rng.lock().unwrap().u32(0..sides)
    }

    /// Everything that has to hold when a request leaves.
    pub(crate) fn check_departure(&self, entries: &[Entry], flush: Flush) {
        let settings = &self.settings;
        let bytes: usize = entries.iter().map(|entry| entry.bytes).sum();
        if entries.is_empty() || entries.len() > settings.max_entries.get() {
            self.fault(format!("{} entries in a request", entries.len()));
        }
        if bytes > settings.max_bytes && entries.len() > 1 {
            self.fault(format!("{bytes} bytes in a request of {}", entries.len()));
        }
        if bytes != flush.bytes {
            self.fault(format!("{bytes} bytes are told as {}", flush.bytes));
        }
        let oldest = {
            let admitted = self.admitted.lock().unwrap();
            entries
                .iter()
                .map(|entry| admitted[&entry.number])
                .min()
                .unwrap()
        };
        let waited = self.start.elapsed() - oldest;
        if waited != flush.waited {
            self.fault(format!("waited {waited:?}, told as {:?}", flush.waited));
        }
        match flush.reason {
            FlushReason::Linger if waited < settings.linger => {
                self.fault(format!("left after {waited:?} by linger"));
            }
            _ => {}
        }
        self.count(match flush.reason {
            FlushReason::Bytes => "flush by bytes",
            FlushReason::Entries => "flush by entries",
            FlushReason::Linger => "flush by linger",
            _ => "flush on request",
        });
        let mut seen = self.seen.lock().unwrap();
        let seen = &mut *seen;
        let busy = seen.formed.pop_front().unwrap_or_default();
        seen.faults.extend(self.check_turns(entries, busy));
        seen.in_flight += 1;
        if seen.in_flight > settings.max_inflight.get() {
            seen.faults
                .push(format!("{} requests in flight", seen.in_flight));
        }
        let mut groups = HashSet::new();
        for entry in entries {
            if seen.sent.contains(&entry.number) {
                seen.faults.push(format!("{} was sent twice", entry.number));
            }
            if seen.cancelled.contains(&entry.number) {
                let text = format!("{} was sent and its caller had taken it out", entry.number);
                seen.faults.push(text);
            }
            if !seen.hooks_in_flight.insert(entry.hook) {
                seen.faults
                    .push(format!("{} is in flight twice", entry.hook));
            }
            seen.sent.push(entry.number);
            if let Some(group) = entry.group {
                if seen.groups_in_flight.contains(&group) {
                    seen.faults
                        .push(format!("group {group} has two requests in flight"));
                }
                groups.insert(group);
                let last = seen.last_of_group.insert(group, entry.number);
                if last.is_some_and(|last| last > entry.number) {
                    seen.faults
                        .push(format!("{} overtook {last:?}", entry.number));
                }
            }
        }
        // Requests formed since this one was found its groups busy.
        for busy in &mut seen.formed {
            busy.extend(&groups);
        }
        seen.groups_in_flight.extend(groups);
    }

    /// Tenants take turns: none gets more than one entry ahead of a tenant that is left
    /// with an entry which could have gone along, and no tenant that has one is left out by as
    /// many requests as there are tenants. `busy` are the groups that could not.
    pub(crate) fn check_turns(&self, entries: &[Entry], mut busy: HashSet<usize>) -> Vec<String> {
        let mut waiting = self.waiting.lock().unwrap();
        let mut faults = Vec::new();
        let mut taken = BTreeMap::<usize, usize>::new();
        for entry in entries {
            waiting.remove(&entry.number);
            *taken.entry(entry.tenant).or_default() += 1;
            busy.extend(entry.group);
        }
        let most = taken.values().copied().max().unwrap_or(0);
        let mut passed = self.passed.lock().unwrap();
        let before = std::mem::take(&mut *passed);
        for left in waiting.values() {
            // Only the first of a group can leave.
            if left.group.is_some_and(|group| !busy.insert(group)) {
                continue;
            }
            let got = taken.get(&left.tenant).copied().unwrap_or(0);
            if most > got + 1 {
                faults.push(format!("tenant {} got {got}, another {most}", left.tenant));
            }
            passed.entry(left.tenant).or_insert_with(|| {
                let times = match before.get(&left.tenant) {
                    Some((number, times)) if *number == left.number && got == 0 => times + 1,
                    _ => 0,
                };
                if times >= self.tenants {
                    faults.push(format!("{times} requests left {} out", left.number));
                }
                (left.number, times)
            });
            self.count(match left.group {
                None => "a tenant waits for its turn",
                Some(_) => "a group waits for its tenant's turn",
            });
        }
        faults
    }

    /// What the batcher says it holds, after each change.
    pub(crate) fn check_load(&self, entries: usize, requests: usize) {
        let unanswered = self.unanswered.lock().unwrap();
        let mut seen = self.seen.lock().unwrap();
        let seen = &mut *seen;
        if entries != unanswered.entries {
            let text = format!("{entries} unanswered, and not {}", unanswered.entries);
            seen.faults.push(text);
        }
        if !unanswered.is_within(&self.settings) {
            seen.faults.push("a ceiling is passed".to_owned());
        }
        if requests > seen.in_flight + seen.formed.len() {
            seen.formed.push_back(seen.groups_in_flight.clone());
        }
    }

    pub(crate) fn check_arrival_of_answer(&self, entries: &[Entry]) {
        let mut seen = self.seen.lock().unwrap();
        seen.in_flight -= 1;
        for entry in entries {
            self.unanswered.lock().unwrap().remove(entry);
            seen.hooks_in_flight.remove(&entry.hook);
            if let Some(group) = entry.group {
                seen.groups_in_flight.remove(&group);
            }
        }
    }
}

pub(crate) struct Destination(pub(crate) Arc<World>);

impl BatchSender for Destination {
    type Entry = Entry;

    async fn send(&self, entries: Vec<Entry>, flush: Flush) -> Vec<Answer> {
        let world = &self.0;
        world.check_departure(&entries, flush);
        sleep(Duration::from_millis(u64::from(world.roll(60)))).await;
        world.check_arrival_of_answer(&entries);
        let tell = |number: usize, said: &str| {
            world
                .seen
                .lock()
                .unwrap()
                .told
                .insert(number, said.to_owned());
        };
        match world.roll(12) {
            0 => {
                world.count("request fails whole");
                entries
                    .iter()
                    .map(|entry| {
                        tell(entry.number, "Timeout");
                        Err(SinkError::transient(Outcome::Unknown, "Timeout", ""))
                    })
                    .collect()
            }
            1 => {
                world.count("sender panics");
                for entry in &entries {
                    tell(entry.number, "SinkPanicked");
                }
                // Not the panic hook's business: it would print thousands of traces.
                std::panic::resume_unwind(Box::new("planned"));
            }
            2 => {
                world.count("reply is cut");
                let kept = world.roll(u32::try_from(entries.len()).unwrap()) as usize;
                for (index, entry) in entries.iter().enumerate() {
                    tell(
                        entry.number,
                        if index < kept {
                            "ok"
                        } else {
                            "BatchEntryMissing"
                        },
                    );
                }
                (0..kept).map(|_| Ok(Receipt::new())).collect()
            }
            _ => self.reconcile(&entries, tell),
        }
    }

    fn load_changed(&self, entries: usize, requests: usize) {
        self.0.check_load(entries, requests);
    }
}

impl Destination {
    /// A reply that says anything about anyone, in any order.
    pub(crate) fn reconcile(&self, entries: &[Entry], tell: impl Fn(usize, &str)) -> Vec<Answer> {
        let world = &self.0;
        let mut reply = Reconciliation::new(entries.len());
        let mut order: Vec<usize> = (0..entries.len()).collect();
        world.rng.lock().unwrap().shuffle(&mut order);
        for index in order {
            let number = entries[index].number;
            let refused = || Err(SinkError::permanent("Refused", format!("{number}")));
            match world.roll(20) {
                0 => {
                    world.count("entry is missing");
                    tell(number, "BatchEntryMissing");
                }
                1 => {
                    world.count("entry is in both lists");
                    tell(number, "BatchEntryContradicted");
                    reply.note(Some(index), Ok(Receipt::new()));
                    reply.note(Some(index), refused());
                }
                2 => {
                    world.count("entry fails");
                    tell(number, "Refused");
                    reply.note(Some(index), refused());
                }
                3 => {
                    world.count("reply names a stranger");
                    tell(number, "ok");
                    reply.note(Some(index), Ok(Receipt::new()));
                    reply.note(Some(entries.len() + 3), Ok(Receipt::new()));
                    reply.note(None, refused());
                }
                _ => {
                    tell(number, "ok");
                    reply.note(Some(index), Ok(Receipt::new()));
                }
            }
        }
        reply.finish()
    }
}
