//! Where an emulator does otherwise than the service. A case that is listed and passes
//! fails the run, as one does that fails and is not listed.

use sink_testkit::conformance::Divergence;

pub(crate) fn of(_emulator: &str, _mode: &str) -> Vec<Divergence> {
    Vec::new()
}
