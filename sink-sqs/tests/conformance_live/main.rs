//! The conformance suite against an SQS emulator that others wrote.
//!
//! `SQS_EMULATOR` names it (`moto`, `fauxqs`, `floci`) and `SQS_EMULATOR_URL` says where it
//! listens; without them no case runs, and `REQUIRE_LIVE=1` makes that a failure. The
//! emulator is no oracle: where it does otherwise than the service, `divergences.rs` says
//! so and why. The queues of a run are deleted at its end.

mod adapter;
mod divergences;
mod emulator;
mod plain;

use std::process::ExitCode;
use std::sync::Arc;

use sink_testkit::conformance;

fn main() -> ExitCode {
    let named = plain::Named::by_environment();
    let ledger = format!(
        "{}/tests/ledgers/{}.toml",
        env!("CARGO_MANIFEST_DIR"),
        named.emulator
    );
    let queues = named.queues();
    let adapter = adapter::Live {
        named,
        queues: Arc::clone(&queues),
    };
    queues.gone_after(conformance::main(adapter, ledger))
}
