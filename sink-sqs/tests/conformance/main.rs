//! The conformance suite against an SQS server in this process: standard and FIFO queues,
//! batched and single.

#![expect(
    clippy::panic,
    reason = "a fault that is declared and cannot be played has to end the case"
)]

mod adapter;
mod fixture;
mod script;

use std::process::ExitCode;

use sink_testkit::conformance;

fn main() -> ExitCode {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ledger.toml");
    conformance::main(adapter::InProcess, ledger)
}
