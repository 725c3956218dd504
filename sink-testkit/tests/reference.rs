//! The suite against the reference adapter, which passes all that it claims.

use std::process::ExitCode;

use sink_testkit::conformance;
use sink_testkit::reference::ReferenceAdapter;

fn main() -> ExitCode {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference.toml");
    conformance::main(ReferenceAdapter::honest(), ledger)
}
