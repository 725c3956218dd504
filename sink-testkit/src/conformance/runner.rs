//! Showing each case as a test of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use super::case::Case;
use super::cases;
use super::fixture::Adapter;
use super::ledger::Ledger;
use super::profile::{Clock, Profile};
use super::run::{CaseReport, run_case};
use super::verdict::Verdict;

/// What the suite is asked by its environment.
struct Settings {
    update: bool,
    seed: Option<u64>,
    require_live: bool,
}

type Reports = Arc<Mutex<BTreeMap<(String, &'static str), CaseReport>>>;

/// The main function of a conformance test: `harness = false` in `Cargo.toml`, and
///
/// ```no_run
/// use sink_testkit::reference::ReferenceAdapter;
///
/// fn main() -> std::process::ExitCode {
///     let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ledger.toml");
///     sink_testkit::conformance::main(ReferenceAdapter::honest(), ledger)
/// }
/// ```
///
/// Each case is a test `mode::case` and takes the usual arguments of `cargo test`. It
/// fails when its verdict is not the ledger's. At the end the counts per verdict are
/// printed, and why what did not run did not.
///
/// | Variable | |
/// |---|---|
/// | `UPDATE_LEDGER=1` | the ledger is written instead of compared |
/// | `CONFORMANCE_SEED` | the seed of random numbers; every failure prints its own |
/// | `REQUIRE_LIVE=1`, `<ADAPTER>_REQUIRE_LIVE=1` | an adapter that cannot run fails instead of being ignored |
pub fn main(adapter: impl Adapter, ledger: impl Into<PathBuf>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let adapter: Arc<dyn Adapter> = Arc::new(adapter);
    let settings = match settings(adapter.name()) {
        Ok(settings) => settings,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::FAILURE;
        }
    };
    let path = ledger.into();
    let reports: Reports = Arc::default();
    if let Some(reason) = adapter.unavailable() {
        return not_here(&*adapter, &reason, &settings);
    }
    let profiles = adapter.profiles();
    if profiles.is_empty() {
        eprintln!(
            "{}: it declares no mode, so no case would run",
            adapter.name()
        );
        return ExitCode::FAILURE;
    }
    let expected = if settings.update {
        Ok(Ledger::read(&path).unwrap_or_default())
    } else {
        Ledger::read(&path)
    };
    let expected = match expected {
        Ok(ledger) => Arc::new(ledger),
        Err(error) => {
            eprintln!("{}", dispatch_api::ErrorChain(&error));
            return ExitCode::FAILURE;
        }
    };
    let cases = cases::all();
    let mut trials = Vec::new();
    for profile in &profiles {
        for case in &cases {
            trials.push(trial(
                &adapter, profile, *case, &expected, &reports, &settings,
            ));
        }
    }
    if !settings.update {
        let strangers = strangers(&expected, &profiles, &cases);
        trials.push(Trial::test(
            "ledger::names_only_cases_that_exist",
            move || match strangers.is_empty() {
                true => Ok(()),
                false => Err(format!("no such mode or case: {}", strangers.join(", ")).into()),
            },
        ));
    }
    if profiles.iter().any(|profile| profile.clock == Clock::Real) {
        // Such cases wait more than they work.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        arguments.test_threads.get_or_insert(cores * 4);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        print_counts(&*adapter, &reports);
        if settings.update {
            return write(&path, &expected, &reports, &profiles);
        }
    }
    conclusion.exit_code()
}

fn settings(adapter: &str) -> Result<Settings, String> {
    let is_set = |name: &str| std::env::var(name).is_ok_and(|value| value == "1");
    let own = format!("{}_REQUIRE_LIVE", adapter.to_uppercase().replace('-', "_"));
    let seed =
        match std::env::var("CONFORMANCE_SEED") {
            Err(_) => None,
            Ok(seed) => Some(seed.parse().map_err(|_| {
                format!("CONFORMANCE_SEED has to be a number from 0 to {}", u64::MAX)
            })?),
        };
    Ok(Settings {
        update: is_set("UPDATE_LEDGER"),
        seed,
        require_live: is_set("REQUIRE_LIVE") || is_set(&own),
    })
}

