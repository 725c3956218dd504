//! The batcher under random arrivals, tenants, groups, sizes, replies, cancellations
//! and a close: 10,000 cases, each from its own seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, FlushReason, Outcome, Receipt,
    Reconciliation, SinkError,
};
use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const CASES: u64 = 10_000;

#[derive(Clone, Debug)]
struct Entry {
    number: usize,
    tenant: usize,
    group: Option<usize>,
    bytes: usize,
}

/// What the destination has seen, and what it said.
#[derive(Default)]
struct Seen {
    /// Numbers in the order in which they were sent.
    sent: Vec<usize>,
    in_flight: usize,
    groups_in_flight: HashSet<usize>,
    last_of_group: HashMap<usize, usize>,
    /// What each entry's caller has to be told.
    told: HashMap<usize, String>,
    faults: Vec<String>,
}

/// How often each kind of event happened, over all cases.
type Events = BTreeMap<&'static str, u64>;

struct World {
    settings: BatchSettings,
    seen: Mutex<Seen>,
    rng: Mutex<Rng>,
    events: Mutex<Events>,
    start: Instant,
    /// When each entry was admitted.
    admitted: Mutex<HashMap<usize, Duration>>,
    /// What is admitted, has not left and still has a caller.
    waiting: Mutex<BTreeMap<usize, Entry>>,
}

impl World {
    fn count(&self, event: &'static str) {
        *self.events.lock().unwrap().entry(event).or_default() += 1;
    }

    fn fault(&self, text: String) {
        self.seen.lock().unwrap().faults.push(text);
    }

    fn roll(&self, sides: u32) -> u32 {
        self.rng.lock().unwrap().u32(0..sides)
    }

    /// Everything that has to hold when a request leaves.
    fn check_departure(&self, entries: &[Entry], flush: Flush) {
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
        self.check_turns(entries);
        let mut seen = self.seen.lock().unwrap();
        let seen = &mut *seen;
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
        seen.groups_in_flight.extend(groups);
    }

    /// Tenants take turns: none gets more than one entry ahead of a tenant that is left
    /// with an entry which could have gone along.
    fn check_turns(&self, entries: &[Entry]) {
        let mut waiting = self.waiting.lock().unwrap();
        let mut taken = BTreeMap::<usize, usize>::new();
        for entry in entries {
            waiting.remove(&entry.number);
            *taken.entry(entry.tenant).or_default() += 1;
        }
        let most = taken.values().copied().max().unwrap_or(0);
        for left in waiting.values().filter(|entry| entry.group.is_none()) {
            let got = taken.get(&left.tenant).copied().unwrap_or(0);
            if most > got + 1 {
                self.fault(format!("tenant {} got {got}, another {most}", left.tenant));
            }
            self.count("a tenant waits for its turn");
        }
    }

    fn check_arrival_of_answer(&self, entries: &[Entry]) {
        let mut seen = self.seen.lock().unwrap();
        seen.in_flight -= 1;
        for entry in entries {
            if let Some(group) = entry.group {
                seen.groups_in_flight.remove(&group);
            }
        }
    }
}

struct Destination(Arc<World>);

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
}

