//! Running mutants against cases, and the file that says which notices which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sink_testkit::conformance::{CaseReport, Verdict};
use sink_testkit::reference::Mutant;

/// A mutant, whatever it breaks.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) case: &'static str,
    pub(crate) says: &'static str,
    pub(crate) mode: &'static str,
}

impl Entry {
    pub(crate) fn of<S>(mutant: &Mutant<S>) -> Self {
        Self {
            name: mutant.name,
            fault: mutant.fault,
            case: mutant.case,
            says: mutant.says,
            mode: mutant.mode,
        }
    }
}

/// Plays a mutant, by its place, against the case of this id.
pub(crate) type Play<'a> = &'a (dyn Fn(usize, &'static str) -> CaseReport + Sync);

/// Every case is for a mutant, every mutant for a case, and no name is there twice.
pub(crate) fn check_names(entries: &[Entry], ids: &[&'static str]) {
    let cases: BTreeSet<&str> = ids.iter().copied().collect();
    let noticed: BTreeSet<&str> = entries.iter().map(|entry| entry.case).collect();
    let without: Vec<&&str> = cases.difference(&noticed).collect();
    assert!(without.is_empty(), "no mutant is for {without:?}");
    let unknown: Vec<&&str> = noticed.difference(&cases).collect();
    assert!(unknown.is_empty(), "mutants are for no case: {unknown:?}");
    assert_eq!(cases.len(), ids.len(), "two cases have one id");
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), entries.len(), "two mutants have one name");
}

/// A case with an inverse is two rules: each has a mutant of its own, in a mode that declares
/// what the case needs and in one that does not. `is_inverted` says what the mode of the mutant
/// at this place plays of its case.
pub(crate) fn check_inverses(
    entries: &[Entry],
    with_inverse: &[&'static str],
    is_inverted: &dyn Fn(usize) -> bool,
) {
    let of = |inverted: bool| -> BTreeSet<&str> {
        let places = 0..entries.len();
        let these = places.filter(|place| is_inverted(*place) == inverted);
        these.map(|place| entries[place].case).collect()
    };
    let wanted: BTreeSet<&str> = with_inverse.iter().copied().collect();
    for (mutants, whose) in [(of(false), "the rule"), (of(true), "the inverse")] {
        let without: Vec<&&str> = wanted.difference(&mutants).collect();
        assert!(
            without.is_empty(),
            "no mutant breaks {whose} of {without:?}"
        );
    }
}

/// Each mutant is killed by its case with its words, and the matrix is as checked in.
pub(crate) fn check_kills(path: &Path, entries: &[Entry], cases: &[&'static str], play: Play<'_>) {
    let wanted = std::env::var("MUTANT").ok();
    let chosen: Vec<usize> = (0..entries.len())
        .filter(|place| {
            let name = entries[*place].name;
            wanted.as_deref().is_none_or(|wanted| wanted == name)
        })
        .collect();
    let killers = run_all(&chosen, cases, play);
    let mut wrong = Vec::new();
    let mut matrix = String::from(
        "# Which cases notice which mutant. The case that a mutant is for comes first.\n\
         # UPDATE_LEDGER=1 cargo test -p sink-testkit --features conformance --test kill_matrix\n",
    );
    for place in &chosen {
        let entry = &entries[*place];
        let kills = &killers[place];
        match kills.get(entry.case) {
            Some(reason) if reason.contains(entry.says) => {}
            Some(reason) => wrong.push(format!(
                "{}: `{}` has to say `{}`, and says: {reason}",
                entry.name, entry.case, entry.says
            )),
            None => wrong.push(format!(
                "{}: `{}` does not notice it; noticed by {:?}",
                entry.name,
                entry.case,
                kills.keys().collect::<Vec<_>>()
            )),
        }
        let others: Vec<&str> = kills
            .keys()
            .filter(|case| **case != entry.case)
            .copied()
            .collect();
        writeln!(matrix, "\n{} ({}): {}", entry.name, entry.mode, entry.fault).unwrap();
        writeln!(matrix, "  {}", entry.case).unwrap();
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
        std::fs::write(path, &matrix).unwrap();
        return;
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == matrix,
        "{} differs; see what changed, then write it with UPDATE_LEDGER=1:\n{}",
        path.file_name().unwrap_or_default().display(),
        differences(&checked_in, &matrix)
    );
}

/// For each mutant, the cases that notice it and what they say.
fn run_all(
    chosen: &[usize],
    cases: &[&'static str],
    play: Play<'_>,
) -> BTreeMap<usize, BTreeMap<&'static str, String>> {
    let next = AtomicUsize::new(0);
    let killers = Mutex::new(BTreeMap::new());
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(place) = chosen.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let mut kills = BTreeMap::new();
                    for case in cases {
                        let report = play(*place, case);
                        // A failure of the fixture or of the suite proves nothing.
                        if report.verdict == Verdict::Failed && report.is_subjects {
                            kills.insert(*case, report.reason);
                        }
                    }
                    killers.lock().unwrap().insert(*place, kills);
                }
            });
        }
    });
    killers.into_inner().unwrap()
}

/// No case in any mode fails.
pub(crate) fn check_honest(reports: impl Iterator<Item = (String, &'static str, CaseReport)>) {
    let failed: Vec<String> = reports
        .filter(|(_, _, report)| matches!(report.verdict, Verdict::Failed | Verdict::NotExercised))
        .map(|(mode, case, report)| format!("{mode}::{case}: {}", report.reason))
        .collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
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
