//! Showing each case as a test of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::cases;
use super::fixture::SourceAdapter;
use super::profile::SourceProfile;
use super::run::run_source_case;
use crate::conformance::runner::{Named, Suite, run_suite};
use crate::conformance::{CaseReport, Clock};

struct SourceSuite {
    adapter: Arc<dyn SourceAdapter>,
    profiles: Vec<SourceProfile>,
}

impl Suite for SourceSuite {
    fn name(&self) -> &str {
        self.adapter.name()
    }

    fn unavailable(&self) -> Option<String> {
        self.adapter.unavailable()
    }

    fn modes(&self) -> Vec<(String, Clock)> {
        let profiles = self.profiles.iter();
        profiles
            .map(|profile| (profile.mode.clone(), profile.clock))
            .collect()
    }

    fn cases(&self) -> Vec<Named> {
        let cases = cases::all().into_iter();
        cases
            .map(|case| Named {
                id: case.id,
                rule: case.rule,
            })
            .collect()
    }

    /// Nearly all of a case is waiting for holds and delays.
    fn at_once(&self) -> usize {
        16
    }

    fn run(&self, mode: usize, case: usize, seed: u64) -> CaseReport {
        run_source_case(
            &self.adapter,
            &self.profiles[mode],
            &cases::all()[case],
            seed,
        )
    }
}

/// The main function of a conformance test of a source: `harness = false` in `Cargo.toml`,
/// and
///
/// ```no_run
/// use sink_testkit::conformance::source;
/// use sink_testkit::reference::source::ReferenceSourceAdapter;
///
/// fn main() -> std::process::ExitCode {
///     let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source_ledger.toml");
///     source::main(ReferenceSourceAdapter::honest(), ledger)
/// }
/// ```
///
/// It shows, compares and is asked by its environment as the suite for sinks is, see
/// [`conformance::main`](crate::conformance::main).
pub fn main(adapter: impl SourceAdapter, ledger: impl Into<PathBuf>) -> ExitCode {
    let adapter: Arc<dyn SourceAdapter> = Arc::new(adapter);
    // What cannot run is not asked for its modes.
    let profiles = match adapter.unavailable() {
        Some(_) => Vec::new(),
        None => adapter.profiles(),
    };
    run_suite(Arc::new(SourceSuite { adapter, profiles }), ledger.into())
}
