//! The order in which ordered sinks get hooks.

use std::collections::HashMap;

use dispatch_api::Envelope;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// The order of first attempts at ordered sinks: the hooks of one sink, source and tenant
/// reach the sink one after the other.
#[derive(Debug, Default)]
pub struct Lanes {
    last: HashMap<Lane, oneshot::Receiver<()>>,
    /// Lanes that nobody waits in are dropped when there are this many.
    sweep_at: usize,
}

/// A sink, a source and a tenant.
type Lane = (String, String, Option<String>);

impl Lanes {
    /// A place behind those that joined before.
    pub fn join(&mut self, sink: &str, envelope: &Envelope) -> Turn {
        if self.last.len() >= self.sweep_at.max(1_024) {
            self.last
                .retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
            self.sweep_at = 2 * self.last.len();
        }
        let (done, next) = oneshot::channel();
        let lane = (
            sink.to_owned(),
            envelope.source_id().to_owned(),
            envelope.tenant_id().map(str::to_owned),
        );
        Turn {
            before: self.last.insert(lane, next),
            _done: Some(done),
        }
    }

    /// How many lanes are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether no lane is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

/// A place in the order of first attempts. Dropping it lets the next one go.
#[derive(Debug, Default)]
pub struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _done: Option<oneshot::Sender<()>>,
}

impl Turn {
    /// A turn that waits for nobody.
    #[must_use]
    pub fn free() -> Self {
        Self::default()
    }

    /// Returns when it is this one's turn. Dropping the future keeps the place.
    pub async fn come(&mut self) {
        if let Some(before) = &mut self.before {
            // The one before says that it is done by dropping its end.
            let _ = before.await;
            self.before = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::EnvelopeId;
    use futures_util::FutureExt as _;

    fn hook(tenant: &str) -> Envelope {
        Envelope::new(EnvelopeId::v7(0, &[0; 10]), "github", 0, "").with_tenant(tenant)
    }

    #[test]
    fn a_turn_comes_when_the_one_before_is_dropped_and_other_lanes_do_not_wait() {
        let mut lanes = Lanes::default();
        let mut first = lanes.join("main", &hook("acme"));
        let mut second = lanes.join("main", &hook("acme"));
        let mut other = lanes.join("main", &hook("globex"));
        assert!(first.come().now_or_never().is_some());
        assert!(other.come().now_or_never().is_some());
        assert!(second.come().now_or_never().is_none());
        drop(first);
        assert!(second.come().now_or_never().is_some());
    }

    #[test]
    fn lanes_that_nobody_waits_in_are_forgotten() {
        let mut lanes = Lanes::default();
        let _waiting = lanes.join("main", &hook("stays"));
        for number in 0..100_000 {
            drop(lanes.join("main", &hook(&number.to_string())));
        }
        assert!(lanes.len() <= 1_025, "{}", lanes.len());
        let mut second = lanes.join("main", &hook("stays"));
        assert!(
            second.come().now_or_never().is_none(),
            "its lane is still known"
        );
    }
}
