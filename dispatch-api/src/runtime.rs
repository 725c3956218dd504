//! What the batcher takes from around it: a lock, a task, the time.
//!
//! `tests/batcher_model` compiles the batcher a second time, with a model checker's in the
//! place of these.

pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use tokio::spawn;
pub(crate) use tokio::time::{sleep_until, timeout_at};

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}
