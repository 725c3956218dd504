//! What a client used for its messages, without its start and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What one run of a client saw.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// How many messages were answered in the steady part.
    pub(crate) messages: u64,
    /// User and system time of the whole process meanwhile.
    pub(crate) cpu_ns: u64,
    /// How long it took.
    pub(crate) wall_ns: u64,
}

impl Measured {
    /// CPU time of one message in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / self.messages.max(1) as f64 / 1_000.0
    }

    /// Messages in one second.
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

/// Counts answers and looks at the clocks at two of them.
#[derive(Debug)]
pub(crate) struct Meter {
    from: u64,
    until: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    answered: u64,
    from: Option<Mark>,
    until: Option<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    answered: u64,
    cpu: Duration,
    wall: Instant,
}

impl Meter {
    /// The steady part of `messages` is what lies between its first and its last tenth.
    pub(crate) fn new(messages: usize) -> Arc<Self> {
        let tenth = messages as u64 / 10;
        Arc::new(Self {
            from: tenth,
            until: (messages as u64 - tenth).max(tenth + 1),
            state: Mutex::default(),
        })
    }

    /// Counts this many answers.
    pub(crate) fn answered(&self, count: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answered += count as u64;
        let answered = state.answered;
        if state.from.is_none() && answered >= self.from {
            state.from = Some(Mark::now(answered));
        }
        if state.until.is_none() && answered >= self.until {
            state.until = Some(Mark::now(answered));
        }
    }

    /// Whether the steady part is over.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.until.is_some()
    }

    /// What lies between the two marks; none if too little was answered.
    pub(crate) fn measured(&self) -> Option<Measured> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, until) = (state.from?, state.until?);
        Some(Measured {
            messages: until.answered - from.answered,
            cpu_ns: nanos(until.cpu.saturating_sub(from.cpu)),
            wall_ns: nanos(until.wall - from.wall),
        })
    }
}

impl Mark {
    fn now(answered: u64) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            answered,
            cpu: Duration::new(
                u64::try_from(cpu.tv_sec).unwrap_or_default(),
                u32::try_from(cpu.tv_nsec).unwrap_or_default(),
            ),
            wall: Instant::now(),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
