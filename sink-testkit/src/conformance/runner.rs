//! Showing each case as a test of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use super::cases;
use super::fixture::Adapter;
use super::ledger::Ledger;
use super::profile::{Clock, Profile};
use super::run::{CaseReport, run_case};
use super::verdict::Verdict;

/// Cases, and who plays them.
pub(super) trait Suite: Send + Sync + 'static {
    /// The adapter's name.
    fn name(&self) -> &str;

    /// Why it cannot run here, when it cannot.
    fn unavailable(&self) -> Option<String>;

    /// Every mode, and whose time passes in it.
    fn modes(&self) -> Vec<(String, Clock)>;

    /// Every case.
    fn cases(&self) -> Vec<Named>;

    /// How many cases run at once for each core where time passes.
    fn at_once(&self) -> usize {
        4
    }

    /// Plays the case of this number in the mode of this number.
    fn run(&self, mode: usize, case: usize, seed: u64) -> CaseReport;
}

/// A case as it is reported.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) id: &'static str,
    pub(super) rule: &'static str,
}

struct SinkSuite {
    adapter: Arc<dyn Adapter>,
    profiles: Vec<Profile>,
}

impl Suite for SinkSuite {
    fn name(&self) -> &str {
        self.adapter.name()
    }

    fn unavailable(&self) -> Option<String> {
        self.adapter.unavailable()
    }

    fn modes(&self) -> Vec<(String, Clock)> {
        let profiles = self.profiles.iter();
        profiles
            .map(|profile| (profile.mode.clone(), profile.clock))
            .collect()
    }

    fn cases(&self) -> Vec<Named> {
        let cases = cases::all().into_iter();
        cases
            .map(|case| Named {
                id: case.id,
                rule: case.rule,
            })
            .collect()
    }

    fn run(&self, mode: usize, case: usize, seed: u64) -> CaseReport {
        run_case(
            &self.adapter,
            &self.profiles[mode],
            &cases::all()[case],
            seed,
        )
    }
}

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
    let adapter: Arc<dyn Adapter> = Arc::new(adapter);
    // What cannot run is not asked for its modes.
    let profiles = match adapter.unavailable() {
        Some(_) => Vec::new(),
        None => adapter.profiles(),
    };
    run_suite(Arc::new(SinkSuite { adapter, profiles }), ledger.into())
}

/// Shows the cases of a suite as tests, and compares them with the ledger.
pub(super) fn run_suite(suite: Arc<dyn Suite>, path: PathBuf) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let settings = match settings(suite.name()) {
        Ok(settings) => settings,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::FAILURE;
        }
    };
    let reports: Reports = Arc::default();
    if let Some(reason) = suite.unavailable() {
        return not_here(suite.name(), &reason, &settings);
    }
    let modes = suite.modes();
    if modes.is_empty() {
        eprintln!(
            "{}: it declares no mode, so no case would run",
            suite.name()
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
    let cases = suite.cases();
    let mut trials = Vec::new();
    for mode in 0..modes.len() {
        for case in 0..cases.len() {
            trials.push(trial(&suite, mode, case, &expected, &reports, &settings));
        }
    }
    if !settings.update {
        let strangers = strangers(&expected, &modes, &cases);
        trials.push(Trial::test(
            "ledger::names_only_cases_that_exist",
            move || match strangers.is_empty() {
                true => Ok(()),
                false => Err(format!("no such mode or case: {}", strangers.join(", ")).into()),
            },
        ));
    }
    if modes.iter().any(|(_, clock)| *clock == Clock::Real) {
        // Such cases wait more than they work.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        arguments
            .test_threads
            .get_or_insert(cores * suite.at_once());
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        print_counts(suite.name(), &reports);
        if settings.update {
            return write(&path, &expected, &reports, &modes, &cases);
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

fn not_here(name: &str, reason: &str, settings: &Settings) -> ExitCode {
    if settings.require_live {
        eprintln!("{name}: cannot run, and has to: {reason}");
        return ExitCode::FAILURE;
    }
    println!("{name}: 0 cases ran: {reason}");
    ExitCode::SUCCESS
}

fn trial(
    suite: &Arc<dyn Suite>,
    mode: usize,
    case: usize,
    expected: &Arc<Ledger>,
    reports: &Reports,
    settings: &Settings,
) -> Trial {
    let suite = Arc::clone(suite);
    let expected = Arc::clone(expected);
    let reports = Arc::clone(reports);
    let update = settings.update;
    let seed = settings.seed;
    let (mode_name, _) = suite.modes()[mode].clone();
    let named = suite.cases()[case];
    Trial::test(format!("{mode_name}::{}", named.id), move || {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let report = suite.run(mode, case, seed);
        let result = match update {
            true => match report.verdict {
                Verdict::Failed | Verdict::NotExercised => Err(failed(&named, &report)),
                _ => Ok(()),
            },
            false => compare(&named, &report, expected.get(&mode_name, named.id)),
        };
        let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert((mode_name, named.id), report);
        result
    })
}

fn compare(case: &Named, report: &CaseReport, expected: Option<Verdict>) -> Result<(), Failed> {
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

fn failed(case: &Named, report: &CaseReport) -> Failed {
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

fn strangers(ledger: &Ledger, modes: &[(String, Clock)], cases: &[Named]) -> Vec<String> {
    ledger
        .rows()
        .filter(|(mode, case, _)| {
            !modes.iter().any(|(known, _)| known == mode)
                || !cases.iter().any(|known| known.id == *case)
        })
        .map(|(mode, case, _)| format!("{mode}.{case}"))
        .collect()
}

fn print_counts(name: &str, reports: &BTreeMap<(String, &'static str), CaseReport>) {
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
        name,
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
    modes: &[(String, Clock)],
    cases: &[Named],
) -> ExitCode {
    let mut ledger = Ledger::new();
    // A run of some cases leaves the other rows as they are.
    for (mode, _) in modes {
        for case in cases {
            let ran = reports.get(&(mode.clone(), case.id));
            let verdict = ran
                .map(|report| report.verdict)
                .or_else(|| before.get(mode, case.id));
            if let Some(verdict) = verdict {
                ledger.set(mode, case.id, verdict);
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
