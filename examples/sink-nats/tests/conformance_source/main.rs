//! The conformance suite for sources against real NATS servers with JetStream, which it starts
//! itself: needs the program `nats-server` on the `PATH` (Debian:
//! `apt-get install nats-server`).
//!
//! Without it no case runs, and `REQUIRE_LIVE=1` makes that a failure.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]

mod adapter;
mod fixture;
#[path = "../live/mod.rs"]
mod live;
mod script;
mod tuned;

use std::process::ExitCode;
use std::sync::Arc;

use sink_testkit::conformance::source;

fn main() -> ExitCode {
    let servers = Arc::new(live::servers::Servers::new());
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_ledger.toml");
    let adapter = adapter::Live::new(Arc::clone(&servers));
    let status = source::main(adapter, ledger);
    servers.stop();
    status
}