fn not_here(adapter: &dyn Adapter, reason: &str, settings: &Settings) -> ExitCode {
    let name = adapter.name();
    if settings.require_live {
        eprintln!("{name}: cannot run, and has to: {reason}");
        return ExitCode::FAILURE;
    }
    println!("{name}: 0 cases ran: {reason}");
    ExitCode::SUCCESS
}

fn trial(
    adapter: &Arc<dyn Adapter>,
    profile: &Profile,
    case: Case,
    expected: &Arc<Ledger>,
    reports: &Reports,
    settings: &Settings,
) -> Trial {
    let adapter = Arc::clone(adapter);
    let profile = profile.clone();
    let expected = Arc::clone(expected);
    let reports = Arc::clone(reports);
    let update = settings.update;
    let seed = settings.seed;
    Trial::test(format!("{}::{}", profile.mode, case.id), move || {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let report = run_case(&adapter, &profile, &case, seed);
        let result = match update {
            true => match report.verdict {
                Verdict::Failed | Verdict::NotExercised => Err(failed(&case, &report)),
                _ => Ok(()),
            },
            false => compare(&case, &report, expected.get(&profile.mode, case.id)),
        };
        let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert((profile.mode, case.id), report);
        result
    })
}

/// A report beside the ledger's verdict.
fn compare(case: &Case, report: &CaseReport, expected: Option<Verdict>) -> Result<(), Failed> {
    match expected {
        None => Err(format!(
            "{} is not in the ledger, and comes to `{}` {}",
            case.id, report.verdict, report.reason
        )
        .into()),
        Some(Verdict::Failed | Verdict::NotExercised) => {
            Err(format!("{}: the ledger expects a failure, which it cannot", case.id).into())
        }
        Some(expected) if expected == report.verdict => Ok(()),
        Some(expected) => Err(format!(
            "the ledger says `{expected}`, now it is `{}`\n{}",
            report.verdict,
            failed(case, report).message().unwrap_or_default()
        )
        .into()),
    }
}

fn failed(case: &Case, report: &CaseReport) -> Failed {
    let CaseReport { verdict, seed, .. } = report;
    let reason = match &*report.reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!(
        "{}\nrule: {}\n{verdict}{reason}\nseed: CONFORMANCE_SEED={seed}",
        case.id, case.rule
    )
    .into()
}

fn strangers(ledger: &Ledger, profiles: &[Profile], cases: &[Case]) -> Vec<String> {
    ledger
        .rows()
        .filter(|(mode, case, _)| {
            !profiles.iter().any(|profile| profile.mode == *mode)
                || !cases.iter().any(|known| known.id == *case)
        })
        .map(|(mode, case, _)| format!("{mode}.{case}"))
        .collect()
}

fn print_counts(adapter: &dyn Adapter, reports: &BTreeMap<(String, &'static str), CaseReport>) {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for report in reports.values() {
        *counts.entry(report.verdict).or_default() += 1;
        if report.verdict == Verdict::NotApplicable {
            *reasons.entry(&report.reason).or_default() += 1;
        }
    }
    let shown: Vec<String> = Verdict::ALL
        .iter()
        .map(|verdict| format!("{} {verdict}", counts.get(verdict).unwrap_or(&0)))
        .collect();
    println!(
        "{}, suite {}: {}",
        adapter.name(),
        super::SUITE_VERSION,
        shown.join(", ")
    );
    for (reason, count) in reasons {
        println!("  {count} not applicable: {reason}");
    }
}

fn write(
    path: &std::path::Path,
    before: &Ledger,
    reports: &BTreeMap<(String, &'static str), CaseReport>,
    profiles: &[Profile],
) -> ExitCode {
    let mut ledger = Ledger::new();
    // A run of some cases leaves the other rows as they are.
    for profile in profiles {
        for case in cases::all() {
            let ran = reports.get(&(profile.mode.clone(), case.id));
            let verdict = ran
                .map(|report| report.verdict)
                .or_else(|| before.get(&profile.mode, case.id));
            if let Some(verdict) = verdict {
                ledger.set(&profile.mode, case.id, verdict);
            }
        }
    }
    let has_failures = ledger
        .rows()
        .any(|(_, _, verdict)| matches!(verdict, Verdict::Failed | Verdict::NotExercised));
    match std::fs::write(path, ledger.to_toml()) {
        Ok(()) if has_failures => {
            eprintln!(
                "written with failures, which no run accepts: {}",
                path.display()
            );
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} cannot be written: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
