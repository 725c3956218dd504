//! The queue as a source on an emulator: no faults, and nothing done behind its back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sink_testkit::conformance::source::{SourceAdapter, SourceFixture, SourceProfile};
use sink_testkit::conformance::{Divergence, FixtureError};

use crate::divergences;
use crate::fixture::EmulatorFixture;
use crate::plain::{Named, Queues};
use crate::profile::{MODES, queue_profile};

/// What emulators take at most.
const MAX_MESSAGE_BYTES: usize = 262_144;
/// Half of it is what an emulator that answers slowly has for an extension.
const HOLD: Duration = Duration::from_secs(6);

/// The source on an emulator.
pub(crate) struct Live {
    pub(crate) named: Named,
    pub(crate) queues: Arc<Queues>,
}

#[async_trait]
impl SourceAdapter for Live {
    fn name(&self) -> &str {
        "sink-sqs-source-live"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        MODES
            .map(|mode| {
                let mut profile = queue_profile(mode);
                profile.max_message_bytes = Some(MAX_MESSAGE_BYTES);
                profile.hold = HOLD;
                profile
            })
            .to_vec()
    }

    fn unavailable(&self) -> Option<String> {
        self.named.unavailable()
    }

    fn divergences(&self, profile: &SourceProfile) -> Vec<Divergence> {
        divergences::of(&self.named.emulator, &profile.mode)
    }

    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError> {
        let queues = Arc::clone(&self.queues);
        Ok(Box::new(EmulatorFixture::new(queues, profile)?))
    }
}