impl Destination {
    /// A reply that says anything about anyone, in any order.
    fn reconcile(&self, entries: &[Entry], tell: impl Fn(usize, &str)) -> Vec<Answer> {
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

struct Caller {
    entry: Entry,
    answer: Option<JoinHandle<Answer>>,
}

fn code(answer: &Answer) -> &str {
    match answer {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}

fn one_of<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

fn settings(rng: &mut Rng) -> BatchSettings {
    let mut settings = BatchSettings::default();
    settings.linger = Duration::from_millis(one_of(rng, &[1, 20, 50]));
    settings.max_entries = NonZeroUsize::new(one_of(rng, &[1, 3, 10])).unwrap();
    settings.max_bytes = one_of(rng, &[100, 1_000, 100_000]);
    settings.queue_max_entries = one_of(rng, &[8, 4_096]);
    settings.queue_max_tenant_entries = one_of(rng, &[4, 1_024]);
    settings.queue_max_bytes = one_of(rng, &[2_000, 1_000_000]);
    settings.max_inflight = NonZeroUsize::new(one_of(rng, &[1, 2, 8])).unwrap();
    settings
}

async fn run_case(seed: u64, events: &mut Events) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let settings = settings(&mut rng);
    let world = Arc::new(World {
        settings,
        seen: Mutex::default(),
        rng: Mutex::new(rng.fork()),
        events: Mutex::default(),
        start: Instant::now(),
        admitted: Mutex::default(),
        waiting: Mutex::default(),
    });
    let batcher = Arc::new(Batcher::new(Destination(Arc::clone(&world)), settings));
    let mut callers: Vec<Caller> = Vec::new();
    let (tenants, groups) = (rng.usize(1..5), rng.usize(1..4));
    let grouped = rng.u8(0..3);
    for number in 0..rng.usize(1..40) {
        let most_bytes = one_of(&mut rng, &[200, 200, 200, 200, 200, 1_500]);
        let entry = Entry {
            number,
            tenant: rng.usize(..tenants),
            group: (rng.u8(0..2) < grouped).then(|| rng.usize(..groups)),
            bytes: rng.usize(1..most_bytes),
        };
        let before = batcher.load().0;
        world
            .admitted
            .lock()
            .unwrap()
            .insert(number, world.start.elapsed());
        let submitted = submit(&world, &batcher, &entry);
        tokio::task::yield_now().await;
        if batcher.load().0 > settings.queue_max_entries.max(before) {
            return Err("more entries than the ceiling".to_owned());
        }
        callers.push(Caller {
            entry,
            answer: Some(submitted),
        });
        match rng.u8(0..10) {
            0 => sleep(Duration::from_millis(rng.u64(0..80))).await,
            1 => {
                let victim = rng.usize(..callers.len());
                if let Some(answer) = callers[victim].answer.take() {
                    world.count("caller goes away");
                    world.waiting.lock().unwrap().remove(&victim);
                    answer.abort();
                    let _ = answer.await;
                }
            }
            2 => batcher.flush(),
            _ => {}
        }
    }
    if rng.bool() {
        world.count("close");
        let report = batcher
            .drain(Instant::now() + Duration::from_secs(60))
            .await;
        if !report.is_complete() {
            return Err(format!("the drain left {report:?}"));
        }
    }
    for Caller { entry, answer } in callers {
        let Some(answer) = answer else { continue };
        let answer = answer.await.map_err(|error| error.to_string())?;
        check_answer(&world, &entry, &answer)?;
    }
    // Entries of callers that went away may still be in flight.
    batcher
        .drain(Instant::now() + Duration::from_secs(60))
        .await;
    if batcher.load() != (0, 0) {
        return Err(format!("something is left: {:?}", batcher.load()));
    }
    let seen = world.seen.lock().unwrap();
    if let Some(fault) = seen.faults.first() {
        return Err(fault.clone());
    }
    for (event, count) in world.events.lock().unwrap().iter() {
        *events.entry(event).or_default() += count;
    }
    Ok(())
}

fn submit(
    world: &Arc<World>,
    batcher: &Arc<Batcher<Destination>>,
    entry: &Entry,
) -> JoinHandle<Answer> {
    let mut submission = BatchEntry::new(entry.tenant.to_string(), entry.bytes, entry.clone());
    if let Some(group) = entry.group {
        submission = submission.with_ordering_key(group.to_string());
    }
    let (world, batcher, entry) = (Arc::clone(world), Arc::clone(batcher), entry.clone());
    let number = entry.number;
    tokio::spawn(async move {
        // In one poll with the admission, so that no request leaves in between.
        world.waiting.lock().unwrap().insert(number, entry);
        let answer = batcher
            .submit(submission, |full| full.into_error(Duration::ZERO))
            .await;
        world.waiting.lock().unwrap().remove(&number);
        answer
    })
}

/// A caller is told what the destination said of its entry, and that alone.
fn check_answer(world: &World, entry: &Entry, answer: &Answer) -> Result<(), String> {
    let number = entry.number;
    let seen = world.seen.lock().unwrap();
    match (seen.told.get(&number), code(answer)) {
        (None, "BatchQueueFull") => {
            drop(seen);
            world.count("queue is full");
        }
        (None, said) => return Err(format!("{number} was never sent and is told {said}")),
        (Some(told), said) if told != said => {
            return Err(format!("{number} is told {said} and not {told}"));
        }
        (Some(_), "Refused") => {
            let text = answer.as_ref().unwrap_err().text();
            if text != number.to_string() {
                return Err(format!("{number} got the answer of {text}"));
            }
        }
        (Some(_), _) => {}
    }
    Ok(())
}

#[test]
fn ten_thousand_random_cases_keep_every_promise() {
    let mut events = Events::new();
    for seed in 0..CASES {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let case = AssertUnwindSafe(|| runtime.block_on(run_case(seed, &mut events)));
        match std::panic::catch_unwind(case) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => panic!("seed {seed}: {fault}"),
            Err(_) => panic!("seed {seed}: panicked"),
        }
    }
    println!("{events:#?}");
    for planned in [
        "a tenant waits for its turn",
        "caller goes away",
        "close",
        "entry fails",
        "entry is in both lists",
        "entry is missing",
        "flush by bytes",
        "flush by entries",
        "flush by linger",
        "flush on request",
        "queue is full",
        "reply is cut",
        "reply names a stranger",
        "request fails whole",
        "sender panics",
    ] {
        let count = events.get(planned).copied().unwrap_or(0);
        assert!(count > 100, "{planned} happened {count} times");
    }
}
