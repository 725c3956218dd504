//! The conformance suite against real brokers, which `KAFKA_BROKERS` names, joined by commas.
//! It creates topics there, and deletes them when it ends.
//!
//! Without it no case runs, and `REQUIRE_LIVE=1` makes that a failure. The ledger is written
//! by `UPDATE_LEDGER=1`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    reason = "shared with the suite on brokers in this process"
)]

#[path = "../conformance/adapter.rs"]
mod adapter;
#[path = "../conformance/brokers.rs"]
mod brokers;
#[path = "../conformance/fixture.rs"]
mod fixture;
#[path = "../conformance/frame.rs"]
mod frame;
#[path = "../conformance/proxy.rs"]
mod proxy;
#[path = "../conformance/script.rs"]
mod script;
#[path = "../conformance/topics.rs"]
mod topics;
#[path = "../conformance/wire.rs"]
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use sink_testkit::conformance::{self, Adapter, FixtureError, Profile, SinkFixture};
use topics::Topics;

/// The sink on the brokers where these topics are; without an address there are none.
struct Live(Arc<Topics>);

#[async_trait]
impl Adapter for Live {
    fn name(&self) -> &str {
        "sink-kafka-live"
    }

    fn profiles(&self) -> Vec<Profile> {
        [adapter::SINGLE, adapter::SHARED]
            .map(adapter::anywhere)
            .to_vec()
    }

    fn unavailable(&self) -> Option<String> {
        let is_nowhere = self.0.brokers().is_empty();
        is_nowhere.then(|| "KAFKA_BROKERS names no brokers".to_owned())
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let topics = Arc::clone(&self.0);
        Ok(Box::new(
            fixture::TopicFixture::live(topics, &profile.mode).await?,
        ))
    }
}

fn main() -> ExitCode {
    let brokers = std::env::var("KAFKA_BROKERS").unwrap_or_default();
    let topics = Topics::at(brokers, topics::PATIENCE);
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ledger-live.toml");
    topics.gone_after(conformance::main(Live(Arc::clone(&topics)), ledger))
}
