//! The batcher under random arrivals, tenants, groups, sizes, replies, cancellations
//! and a close: 10,000 cases, each from its own seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod world;

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{Answer, BatchEntry, BatchSettings, Batcher, DrainReport, QueueFull};
use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::world::{Destination, Entry, Events, World};

const CASES: u64 = 10_000;

struct Caller {
    entry: Entry,
    answer: JoinHandle<Result<Answer, String>>,
}

/// Notes what an entry is when its caller goes away: out of the queue if it waited.
struct Presence {
    world: Arc<World>,
    entry: Entry,
    is_answered: bool,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let number = self.entry.number;
        let waited = self.world.waiting.lock().unwrap().remove(&number);
        if !self.is_answered && waited.is_some() {
            self.world.count("caller goes away in time");
            self.world.unanswered.lock().unwrap().remove(&self.entry);
            self.world.seen.lock().unwrap().cancelled.insert(number);
        }
    }
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

/// One case under way.
struct Case {
    rng: Rng,
    world: Arc<World>,
    batcher: Arc<Batcher<Destination>>,
    callers: Vec<Caller>,
    next_number: usize,
    groups: usize,
    grouped: u8,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let settings = settings(&mut rng);
        let world = Arc::new(World {
            settings,
            unanswered: Mutex::default(),
            seen: Mutex::default(),
            rng: Mutex::new(rng.fork()),
            events: Mutex::default(),
            start: Instant::now(),
            admitted: Mutex::default(),
            waiting: Mutex::default(),
            passed: Mutex::default(),
            tenants: rng.usize(1..5),
            is_closed: AtomicBool::new(false),
        });
        Self {
            batcher: Arc::new(Batcher::new(Destination(Arc::clone(&world)), settings)),
            world,
            callers: Vec::new(),
            next_number: 0,
            groups: rng.usize(1..4),
            grouped: rng.u8(0..3),
            rng,
        }
    }

    async fn submit_new(&mut self) {
        let most_bytes = one_of(&mut self.rng, &[200, 200, 200, 200, 200, 1_500]);
        let entry = Entry {
            number: self.next_number,
            hook: self.next_number,
            tenant: self.rng.usize(..self.world.tenants),
            group: (self.rng.u8(0..2) < self.grouped).then(|| self.rng.usize(..self.groups)),
            bytes: self.rng.usize(1..most_bytes),
        };
        self.submit(entry).await;
    }

    async fn submit(&mut self, entry: Entry) {
        self.next_number += 1;
        let now = self.world.start.elapsed();
        self.world
            .admitted
            .lock()
            .unwrap()
            .insert(entry.number, now);
        let answer = submit(&self.world, &self.batcher, &entry);
        tokio::task::yield_now().await;
        self.callers.push(Caller { entry, answer });
    }

    /// Takes an answer that has come, and sends some of what failed again.
    async fn look(&mut self) -> Result<(), String> {
        let Some(index) = self.callers.iter().position(|c| c.answer.is_finished()) else {
            return Ok(());
        };
        let Caller { entry, answer } = self.callers.swap_remove(index);
        let answer = answer.await.map_err(|error| error.to_string())??;
        check_answer(&self.world, &entry, &answer)?;
        if answer.is_err() && self.rng.u8(0..5) == 0 {
            self.world.count("a failed entry is sent again");
            let number = self.next_number;
            self.submit(Entry { number, ..entry }).await;
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), String> {
        self.submit_new().await;
        self.look().await?;
        match self.rng.u8(0..10) {
            0 => sleep(Duration::from_millis(self.rng.u64(0..80))).await,
            1 if !self.callers.is_empty() => {
                let victim = self.rng.usize(..self.callers.len());
                let caller = self.callers.swap_remove(victim);
                if !caller.answer.is_finished() {
                    self.world.count("caller goes away");
                    caller.answer.abort();
                    let _ = caller.answer.await;
                }
            }
            2 => self.batcher.flush(),
            _ => {}
        }
        let (entries, model) = (self.batcher.load().0, &self.world.unanswered);
        if entries != model.lock().unwrap().entries {
            return Err(format!("{entries} entries are unanswered"));
        }
        Ok(())
    }

    fn drain(&self) -> JoinHandle<DrainReport> {
        let (world, batcher) = (Arc::clone(&self.world), Arc::clone(&self.batcher));
        tokio::spawn(async move {
            // In one poll with the closing.
            world.is_closed.store(true, Ordering::Relaxed);
            let deadline = Instant::now() + Duration::from_secs(60);
            batcher.drain(deadline).await
        })
    }

    async fn run(mut self) -> Result<Events, String> {
        for _ in 0..self.rng.usize(1..40) {
            self.step().await?;
        }
        if self.rng.bool() {
            self.world.count("close");
            let drain = self.drain();
            for _ in 0..self.rng.usize(0..4) {
                self.step().await?;
            }
            let report = drain.await.map_err(|error| error.to_string())?;
            if !report.is_complete() {
                return Err(format!("the drain left {report:?}"));
            }
            self.submit_new().await;
        }
        for Caller { entry, answer } in std::mem::take(&mut self.callers) {
            let answer = answer.await.map_err(|error| error.to_string())??;
            check_answer(&self.world, &entry, &answer)?;
        }
        // Entries of callers that went away may still be in flight.
        let drain = self.drain();
        drain.await.map_err(|error| error.to_string())?;
        if self.batcher.load() != (0, 0) {
            return Err(format!("something is left: {:?}", self.batcher.load()));
        }
        if let Some(fault) = self.world.seen.lock().unwrap().faults.first() {
            return Err(fault.clone());
        }
        Ok(std::mem::take(&mut *self.world.events.lock().unwrap()))
    }
}

