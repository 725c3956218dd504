//! A sink and its conformance test, as `docs/write-a-sink.md` explains them.
//!
//! `cargo run --example write_a_sink` plays the suite; `cargo test` does too.

#![expect(
    unreachable_pub,
    reason = "the sink is written as the module of a library"
)]

mod fixture;
mod sink;

use std::process::ExitCode;

use sink_testkit::conformance;

fn main() -> ExitCode {
    let ledger = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/write_a_sink/ledger.toml"
    );
    conformance::main(fixture::Journal, ledger)
}
