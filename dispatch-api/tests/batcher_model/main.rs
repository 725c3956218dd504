//! The batcher under a model checker: its own source, with another lock, task and clock.
//!
//! Each scenario runs some thousand times, and each time the checker decides at random who
//! goes next wherever two can meet. Somebody who waits for ever fails the scenario.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

#[path = "../../src/batcher/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the model calls a part of it"
)]
mod batcher;
mod runtime;

/// The paths by which the batcher names the rest of its crate.
mod drain {
    pub(crate) use dispatch_api::DrainReport;
}
mod error {
    pub(crate) use dispatch_api::{Outcome, SinkError};
}
mod sink {
    pub(crate) use dispatch_api::{Receipt, tell_contained};
}

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{Outcome, Receipt};
use futures_util::future::join;
use libtest_mimic::{Arguments, Trial};
use shuttle::future::{block_on, yield_now};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread;
use tokio::time::Instant;

use self::batcher::{Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, QueueFull};
use self::runtime::{advance, now};

const EXECUTIONS: usize = 700;

fn main() -> ExitCode {
    let trials = [
        trial(
            "a_deadline_says_not_stored_only_of_what_is_never_sent",
            deadline,
        ),
        trial("a_full_batch_needs_no_clock", full),
        trial("a_lone_entry_needs_one_linger", lone),
        trial("a_caller_that_goes_away_harms_nobody", going_away),
        trial("a_drain_ends_when_the_last_one_goes_away", going_last),
        trial("a_key_has_one_request_in_flight_in_order", ordered),
        trial("a_drain_answers_everybody_by_its_deadline", drained),
        trial("nothing_waits_on_after_a_withdrawal", withdrawn),
        trial("a_runtime_that_is_over_leaves_nobody_waiting", over),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn trial(name: &str, scenario: fn()) -> Trial {
    Trial::test(name, move || {
        let execution = move || {
            runtime::begin();
            scenario();
        };
        shuttle::check_random(execution, EXECUTIONS);
        shuttle::check_pct(execution, EXECUTIONS, 3);
        Ok(())
    })
}

/// What has reached the destination.
#[derive(Default)]
struct Seen {
    sent: Vec<&'static str>,
    /// Keys with a request in flight: the first letters of their entries.
    in_flight: Vec<char>,
    faults: Vec<String>,
}

#[derive(Clone, Default)]
struct Destination {
    seen: Arc<Mutex<Seen>>,
    /// The owner of the entries that begin with `w` has withdrawn.
    withdrawn: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
}

impl BatchSender for Destination {
    type Entry = &'static str;

    async fn send(&self, entries: Vec<&'static str>, _: Flush) -> Vec<Answer> {
        let mut keys: Vec<char> = entries.iter().filter_map(|name| key_of(name)).collect();
        keys.dedup();
        {
            let mut seen = self.seen.lock().unwrap();
            for name in &entries {
                if seen.sent.contains(name) {
                    seen.faults.push(format!("{name} is sent twice"));
                }
            }
            for key in &keys {
                if seen.in_flight.contains(key) {
                    seen.faults.push(format!("{key} is in flight twice"));
                }
            }
            seen.sent.extend(&entries);
            seen.in_flight.extend(&keys);
        }
        yield_now().await;
        while self.is_silent.load(Ordering::Relaxed) {
            yield_now().await;
        }
        let mut seen = self.seen.lock().unwrap();
        seen.in_flight.retain(|key| !keys.contains(key));
        let answers = entries.iter();
        answers
            .map(|name| Ok(Receipt::new().with_provider_id(*name)))
            .collect()
    }

    fn is_withdrawn(&self, entry: &&'static str) -> bool {
        entry.starts_with('w') && self.withdrawn.load(Ordering::Relaxed)
    }
}

/// The ordering key of an entry: `k` and `l` are keys.
fn key_of(name: &str) -> Option<char> {
    name.chars().next().filter(|key| "kl".contains(*key))
}

#[derive(Clone)]
struct Model {
    batcher: Arc<Batcher<Destination>>,
    destination: Destination,
}

impl Model {
    fn new(max_entries: usize, max_inflight: usize) -> Self {
        let settings = BatchSettings {
            max_entries: NonZeroUsize::new(max_entries).unwrap(),
            max_inflight: NonZeroUsize::new(max_inflight).unwrap(),
            linger: LINGER,
            ..BatchSettings::default()
        };
        let destination = Destination::default();
        Self {
            batcher: Arc::new(Batcher::new(destination.clone(), settings)),
            destination,
        }
    }

    async fn submit(&self, name: &'static str, deadline: Option<Instant>) -> Answer {
        let mut entry = BatchEntry::new("t", 1, name);
        if let Some(key) = key_of(name) {
            entry = entry.with_ordering_key(key.to_string());
        }
        entry.deadline = deadline;
        let full = |full: QueueFull| full.into_error(Duration::ZERO);
        self.batcher.submit(entry, full).await
    }

    /// A thread with one submission.
    fn caller(&self, name: &'static str, deadline: Option<Instant>) -> Caller {
        let this = self.clone();
        Caller {
            name,
            answer: thread::spawn(move || block_on(this.submit(name, deadline))),
        }
    }

    /// Ends the batcher, and finds that every answer is true of what was sent.
    fn end(&self, callers: Vec<Caller>) {
        block_on(self.batcher.drain(now() + Duration::from_secs(3_600)));
        let answers: Vec<_> = callers
            .into_iter()
            .map(|caller| (caller.name, caller.answer.join().unwrap()))
            .collect();
        assert_eq!(self.batcher.load(), (0, 0));
        let seen = self.destination.seen.lock().unwrap();
        assert!(seen.faults.is_empty(), "{:?}", seen.faults);
        for (name, answer) in answers {
            let was_sent = seen.sent.contains(&name);
            match answer {
                Ok(receipt) => assert_eq!(receipt.provider_id.as_deref(), Some(name)),
                Err(error) => {
                    let claims_unsent = error.outcome() == Outcome::NotStored;
                    assert_eq!(claims_unsent, !was_sent, "{name}: {error}");
                }
            }
        }
    }

    fn sent(&self) -> Vec<&'static str> {
        self.destination.seen.lock().unwrap().sent.clone()
    }
}

struct Caller {
    name: &'static str,
    answer: thread::JoinHandle<Answer>,
}

const LINGER: Duration = Duration::from_millis(20);

/// A few turns, as the checker chooses.
fn some() -> usize {
    thread_rng().gen_range(0..8)
}

/// Gives up after so many turns.
async fn for_turns<T>(turns: usize, task: impl Future<Output = T>) -> Option<T> {
    let mut task = pin!(task);
    let given_up = async {
        for _ in 0..turns {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = &mut task => Some(done),
        () = given_up => None,
    }
}

fn deadline() {
    let model = Model::new(2, 1);
    let soon = Some(now() + LINGER / 2);
    let callers = vec![
        model.caller("a", soon),
        model.caller("b", Some(now() + LINGER)),
        model.caller("c", None),
    ];
    advance(LINGER / 2);
    thread::yield_now();
    advance(LINGER / 2);
    model.end(callers);
}

fn full() {
    let model = Model::new(2, 1);
    let names = ["a", "b", "c", "d"];
    // Time stands still, and nobody flushes.
    for caller in names.map(|name| model.caller(name, None)) {
        assert!(caller.answer.join().unwrap().is_ok());
    }
    model.end(Vec::new());
}

fn lone() {
    let model = Model::new(2, 1);
    for name in ["a", "b"] {
        let caller = model.caller(name, None);
        while model.batcher.load() == (0, 0) {
            thread::yield_now();
        }
        advance(LINGER);
        assert!(caller.answer.join().unwrap().is_ok());
        // The request is over when its caller is answered, or a moment later.
        while model.batcher.load() != (0, 0) {
            thread::yield_now();
        }
    }
    model.end(Vec::new());
}

fn going_last() {
    let model = Model::new(1, 1);
    let first = model.caller("a", None);
    let fickle = {
        let this = model.clone();
        thread::spawn(move || block_on(for_turns(some(), this.submit("b", None))))
    };
    model.end(vec![first]);
    fickle.join().unwrap();
}

fn going_away() {
    let model = Model::new(2, 2);
    let callers = vec![model.caller("a", None), model.caller("b", None)];
    let fickle = ["c", "d"].map(|name| {
        let this = model.clone();
        thread::spawn(move || block_on(for_turns(some(), this.submit(name, None))))
    });
    thread::yield_now();
    advance(LINGER);
    for caller in fickle {
        caller.join().unwrap();
    }
    // Whoever was admitted is answered without a drain.
    for _ in 0..2 {
        advance(LINGER);
        thread::yield_now();
    }
    model.end(callers);
}

fn ordered() {
    let model = Model::new(2, 2);
    let pairs = [("k0", "k1"), ("l0", "l1")].map(|(first, second)| {
        let this = model.clone();
        thread::spawn(move || {
            // In the order of the first poll.
            let both = join(this.submit(first, None), this.submit(second, None));
            let (first, second) = block_on(both);
            first.is_ok() && second.is_ok()
        })
    });
    let flusher = {
        let batcher = Arc::clone(&model.batcher);
        thread::spawn(move || batcher.flush())
    };
    let third = model.caller("k2", Some(now() + LINGER));
    advance(LINGER);
    flusher.join().unwrap();
    model.end(vec![third]);
    let mut all_ok = true;
    for pair in pairs {
        all_ok &= pair.join().unwrap();
    }
    let sent = model.sent();
    let place = |name| sent.iter().position(|sent| *sent == name);
    for (first, second) in [("k0", "k1"), ("l0", "l1")] {
        match (place(first), place(second)) {
            (Some(first), Some(second)) => assert!(first < second, "{sent:?}"),
            // The drain came before the second, or before both.
            (_, None) => assert!(!all_ok),
            (None, Some(_)) => unreachable!("{sent:?}"),
        }
    }
}

fn drained() {
    let model = Model::new(1, 1);
    model.destination.is_silent.store(true, Ordering::Relaxed);
    let callers = vec![
        model.caller("a", None),
        model.caller("b", None),
        model.caller("k", None),
    ];
    let drain = {
        let batcher = Arc::clone(&model.batcher);
        let deadline = now() + LINGER;
        thread::spawn(move || block_on(batcher.drain(deadline)))
    };
    advance(LINGER);
    let report = drain.join().unwrap();
    assert!(report.unanswered <= 3);
    // What waited is answered: only the request in flight is left.
    assert!(model.batcher.load().0 <= 1);
    model.destination.is_silent.store(false, Ordering::Relaxed);
    model.end(callers);
}

fn withdrawn() {
    let model = Model::new(10, 1);
    let callers = ["w0", "w1"].map(|name| model.caller(name, None));
    let other = model.caller("a", None);
    thread::yield_now();
    model.destination.withdrawn.store(true, Ordering::Relaxed);
    model.batcher.withdraw();
    // Time stands still: what slipped in would wait for ever.
    let answers = callers.map(|caller| caller.answer.join().unwrap());
    for answer in answers {
        assert_eq!(answer.unwrap_err().code(), "SinkClosed");
    }
    model.end(vec![other]);
    assert!(model.sent().iter().all(|name| *name == "a"));
}

fn over() {
    let model = Model::new(10, 1);
    runtime::set_over(true);
    let callers: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|name| model.caller(name, None))
        .collect();
    for caller in callers {
        let error = caller.answer.join().unwrap().unwrap_err();
        assert_eq!(
            (error.code(), error.outcome()),
            ("BatcherStopped", Outcome::NotStored)
        );
    }
    runtime::set_over(false);
    let next = vec![model.caller("c", None), model.caller("d", None)];
    model.end(next);
}
