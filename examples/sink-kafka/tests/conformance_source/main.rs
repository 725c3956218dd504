//! The conformance suite for sources against the mock cluster of librdkafka, which keeps
//! groups and their offsets as brokers do.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]
#![allow(dead_code, reason = "shared with the suite for sinks")]

mod adapter;
#[path = "../conformance/brokers.rs"]
mod brokers;
mod fixture;

use std::process::ExitCode;

use sink_testkit::conformance::source;

fn main() -> ExitCode {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_ledger.toml");
    source::main(adapter::Mocked, ledger)
}
