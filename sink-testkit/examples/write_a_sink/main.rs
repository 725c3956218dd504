//! A sink and its conformance test, as `docs/write-a-sink.md` explains them.
//!
//! `cargo run --example write_a_sink` plays the suite; `cargo test` does too.

mod fixture;
mod sink;

// The crate of the guide, whose library and test are one program here.
extern crate self as sink_journal;
pub use sink::PLUGIN;

fn main() -> std::process::ExitCode {
    let ledger = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/write_a_sink/ledger.toml"
    );
    sink_testkit::conformance::main(fixture::Journal, ledger)
}
