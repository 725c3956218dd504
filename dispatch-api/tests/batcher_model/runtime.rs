//! The model checker's lock and tasks, and a clock that a scenario moves.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) use shuttle::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// The model checker runs all tasks of an execution on one thread, and none is interrupted
/// in here.
struct World {
    now: Instant,
    sleepers: Vec<(Instant, Waker)>,
    /// A task that is spawned is dropped at once.
    is_over: bool,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World {
        now: Instant::now(),
        sleepers: Vec::new(),
        is_over: false,
    });
}

/// A new execution begins.
pub(crate) fn begin() {
    WORLD.with_borrow_mut(|world| {
        world.sleepers.clear();
        world.is_over = false;
    });
}

pub(crate) fn set_over(is_over: bool) {
    WORLD.with_borrow_mut(|world| world.is_over = is_over);
}

pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if WORLD.with_borrow(|world| world.is_over) {
        drop(task);
    } else {
        shuttle::future::spawn(task);
    }
}

pub(crate) fn now() -> Instant {
    WORLD.with_borrow(|world| world.now)
}

pub(crate) fn advance(by: Duration) {
    let due: Vec<Waker> = WORLD.with_borrow_mut(|world| {
        world.now += by;
        let now = world.now;
        let sleepers = world.sleepers.extract_if(.., |(at, _)| *at <= now);
        sleepers.map(|(_, waker)| waker).collect()
    });
    for waker in due {
        waker.wake();
    }
}

pub(crate) async fn sleep_until(at: Instant) {
    poll_fn(|context| {
        WORLD.with_borrow_mut(|world| {
            if world.now >= at {
                return Poll::Ready(());
            }
            world.sleepers.push((at, context.waker().clone()));
            Poll::Pending
        })
    })
    .await;
}

pub(crate) async fn timeout_at<T>(at: Instant, task: impl Future<Output = T>) -> Result<T, ()> {
    let mut task = pin!(task);
    tokio::select! {
        biased;
        done = &mut task => Ok(done),
        () = sleep_until(at) => Err(()),
    }
}
