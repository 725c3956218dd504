//! The conformance suite for sources against the mock cluster of librdkafka, which keeps
//! groups and their offsets as brokers do, behind a proxy that plays faults.
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
#[path = "../conformance/frame.rs"]
mod frame;
mod group;
#[path = "../conformance/proxy.rs"]
mod proxy;
mod script;
#[path = "../conformance/topics.rs"]
mod topics;
#[path = "../conformance/wire.rs"]
mod wire;

use std::process::ExitCode;

use sink_testkit::conformance::source;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_ledger.toml");
    let status = source::main(adapter::Mocked::new(runtime.handle().clone()), ledger);
    runtime.shutdown_background();
    status
}
