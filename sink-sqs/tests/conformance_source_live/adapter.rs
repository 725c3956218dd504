//! The queue as a source on an emulator: no faults, and nothing done behind its back.

use async_trait::async_trait;
use sink_testkit::conformance::source::{SourceAdapter, SourceFixture, SourceProfile};
use sink_testkit::conformance::{Divergence, FixtureError};

use crate::divergences;
use crate::fixture::EmulatorFixture;
use crate::profile::{MODES, queue_profile};

/// What emulators take at most.
const MAX_MESSAGE_BYTES: usize = 262_144;

/// The source on an emulator.
pub(crate) struct Live {
    emulator: String,
    url: Option<String>,
}

impl Live {
    pub(crate) fn from_environment() -> Self {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            emulator: read("SQS_EMULATOR").unwrap_or_else(|| "moto".to_owned()),
            url: read("SQS_EMULATOR_URL"),
        }
    }

    pub(crate) fn emulator(&self) -> &str {
        &self.emulator
    }
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
                profile
            })
            .to_vec()
    }

    fn unavailable(&self) -> Option<String> {
        match &self.url {
            Some(_) => None,
            None => Some("SQS_EMULATOR_URL is not set".to_owned()),
        }
    }

    fn divergences(&self, profile: &SourceProfile) -> Vec<Divergence> {
        divergences::of(&self.emulator, &profile.mode)
    }

    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError> {
        let url = self.url.clone().unwrap_or_default();
        Ok(Box::new(EmulatorFixture::new(url, profile)?))
    }
}
