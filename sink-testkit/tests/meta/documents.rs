//! The documents say what is so.

use std::fs;
use std::path::{Path, PathBuf};

use sink_testkit::conformance::{cases, source};
use sink_testkit::reference::{self, ReferenceAdapter, mutants};

use crate::guides;
use crate::ledger::ledger;
use crate::process::run;

const README: &str = "README.md";
const LEFT_OUT: &str = "docs/left-out.md";
const MATRIX: &str = "tests/kill_matrix.txt";
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The text of a file of this package.
pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

pub(crate) fn the_readme_counts_the_cases_of_every_group() {
    let readme = read(README);
    let rows: Vec<(&str, usize)> = readme
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            let name = cells.next()?.trim_end_matches('`');
            Some((name, cells.next()?.parse().ok()?))
        })
        .collect();
    let sinks = cases::groups().map(|(name, cases)| (name, cases.len()));
    let sources = source::cases::groups().map(|(name, cases)| (name, cases.len()));
    let expected: Vec<(&str, usize)> = sinks.chain(sources).collect();
    assert_eq!(rows, expected);
    for text in [
        format!("{} cases", cases::all().len()),
        format!("{} mutants", mutants::all().count()),
        format!("{} modes", ReferenceAdapter::MODES.len()),
        format!("{} cases", source::cases::all().len()),
        format!("{} mutants", reference::source::mutants::all().count()),
    ] {
        assert!(readme.contains(&text), "the README does not say {text}");
    }
}

/// What a run says of a test that failed.
fn failure(text: &str, test: &str) -> String {
    let head = format!("---- {test} ----\n");
    let (_, rest) = text.split_once(&head).unwrap();
    let (said, _) = rest.split_once("\n\n").unwrap();
    format!("{head}{said}\n")
}

pub(crate) fn the_readme_shows_what_the_runner_prints() {
    let acceptance = "deliver_then_observed_exactly_once";
    let test = format!("plain-single::{acceptance}");
    let passed = ledger(&[(acceptance, "passed")]);
    let skipped = ledger(&[(acceptance, "not applicable")]);
    let seed = [("CONFORMANCE_SEED", "7")];
    let broken = run("fails-every-other", &passed, &[acceptance], &seed);
    let new_pass = run("honest", &skipped, &[acceptance], &seed);
    let hung = run("never-answers", &passed, &[acceptance], &seed);
    let renamed = ledger(&[("a_case_that_was_renamed", "passed")]);
    let stranger = run("honest", &renamed, &["ledger::"], &seed);
    let missing = run("cannot-run", &passed, &[], &[("REQUIRE_LIVE", "1")]);
    let absent = run("cannot-run", &passed, &[], &[]);
    let readme = read(README);
    for shown in [
        failure(&broken.text, &test),
        failure(&new_pass.text, &test),
        failure(&hung.text, &test),
        failure(&stranger.text, "ledger::names_only_cases_that_exist"),
        absent.text,
        missing.text,
    ] {
        assert!(
            readme.contains(&shown),
            "the README does not show:\n{shown}"
        );
    }
}

pub(crate) fn the_readme_shows_a_mutant_of_the_kill_matrix() {
    let (matrix, readme) = (read(MATRIX), read(README));
    let (_, rest) = readme.split_once("```text\nAutoCreates").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    assert!(matrix.contains(&format!("\nAutoCreates{shown}")));
}

pub(crate) fn every_file_that_a_document_links_to_is_there() {
    for document in [README, guides::SINK, guides::SOURCE] {
        let text = read(document);
        let folder = Path::new(ROOT).join(document);
        let folder = folder.parent().unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let files: Vec<PathBuf> = links
            .filter(|link| !link.starts_with("http") && !link.starts_with('#'))
            .map(|link| folder.join(link))
            .collect();
        assert!(!files.is_empty(), "{document} links to nothing");
        for file in files {
            assert!(file.exists(), "{document}: no {}", file.display());
        }
    }
}

pub(crate) fn every_case_that_a_field_report_names_is_there() {
    let text = read(LEFT_OUT);
    let (_, reports) = text.split_once("## Field reports").unwrap();
    let rows: Vec<&str> = reports
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert_eq!(rows.len(), 12);
    let known: Vec<&str> = cases::all().iter().map(|case| case.id).collect();
    for row in rows {
        let mut named = row.split('`').skip(1).step_by(2).peekable();
        assert!(named.peek().is_some(), "{row}");
        for case in named {
            assert!(known.contains(&case), "no case is called {case}");
        }
    }
}

/// What stands in the last column of a table, in its own spelling.
pub(crate) fn every_test_that_stands_in_for_a_case_is_there() {
    let text = read(LEFT_OUT);
    let (text, _) = text.split_once("## Field reports").unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit("| ").next());
    let named = last.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 5, "{named:?}");
    for path in named {
        let path = Path::new(ROOT).join("..").join(path);
        assert!(path.exists(), "no {}", path.display());
    }
}
