//! The proof that the suite bites: every mutant is noticed by the case that it is for,
//! and every case notices one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sink_testkit::conformance::{Adapter, Case, CaseReport, Profile, Verdict, cases, run_case};
use sink_testkit::reference::{Mutant, ReferenceAdapter, mutants};

const MATRIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kill_matrix.txt");

/// One seed for all, so that the matrix can be compared.
const SEED: u64 = 1;

#[test]
fn every_case_is_for_a_mutant_and_every_mutant_is_for_a_case() {
    let cases: BTreeSet<&str> = cases::all().iter().map(|case| case.id).collect();
    let noticed: BTreeSet<&str> = mutants::all().map(|mutant| mutant.case).collect();
    let without: Vec<&&str> = cases.difference(&noticed).collect();
    assert!(without.is_empty(), "no mutant is for {without:?}");
    let unknown: Vec<&&str> = noticed.difference(&cases).collect();
    assert!(unknown.is_empty(), "mutants are for no case: {unknown:?}");
    assert_eq!(cases.len(), cases::all().len(), "two cases have one id");
    let names: BTreeSet<&str> = mutants::all().map(|mutant| mutant.name).collect();
    assert_eq!(
        names.len(),
        mutants::all().count(),
        "two mutants have one name"
    );
}

#[test]
fn each_mutant_is_killed_by_its_case_with_its_words_and_the_matrix_is_as_checked_in() {
    let cases = cases::all();
    let wanted = std::env::var("MUTANT").ok();
    let mutants: Vec<&'static Mutant> = mutants::all()
        .filter(|mutant| wanted.as_deref().is_none_or(|name| name == mutant.name))
        .collect();
    let killers = run_all(&mutants, &cases);
    let mut wrong = Vec::new();
    let mut matrix = String::from(
        "# Which cases notice which mutant. The case that a mutant is for comes first.\n\
         # UPDATE_LEDGER=1 cargo test -p sink-testkit --features conformance --test kill_matrix\n",
    );
    for mutant in &mutants {
        let kills = &killers[mutant.name];
        match kills.get(mutant.case) {
            Some(reason) if reason.contains(mutant.says) => {}
            Some(reason) => wrong.push(format!(
                "{}: `{}` has to say `{}`, and says: {reason}",
                mutant.name, mutant.case, mutant.says
            )),
            None => wrong.push(format!(
                "{}: `{}` does not notice it; noticed by {:?}",
                mutant.name,
                mutant.case,
                kills.keys().collect::<Vec<_>>()
            )),
        }
        let others: Vec<&str> = kills
            .keys()
            .filter(|case| **case != mutant.case)
            .copied()
            .collect();
        writeln!(
            matrix,
            "\n{} ({}): {}",
            mutant.name, mutant.mode, mutant.fault
        )
        .unwrap();
        writeln!(matrix, "  {}", mutant.case).unwrap();
        for other in others {
            writeln!(matrix, "  + {other}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    if wanted.is_some() {
        println!("{matrix}");
        return;
    }
    if std::env::var("UPDATE_LEDGER").is_ok_and(|value| value == "1") {
        std::fs::write(MATRIX, &matrix).unwrap();
        return;
    }
    let checked_in = std::fs::read_to_string(MATRIX).unwrap_or_default();
    assert!(
        checked_in == matrix,
        "tests/kill_matrix.txt differs; see what changed, then write it with UPDATE_LEDGER=1:\n{}",
        differences(&checked_in, &matrix)
    );
}

#[test]
fn the_honest_adapter_is_killed_by_no_case_in_any_mode() {
    let adapter: Arc<dyn Adapter> = Arc::new(ReferenceAdapter::honest());
    let mut failed = Vec::new();
    for profile in adapter.profiles() {
        for case in cases::all() {
            let report = run_case(&adapter, &profile, &case, SEED);
            if matches!(report.verdict, Verdict::Failed | Verdict::NotExercised) {
                failed.push(format!("{}::{}: {}", profile.mode, case.id, report.reason));
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// For each mutant, the cases that notice it and what they say.
fn run_all(
    mutants: &[&'static Mutant],
    cases: &[Case],
) -> BTreeMap<&'static str, BTreeMap<&'static str, String>> {
    let next = AtomicUsize::new(0);
    let killers = Mutex::new(BTreeMap::new());
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let adapter: Arc<dyn Adapter> = Arc::new(ReferenceAdapter::broken(mutant));
                    let profile = ReferenceAdapter::profile(mutant.mode);
                    let kills = killed_by(&adapter, &profile, cases);
                    killers.lock().unwrap().insert(mutant.name, kills);
                }
            });
        }
    });
    killers.into_inner().unwrap()
}

fn killed_by(
    adapter: &Arc<dyn Adapter>,
    profile: &Profile,
    cases: &[Case],
) -> BTreeMap<&'static str, String> {
    let mut kills = BTreeMap::new();
    for case in cases {
        let CaseReport {
            verdict,
            reason,
            is_subjects,
            ..
        } = run_case(adapter, profile, case, SEED);
        // A failure of the fixture or of the suite proves nothing.
        if verdict == Verdict::Failed && is_subjects {
            kills.insert(case.id, reason);
        }
    }
    kills
}

/// The lines that only one of them has, each kill with its mutant.
fn differences(before: &str, now: &str) -> String {
    let (before, now) = (kills(before), kills(now));
    let gone = before.difference(&now).map(|line| format!("- {line}"));
    let new = now.difference(&before).map(|line| format!("+ {line}"));
    gone.chain(new).collect::<Vec<_>>().join("\n")
}

fn kills(matrix: &str) -> BTreeSet<String> {
    let mut mutant = "";
    let lines = matrix.lines().map(|line| match line.strip_prefix("  ") {
        Some(case) => format!("{mutant} {case}"),
        None => {
            mutant = line.split(' ').next().unwrap_or_default();
            line.to_owned()
        }
    });
    lines.collect()
}
