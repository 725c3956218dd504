//! What the sink declares where only the destination itself can be asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Guarantees, Ordering};
use sink_testkit::conformance::{
    Adapter, Batching, Capability, Divergence, FixtureError, Profile, SinkFixture,
};

use super::divergences;
use super::emulator::EmulatorFixture;
use super::plain::{Named, Queues};

/// What emulators take at most.
const MAX_MESSAGE_BYTES: usize = 262_144;

/// The sink on an emulator.
pub(crate) struct Live {
    pub(crate) named: Named,
    pub(crate) queues: Arc<Queues>,
}

#[async_trait]
impl Adapter for Live {
    fn name(&self) -> &str {
        "sink-sqs-live"
    }

    fn profiles(&self) -> Vec<Profile> {
        [
            "standard-batched",
            "standard-single",
            "fifo-batched",
            "fifo-single",
        ]
        .map(profile)
        .to_vec()
    }

    fn unavailable(&self) -> Option<String> {
        self.named.unavailable()
    }

    fn divergences(&self, profile: &Profile) -> Vec<Divergence> {
        divergences::of(&self.named.emulator, &profile.mode)
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let queues = Arc::clone(&self.queues);
        Ok(Box::new(EmulatorFixture::new(queues, profile)?))
    }
}

fn profile(mode: &str) -> Profile {
    let is_batched = mode.ends_with("batched");
    let is_fifo = mode.starts_with("fifo");
    let mut guarantees = Guarantees::new(true)
        .with_max_message_bytes(MAX_MESSAGE_BYTES)
        .with_max_attributes(10);
    if is_fifo {
        guarantees = guarantees
            .with_dedup_window(Duration::from_secs(300))
            .with_ordering(match is_batched {
                true => Ordering::PerKey,
                false => Ordering::PerKeyWhenAwaited,
            });
    }
    let mut profile = Profile::new(mode, guarantees).with_capabilities([
        Capability::Receipt,
        Capability::Unreachable,
        Capability::RefusesControlCharacters,
        Capability::Telemetry,
        Capability::Description,
    ]);
    profile.carries_empty_attributes = false;
    if is_fifo {
        profile = profile.with_capabilities([Capability::Key, Capability::BoundedKey]);
    }
    if is_batched {
        profile = profile.with_capabilities([Capability::Ceilings]);
        profile.batching = Some(
            Batching::new(Duration::from_millis(20), 10)
                .with_max_bytes(MAX_MESSAGE_BYTES)
                .with_max_inflight(8),
        );
    }
    profile
}
