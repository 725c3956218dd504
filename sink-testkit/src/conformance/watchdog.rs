//! A thread for the cases of each caller, and a limit of real time over every case.

use std::cell::RefCell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::failure::Failure;

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It still runs, and its thread is left to it.
    Hangs,
    /// It panicked, or its thread could not be started.
    Died,
}

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The thread that plays this thread's cases, one after the other: a new one for each
    /// case would cost more than many a case.
    static WORKER: RefCell<Option<mpsc::Sender<Job>>> = const { RefCell::new(None) };
}

/// Runs a job on another thread and waits for it, whatever it does to its thread.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let (answer, answered) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        // Nobody listens any more when the limit is over.
        let _ = answer.send(job());
    });
    let worker = match WORKER.take() {
        Some(worker) => worker,
        None => start().ok_or(Stopped::Died)?,
    };
    worker.send(job).map_err(|_| Stopped::Died)?;
    match answered.recv_timeout(limit) {
        Ok(value) => {
            WORKER.set(Some(worker));
            Ok(value)
        }
        Err(RecvTimeoutError::Timeout) => Err(Stopped::Hangs),
        Err(RecvTimeoutError::Disconnected) => Err(Stopped::Died),
    }
}

/// A thread that runs jobs until its sender is gone.
fn start() -> Option<mpsc::Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let thread = thread::Builder::new().name("case".to_owned());
    let started = thread.spawn(move || queue.into_iter().for_each(|job| job()));
    started.is_ok().then_some(jobs)
}

/// What a case does now, also for a thread that waits for it.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Now>>);

#[derive(Debug)]
struct Now {
    step: String,
    fixture_calls: usize,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Now {
            step: "begin".to_owned(),
            fixture_calls: 0,
        })))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn step(&self, step: String) {
        self.now().step = step;
    }

    pub(super) fn current(&self) -> String {
        self.now().step.clone()
    }

    /// The fixture is at work until this is dropped.
    pub(super) fn fixture(&self) -> FixtureCall {
        self.now().fixture_calls += 1;
        FixtureCall(self.clone())
    }

    /// The failure of a case that did not end: the fixture's where the case waits for it.
    pub(super) fn hangs(&self, limit: &str) -> Failure {
        let now = self.now();
        let step = format!("hangs at `{}`", now.step);
        if now.fixture_calls > 0 {
            return Failure::of_kit(step, format!("it still runs after {limit}"));
        }
        Failure::new(step, format!("an end within {limit}"), "it still runs")
    }
}

#[derive(Debug)]
pub(super) struct FixtureCall(Progress);

impl Drop for FixtureCall {
    fn drop(&mut self) {
        self.0.now().fixture_calls -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn jobs_of_one_caller_share_a_thread() {
        let first = within(LONG, || thread::current().id());
        let second = within(LONG, || thread::current().id());
        assert_eq!(first, second);
        assert_ne!(first, Ok(thread::current().id()));
    }

    #[test]
    fn a_job_that_blocks_its_thread_is_left_and_the_next_has_another() {
        let (gate, blocked) = mpsc::channel::<()>();
        let hung = within(SOON, move || blocked.recv().is_ok());
        assert_eq!(hung, Err(Stopped::Hangs));
        assert_eq!(within(LONG, || 7), Ok(7));
        drop(gate);
    }

    #[test]
    fn a_panic_is_no_hang() {
        let died = within(LONG, || assert_eq!(1, 2, "on purpose"));
        assert_eq!(died, Err(Stopped::Died));
        assert_eq!(within(LONG, || 7), Ok(7));
    }
}
