//! Receives of a FIFO queue that are asked for again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::HostServices;
use tokio::time::Instant;

/// The ids of receives of a FIFO queue. The service answers a repeated one with the same
/// messages, which would keep their groups closed until their time is over otherwise.
#[derive(Debug)]
pub(crate) struct Attempts {
    services: HostServices,
    /// Receives whose answer never came.
    unanswered: Mutex<Vec<Attempt>>,
}

/// A receive that can be asked for again.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    /// How many messages were asked for at first: as many may come.
    max: usize,
    /// When it was first made.
    begun: Instant,
}

/// How long the service knows an attempt, less than the five minutes that it says.
const ATTEMPT_IS_KNOWN: Duration = Duration::from_secs(270);

impl Attempts {
    pub(crate) fn new(services: HostServices) -> Self {
        Self {
            services,
            unanswered: Mutex::default(),
        }
    }

    /// The id of the next receive: one that was never answered and asked for no more, or a
    /// new one.
    pub(crate) fn next(&self, max: usize) -> Attempt {
        let mut unanswered = self.lock();
        unanswered.retain(|known| known.begun.elapsed() < ATTEMPT_IS_KNOWN);
        match unanswered.iter().position(|known| known.max <= max) {
            Some(at) => unanswered.swap_remove(at),
            None => Attempt {
                id: self.services.new_envelope_id().to_string(),
                max,
                begun: Instant::now(),
            },
        }
    }

    pub(crate) fn is_unanswered(&self, attempt: Attempt) {
        self.lock().push(attempt);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
