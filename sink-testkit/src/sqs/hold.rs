//! Stopping a request half-way, for as long as a test likes.

use std::sync::Arc;

use tokio::sync::watch;

/// A gate that requests wait at.
///
/// Releasing it, or dropping it, lets all through, those that arrive later too.
#[derive(Debug)]
pub struct Hold {
    gate: Arc<Gate>,
}

/// What requests wait at: the [`Hold`]'s side of a fault.
#[derive(Debug)]
pub struct Gate {
    arrivals: watch::Sender<usize>,
    is_open: watch::Sender<bool>,
}

impl Hold {
    /// A closed gate, to be built into a [`Fault`](super::Fault).
    #[must_use]
    pub fn new() -> Self {
        Self {
            gate: Arc::new(Gate {
                arrivals: watch::Sender::new(0),
                is_open: watch::Sender::new(false),
            }),
        }
    }

    /// Returns once a request waits, or waited, at the gate.
    pub async fn arrived(&self) {
        self.arrivals(1).await;
    }

    /// Returns once this many requests have come to the gate.
    pub async fn arrivals(&self, count: usize) {
        let mut arrivals = self.gate.arrivals.subscribe();
        // The sender lives in the gate that is borrowed here, so the wait cannot fail.
        let _ = arrivals.wait_for(|arrived| *arrived >= count).await;
    }

    /// Opens the gate for good.
    pub fn release(&self) {
        self.gate.is_open.send_replace(true);
    }

    /// What a fault lets requests wait at.
    #[must_use]
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }
}

impl Default for Hold {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

impl Gate {
    /// Arrives, and returns once the gate is open.
    pub async fn pass(&self) {
        self.arrivals.send_modify(|count| *count += 1);
        let mut is_open = self.is_open.subscribe();
        // The sender lives in the gate that is borrowed here, so the wait cannot fail.
        let _ = is_open.wait_for(|is_open| *is_open).await;
    }
}
