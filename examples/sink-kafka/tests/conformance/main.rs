//! The conformance suite against the mock cluster of librdkafka, which stores records as
//! brokers do, speaks the protocol over loopback sockets, and refuses as told.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]
#![allow(dead_code, reason = "shared with the suite on real brokers")]

mod adapter;
mod brokers;
mod fixture;
mod frame;
mod proxy;
mod script;
mod topics;
mod wire;

use std::process::ExitCode;

use sink_testkit::conformance;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ledger.toml");
    let adapter = adapter::Mocked::new(runtime.handle().clone());
    let status = conformance::main(adapter, ledger);
    runtime.shutdown_background();
    status
}
