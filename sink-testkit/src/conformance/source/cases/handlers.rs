//! Handlers of cases with a consumer, and what they saw.

use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{Received, Settlement};
use futures_util::FutureExt as _;

use crate::conformance::source::BoxedHandler;
use crate::conformance::source::ids::id_of;

/// A handler of a closure.
pub(super) fn handler<R>(handle: impl Fn(Received) -> R + Send + Sync + 'static) -> BoxedHandler
where
    R: Future<Output = Settlement> + Send + 'static,
{
    Arc::new(move |received| handle(received).boxed())
}

/// What handlers saw, in order.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    /// Notes the hook of a delivery and returns how many were noted before.
    pub(super) fn note(&self, received: &Received) -> usize {
        self.note_text(id_of(received.body()))
    }

    /// Notes anything.
    pub(super) fn note_text(&self, text: impl Into<String>) -> usize {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(text.into());
        seen.len() - 1
    }

    /// All of it.
    pub(super) fn all(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }
}

/// The most that were there at once.
#[derive(Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<(usize, usize)>>);

impl Crowd {
    /// One more, until the guard is dropped.
    pub(super) fn enter(&self) -> Leave {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.0 += 1;
        now.1 = now.1.max(now.0);
        Leave(self.clone())
    }

    /// The most so far.
    pub(super) fn most(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// One less when it is dropped.
pub(super) struct Leave(Crowd);

impl Drop for Leave {
    fn drop(&mut self) {
        let mut now = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.0 -= 1;
    }
}