/// An answer, or what is wrong with it.
fn submit(
    world: &Arc<World>,
    batcher: &Arc<Batcher<Destination>>,
    entry: &Entry,
) -> JoinHandle<Result<Answer, String>> {
    let mut submission = BatchEntry::new(entry.tenant.to_string(), entry.bytes, entry.clone());
    if let Some(group) = entry.group {
        submission = submission.with_ordering_key(group.to_string());
    }
    let (world, batcher, entry) = (Arc::clone(world), Arc::clone(batcher), entry.clone());
    tokio::spawn(async move {
        // In one poll with the admission, so that no request leaves in between.
        let refusal = if world.is_closed.load(Ordering::Relaxed) {
            Some("closed")
        } else {
            let mut unanswered = world.unanswered.lock().unwrap();
            let full = unanswered.refuses(&entry, &world.settings);
            if full.is_none() {
                unanswered.add(&entry);
                let number = entry.number;
                world.waiting.lock().unwrap().insert(number, entry.clone());
            }
            full.map(QueueFull::as_str)
        };
        let mut presence = Presence {
            world,
            entry,
            is_answered: false,
        };
        let mut refused = None;
        let full = |full: QueueFull| {
            refused = Some(full.as_str());
            full.into_error(Duration::ZERO)
        };
        let answer = batcher.submit(submission, full).await;
        presence.is_answered = true;
        let refused = match code(&answer) {
            "SinkClosed" => Some("closed"),
            _ => refused,
        };
        if refused == refusal {
            Ok(answer)
        } else {
            Err(format!("refused for {refused:?}, and not {refusal:?}"))
        }
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
        (None, "SinkClosed") => {
            drop(seen);
            world.count("a submission meets a drain");
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
        let case = AssertUnwindSafe(|| runtime.block_on(async { Case::new(seed).run().await }));
        match std::panic::catch_unwind(case) {
            Ok(Ok(happened)) => {
                for (event, count) in happened {
                    *events.entry(event).or_default() += count;
                }
            }
            Ok(Err(fault)) => panic!("seed {seed}: {fault}"),
            Err(_) => panic!("seed {seed}: panicked"),
        }
    }
    println!("{events:#?}");
    for planned in [
        "a failed entry is sent again",
        "a group waits for its tenant's turn",
        "a submission meets a drain",
        "a tenant waits for its turn",
        "caller goes away",
        "caller goes away in time",
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
