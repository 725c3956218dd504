//! The proof that the suites bite: every mutant is noticed by the case that it is for,
//! and every case notices one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod matrix;

/// One seed for all, so that the matrices can be compared.
const SEED: u64 = 1;

/// The tests of one suite: its cases and how one is played, its reference adapter and the
/// mutants of that, and the file of its matrix.
macro_rules! suite {
    (
        $suite:ident, cases: $cases:path, run: $run:path, adapter: $adapter:path,
        reference: $reference:ty, mutants: $mutants:path, matrix: $matrix:literal $(,)?
    ) => {
        mod $suite {
            use std::path::Path;
            use std::sync::Arc;

            use $adapter as Adapter;
            use $cases as all_cases;
            use $run as run;

            use crate::SEED;
            use crate::matrix::{Entry, check_honest, check_inverses, check_kills, check_names};

            type Reference = $reference;

            fn entries() -> Vec<Entry> {
                $mutants().map(Entry::of).collect()
            }

            fn ids() -> Vec<&'static str> {
                all_cases().iter().map(|case| case.id).collect()
            }

            #[test]
            fn every_case_is_for_a_mutant_and_every_mutant_is_for_a_case() {
                check_names(&entries(), &ids());
            }

            #[test]
            fn a_case_with_an_inverse_is_for_a_mutant_on_either_side() {
                let mutants: Vec<_> = $mutants().collect();
                let cases = all_cases();
                let with_inverse = cases.iter().filter(|case| case.inverse.is_some());
                let with_inverse: Vec<_> = with_inverse.map(|case| case.id).collect();
                assert!(!with_inverse.is_empty());
                check_inverses(&entries(), &with_inverse, &|place| {
                    let mutant = mutants[place];
                    let case = cases.iter().find(|case| case.id == mutant.case).unwrap();
                    case.is_inverted(&Reference::profile(mutant.mode))
                });
            }

            #[test]
            fn each_mutant_is_killed_by_its_case_with_its_words_and_the_matrix_is_as_checked_in() {
                let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/", $matrix));
                let mutants: Vec<_> = $mutants().collect();
                let cases = all_cases();
                check_kills(path, &entries(), &ids(), &|place, id| {
                    let mutant = mutants[place];
                    let case = cases.iter().find(|case| case.id == id).unwrap();
                    let adapter: Arc<dyn Adapter> = Arc::new(Reference::broken(mutant));
                    run(&adapter, &Reference::profile(mutant.mode), case, SEED)
                });
            }

            #[test]
            fn the_honest_adapter_is_killed_by_no_case_in_any_mode() {
                let adapter: Arc<dyn Adapter> = Arc::new(Reference::honest());
                let profiles = adapter.profiles();
                let reports = profiles.iter().flat_map(|profile| {
                    let adapter = Arc::clone(&adapter);
                    all_cases().into_iter().map(move |case| {
                        let report = run(&adapter, profile, &case, SEED);
                        (profile.mode.clone(), case.id, report)
                    })
                });
                check_honest(reports);
            }
        }
    };
}

suite!(
    sinks,
    cases: sink_testkit::conformance::cases::all,
    run: sink_testkit::conformance::run_case,
    adapter: sink_testkit::conformance::Adapter,
    reference: sink_testkit::reference::ReferenceAdapter,
    mutants: sink_testkit::reference::mutants::all,
    matrix: "kill_matrix.txt",
);

suite!(
    sources,
    cases: sink_testkit::conformance::source::cases::all,
    run: sink_testkit::conformance::source::run_source_case,
    adapter: sink_testkit::conformance::source::SourceAdapter,
    reference: sink_testkit::reference::source::ReferenceSourceAdapter,
    mutants: sink_testkit::reference::source::mutants::all,
    matrix: "source_kill_matrix.txt",
);
