//! Cases that run at the same time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sink_testkit::conformance::{Case, Ledger, Verdict, cases, run_case};
use sink_testkit::reference::ReferenceAdapter;

use crate::ledger::REFERENCE;
use crate::subject::{Does, Subject, case};

/// Plays them on eight threads.
fn at_once(mode: &str, cases: &[Case]) -> Vec<(&'static str, Verdict, String)> {
    let adapter = Subject::shared(Does::Nothing);
    let profile = ReferenceAdapter::profile(mode);
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for seed in 0..8 {
            let (next, reports) = (&next, &reports);
            let (adapter, profile) = (&adapter, &profile);
            scope.spawn(move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let report = run_case(adapter, profile, case, seed);
                    let mut reports = reports.lock().unwrap();
                    reports.push((case.id, report.verdict, report.reason));
                }
            });
        }
    });
    reports.into_inner().unwrap()
}

pub(crate) fn all_cases_of_a_mode_run_at_once() {
    let ledger = Ledger::parse(REFERENCE, "tests/reference.toml").unwrap();
    for mode in ReferenceAdapter::MODES {
        let reports = at_once(mode, &cases::all());
        let seen: BTreeMap<&str, Verdict> = reports
            .iter()
            .map(|(case, verdict, _)| (*case, *verdict))
            .collect();
        let rows = ledger.rows().filter(|(of, _, _)| *of == mode);
        let expected: BTreeMap<&str, Verdict> =
            rows.map(|(_, case, verdict)| (case, verdict)).collect();
        assert_eq!(seen, expected, "{mode}");
    }
}

pub(crate) fn one_case_runs_twenty_times_at_once() {
    let ids = [
        "a_burst_of_callers_loses_nothing",
        "nothing_lands_on_another_destination",
        "secrets_are_not_in_logs_or_metrics",
        "labels_are_bounded",
    ];
    for id in ids {
        for (_, verdict, reason) in at_once("ordered-batched", &[case(id); 20]) {
            assert_eq!((verdict, &*reason), (Verdict::Passed, ""), "{id}");
        }
    }
}
