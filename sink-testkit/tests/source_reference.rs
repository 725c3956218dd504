//! The suite for sources against the reference source, which passes all that it claims.

use std::process::ExitCode;

use sink_testkit::conformance::source;
use sink_testkit::reference::source::ReferenceSourceAdapter;

fn main() -> ExitCode {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_reference.toml");
    source::main(ReferenceSourceAdapter::honest(), ledger)
}
