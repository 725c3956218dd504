//! Every test that FAULTS.md names exists.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::collections::BTreeSet;
use std::path::Path;

/// The sources that may hold a named test.
const PLACES: [&str; 11] = [
    "../dispatch-api/src",
    "../dispatch-api/tests",
    "../examples/dispatcher/src",
    "../examples/dispatcher/tests",
    "../examples/worker/src",
    "../examples/worker/tests",
    "../examples/sink-kafka/tests",
    "../sink-testkit/src",
    "../sink-testkit/tests",
    "src",
    "tests",
];

fn collect_functions(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_functions(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            for line in source.lines() {
                if let Some((_, rest)) = line.split_once("fn ")
                    && let Some((name, _)) = rest.split_once('(')
                {
                    functions.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_test_that_the_table_of_faults_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions = BTreeSet::new();
    for place in PLACES {
        collect_functions(&here.join(place), &mut functions);
    }
    let table = std::fs::read_to_string(here.join("FAULTS.md")).unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Fault"))
        .collect();
    assert_eq!(rows.len(), 54, "a row was added or lost");
    for row in rows {
        let names: Vec<&str> = row
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains('_') && !name.contains(':'))
            .collect();
        assert!(!names.is_empty(), "no test in: {row}");
        for name in names {
            assert!(functions.contains(name), "no test is called {name}");
        }
    }
}
