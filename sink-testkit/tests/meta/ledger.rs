//! The ledger, compared in both directions, and runs that cannot run.

use std::collections::BTreeMap;

use sink_testkit::conformance::{Adapter as _, Ledger, SUITE_VERSION, cases};
use sink_testkit::reference::ReferenceAdapter;

use crate::process::{Ended, run};
use crate::subject::MODE;

/// A case that passes in [`MODE`], and one that is not applicable there.
const PASSES: &str = "deliver_then_observed_exactly_once";
const NOT_APPLICABLE: &str = "batch_full_does_not_linger";

pub(crate) const REFERENCE: &str = include_str!("../reference.toml");

/// A ledger of these rows.
pub(crate) fn ledger(rows: &[(&str, &str)]) -> String {
    let mut text = format!("suite = {SUITE_VERSION}\n[modes.{MODE}]\n");
    for (case, verdict) in rows {
        text.push_str(&format!("{case} = \"{verdict}\"\n"));
    }
    text
}

fn run_one(case: &str, rows: &[(&str, &str)]) -> Ended {
    run("honest", &ledger(rows), &[case], &[])
}

fn fails_with(ended: &Ended, text: &str) {
    assert!(!ended.is_success, "it has to fail:\n{}", ended.text);
    assert!(ended.text.contains(text), "no `{text}` in:\n{}", ended.text);
}

pub(crate) fn every_mode_has_a_row_for_every_case() {
    let ledger = Ledger::parse(REFERENCE, "tests/reference.toml").unwrap();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for (mode, _, _) in ledger.rows() {
        *rows.entry(mode).or_default() += 1;
    }
    let profiles = ReferenceAdapter::honest().profiles();
    let count = cases::all().len();
    let expected: BTreeMap<&str, usize> = profiles
        .iter()
        .map(|profile| (&*profile.mode, count))
        .collect();
    assert_eq!(rows, expected);
}

pub(crate) fn what_is_in_the_ledger_passes() {
    let rows = [(PASSES, "passed"), (NOT_APPLICABLE, "not applicable")];
    for (case, _) in rows {
        let ended = run_one(case, &rows);
        assert!(ended.is_success, "{}", ended.text);
    }
}

pub(crate) fn a_new_pass_fails() {
    let ended = run_one(PASSES, &[(PASSES, "not applicable")]);
    fails_with(
        &ended,
        "the ledger says `not applicable`, now it is `passed`",
    );
}

pub(crate) fn a_new_skip_fails() {
    let ended = run_one(NOT_APPLICABLE, &[(NOT_APPLICABLE, "passed")]);
    fails_with(
        &ended,
        "the ledger says `passed`, now it is `not applicable`",
    );
}

pub(crate) fn a_case_without_a_row_fails() {
    let ended = run_one(PASSES, &[]);
    fails_with(&ended, "is not in the ledger, and comes to `passed`");
}

pub(crate) fn a_row_without_a_case_fails() {
    let rows = [("a_case_that_was_renamed", "passed")];
    let ended = run_one("names_only_cases_that_exist", &rows);
    fails_with(
        &ended,
        "no such mode or case: plain-single.a_case_that_was_renamed",
    );
}

pub(crate) fn a_mode_that_is_gone_fails() {
    let text = format!("{}\n[modes.gone]\n{PASSES} = \"passed\"\n", ledger(&[]));
    let ended = run("honest", &text, &["names_only_cases_that_exist"], &[]);
    fails_with(&ended, &format!("no such mode or case: gone.{PASSES}"));
}

pub(crate) fn a_failure_cannot_be_expected() {
    for verdict in ["failed", "not exercised"] {
        let ended = run_one(PASSES, &[(PASSES, verdict)]);
        fails_with(&ended, "the ledger expects a failure, which it cannot");
    }
}

pub(crate) fn a_ledger_of_another_suite_is_refused() {
    let ended = run("honest", "suite = 99\n", &[PASSES], &[]);
    fails_with(&ended, "is of version 99 of the suite");
}

pub(crate) fn a_malformed_ledger_is_refused() {
    for text in ["", "suite = \"1\"", "suite = 1\ncases = 3", "[modes"] {
        let ended = run("honest", text, &[PASSES], &[]);
        fails_with(&ended, "is malformed");
    }
    let ended = run_one(PASSES, &[(PASSES, "green")]);
    fails_with(
        &ended,
        "`green` is no verdict: it has to be one of `passed`",
    );
}

pub(crate) fn an_update_of_one_case_leaves_the_other_rows() {
    let text = ledger(&[
        (PASSES, "not applicable"),
        (NOT_APPLICABLE, "not applicable"),
    ]);
    let ended = run("honest", &text, &[PASSES], &[("UPDATE_LEDGER", "1")]);
    assert!(ended.is_success, "{}", ended.text);
    let written = Ledger::parse(&ended.ledger, "written").unwrap();
    let expected = ledger(&[(PASSES, "passed"), (NOT_APPLICABLE, "not applicable")]);
    assert_eq!(written, Ledger::parse(&expected, "expected").unwrap());
}

pub(crate) fn an_update_does_not_accept_a_failure() {
    let variables = [("UPDATE_LEDGER", "1")];
    let ended = run("fails-every-other", &ledger(&[]), &[PASSES], &variables);
    fails_with(&ended, "written with failures, which no run accepts");
}

pub(crate) fn an_adapter_without_modes_fails() {
    let ended = run("has-no-modes", &ledger(&[]), &[], &[]);
    fails_with(&ended, "it declares no mode, so no case would run");
}

pub(crate) fn a_process_in_which_nothing_is_heard_fails_what_listens() {
    let case = "secrets_are_not_in_logs_or_metrics";
    let ended = run("hears-nothing", &ledger(&[(case, "passed")]), &[case], &[]);
    fails_with(&ended, "no other subscriber is installed");
}

pub(crate) fn what_cannot_run_says_so() {
    let ended = run("cannot-run", &ledger(&[]), &[], &[]);
    assert!(ended.is_success, "{}", ended.text);
    assert_eq!(
        ended.text,
        "sink-example: 0 cases ran: no server listens at 127.0.0.1:9324\n"
    );
}

pub(crate) fn what_cannot_run_and_has_to_fails() {
    for name in ["REQUIRE_LIVE", "SINK_EXAMPLE_REQUIRE_LIVE"] {
        let ended = run("cannot-run", &ledger(&[]), &[], &[(name, "1")]);
        fails_with(
            &ended,
            "sink-example: cannot run, and has to: no server listens at 127.0.0.1:9324",
        );
    }
}
