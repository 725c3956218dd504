//! Adapters that promise little and keep it.

use std::collections::BTreeMap;

use sink_testkit::conformance::{Ledger, Verdict};

use crate::ledger::REFERENCE;

const LIMITED: [&str; 3] = ["not-durable", "text-only", "bare"];

fn verdicts(mode: &str) -> BTreeMap<String, Verdict> {
    let ledger = Ledger::parse(REFERENCE, "tests/reference.toml").unwrap();
    let rows = ledger.rows().filter(|(of, _, _)| *of == mode);
    rows.map(|(_, case, verdict)| (case.to_owned(), verdict))
        .collect()
}

/// The ledger's verdicts are the run's: `--test reference` compares them.
pub(crate) fn limited_references_pass_as_limited() {
    for mode in LIMITED {
        let verdicts = verdicts(mode);
        let count = |wanted| verdicts.values().filter(|found| **found == wanted).count();
        assert!(count(Verdict::Passed) > 80, "{mode}");
        assert!(count(Verdict::NotApplicable) > 0, "{mode}");
        assert!(count(Verdict::RefusedAsDeclared) > 0, "{mode}");
        assert_eq!(count(Verdict::Failed), 0, "{mode}");
        assert_eq!(count(Verdict::NotExercised), 0, "{mode}");
    }
}

pub(crate) fn each_limit_shows_in_its_verdicts() {
    for (mode, case, verdict) in [
        ("plain-single", "metadata_beyond_ascii", Verdict::Passed),
        (
            "text-only",
            "metadata_beyond_ascii",
            Verdict::RefusedAsDeclared,
        ),
        ("plain-single", "describe_matches_reality", Verdict::Passed),
        (
            "bare",
            "describe_matches_reality",
            Verdict::RefusedAsDeclared,
        ),
        (
            "bare",
            "the_receipt_names_the_stored_message",
            Verdict::RefusedAsDeclared,
        ),
        ("bare", "labels_are_bounded", Verdict::RefusedAsDeclared),
        (
            "plain-single",
            "the_key_is_what_is_declared",
            Verdict::RefusedAsDeclared,
        ),
        (
            "fair-batched",
            "a_key_that_does_not_fit_is_refused_unsent",
            Verdict::RefusedAsDeclared,
        ),
        ("bare", "error_class_table", Verdict::NotApplicable),
        (
            "not-durable",
            "durability_is_said_as_declared",
            Verdict::Passed,
        ),
        (
            "not-durable",
            "what_was_acknowledged_outlives_its_caller",
            Verdict::NotApplicable,
        ),
    ] {
        assert_eq!(verdicts(mode).get(case), Some(&verdict), "{mode}::{case}");
    }
}
