//! The suite for sources.

use std::path::Path;
use std::sync::Arc;

use sink_testkit::conformance::source::{SourceAdapter, SourceCase, cases, run_source_case};
use sink_testkit::reference::source::{ReferenceSourceAdapter, SourceMutant, mutants};

use crate::SEED;
use crate::matrix::{Entry, check_honest, check_kills, check_names};

fn entries() -> Vec<Entry> {
    mutants::all()
        .map(|mutant| Entry {
            name: mutant.name,
            fault: mutant.fault,
            case: mutant.case,
            says: mutant.says,
            mode: mutant.mode,
        })
        .collect()
}

fn ids() -> Vec<&'static str> {
    cases::all().iter().map(|case| case.id).collect()
}

#[test]
fn every_case_is_for_a_mutant_and_every_mutant_is_for_a_case() {
    check_names(&entries(), &ids());
}

#[test]
fn each_mutant_is_killed_by_its_case_with_its_words_and_the_matrix_is_as_checked_in() {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/source_kill_matrix.txt"
    ));
    let mutants: Vec<&'static SourceMutant> = mutants::all().collect();
    check_kills(path, &entries(), &ids(), &|place, id| {
        let mutant = mutants[place];
        let adapter: Arc<dyn SourceAdapter> = Arc::new(ReferenceSourceAdapter::broken(mutant));
        let profile = ReferenceSourceAdapter::profile(mutant.mode);
        run_source_case(&adapter, &profile, &case(id), SEED)
    });
}

#[test]
fn the_honest_adapter_is_killed_by_no_case_in_any_mode() {
    let adapter: Arc<dyn SourceAdapter> = Arc::new(ReferenceSourceAdapter::honest());
    let profiles = adapter.profiles();
    let reports = profiles.iter().flat_map(|profile| {
        let adapter = Arc::clone(&adapter);
        cases::all().into_iter().map(move |case| {
            let report = run_source_case(&adapter, profile, &case, SEED);
            (profile.mode.clone(), case.id, report)
        })
    });
    check_honest(reports);
}

fn case(id: &str) -> SourceCase {
    let mut cases = cases::all().into_iter();
    cases.find(|case| case.id == id).unwrap()
}
