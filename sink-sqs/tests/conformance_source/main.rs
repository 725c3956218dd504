//! The conformance suite of sources against an SQS server in this process: standard and FIFO
//! queues, settled one by one and batched.

#![expect(
    clippy::panic,
    reason = "a fault that is declared and cannot be played has to end the case"
)]

mod adapter;
mod fixture;
mod profile;
mod queue;
mod script;

use std::process::ExitCode;

use sink_testkit::conformance::source;

fn main() -> ExitCode {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_ledger.toml");
    source::main(adapter::InProcess, ledger)
}
