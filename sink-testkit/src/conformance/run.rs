//! Playing one case.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::case::{Case, CaseFn};
use super::context::Context;
use super::failure::{Checked, Failure, FailureKind};
use super::fixture::{Adapter, Divergence, FixtureError};
use super::profile::{Clock, Profile};
use super::verdict::Verdict;
use super::watchdog::{self, Progress, Stopped};

/// The longest that a case may take on its clock.
const BUDGET_PAUSED: Duration = Duration::from_secs(24 * 3600);
const BUDGET_REAL: Duration = Duration::from_secs(60);

/// The longest that a case may take of real time, which a paused clock or a thread that
/// blocks does not end.
const LIMIT_PAUSED: Duration = Duration::from_secs(60);
const LIMIT_REAL: Duration = Duration::from_secs(90);

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaseReport {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, unless it passed.
    pub reason: String,
    /// Whether it failed by the subject's doing, and not by the suite's or the fixture's.
    pub is_subjects: bool,
    /// The seed of its random numbers.
    pub seed: u64,
}

impl CaseReport {
    pub(super) fn not_applicable(reason: String, seed: u64) -> Self {
        Self {
            verdict: Verdict::NotApplicable,
            reason,
            is_subjects: false,
            seed,
        }
    }
}

/// Plays a case in a mode of an adapter, on a runtime and a thread of its own.
///
/// A case that hangs fails with the step at which it did: after a minute of real time on a
/// paused clock, after a minute and a half on a real one, and its thread is left behind. A
/// panic within it is no failure of the subject, which has its own
/// [`deliver_contained`](dispatch_api::deliver_contained).
pub fn run_case(
    adapter: &Arc<dyn Adapter>,
    profile: &Profile,
    case: &Case,
    seed: u64,
) -> CaseReport {
    run_case_within(limit(profile.clock), adapter, profile, case, seed)
}

/// [`run_case`] with another limit of real time.
pub fn run_case_within(
    limit: Duration,
    adapter: &Arc<dyn Adapter>,
    profile: &Profile,
    case: &Case,
    seed: u64,
) -> CaseReport {
    let report = play_if_declared(limit, adapter, profile, case, seed);
    judged_by_divergences(report, &adapter.divergences(profile), case.id)
}

/// What a listed divergence makes of a verdict.
pub(super) fn judged_by_divergences(
    mut report: CaseReport,
    divergences: &[Divergence],
    case: &str,
) -> CaseReport {
    if let Some(divergence) = divergences.iter().find(|known| known.case == case) {
        (report.verdict, report.reason) = match report.verdict {
            Verdict::Failed if report.is_subjects => {
                (Verdict::NotApplicable, divergence.reason.to_owned())
            }
            // What the fixture or the suite could not do says nothing of the server.
            Verdict::Failed => (Verdict::Failed, report.reason),
            verdict => (
                Verdict::Failed,
                format!(
                    "it is listed as a divergence (`{}`) and comes to `{verdict}`: remove it from \
                     the list",
                    divergence.reason
                ),
            ),
        };
        report.is_subjects = false;
    }
    report
}

fn play_if_declared(
    limit: Duration,
    adapter: &Arc<dyn Adapter>,
    profile: &Profile,
    case: &Case,
    seed: u64,
) -> CaseReport {
    if let Some(fault) = case.needs.missing_fault(profile) {
        let reason = format!("the fixture cannot play {}", fault.as_str());
        return CaseReport::not_applicable(reason, seed);
    }
    let (run, passed) = match (case.needs.missing_capability(profile), case.inverse) {
        (None, _) => (case.run, Verdict::Passed),
        (Some(_), Some(inverse)) => (inverse, Verdict::RefusedAsDeclared),
        (Some(capability), None) => {
            let reason = format!("{} is not declared", capability.as_str());
            return CaseReport::not_applicable(reason, seed);
        }
    };
    let (adapter, profile) = (Arc::clone(adapter), profile.clone());
    let clock = profile.clock;
    played(limit, clock, seed, passed, move |progress| async move {
        play(&*adapter, &profile, run, seed, &progress).await
    })
}

/// What a case comes to, and what it planned and never saw.
pub(super) type Played = (Checked, Vec<String>);

/// Plays a case on a runtime of its own, and leaves it behind when it blocks its thread.
pub(super) fn played<F: Future<Output = Played>>(
    limit: Duration,
    clock: Clock,
    seed: u64,
    passed: Verdict,
    play: impl FnOnce(Progress) -> F + Send + 'static,
) -> CaseReport {
    let progress = Progress::new();
    let job = {
        let progress = progress.clone();
        move || on_a_runtime(clock, play(progress))
    };
    let (result, missing) = match watchdog::within(limit, job) {
        Ok(played) => played,
        Err(Stopped::Hangs) => {
            let limit = format!("{limit:?} of real time");
            (Err(progress.hangs(&limit)), Vec::new())
        }
        Err(Stopped::Died) => (Err(panicked()), Vec::new()),
    };
    let (verdict, reason, is_subjects) = match result {
        Err(failure) => {
            let verdict = match failure.kind() {
                FailureKind::NotApplicable => Verdict::NotApplicable,
                FailureKind::Subject | FailureKind::Kit => Verdict::Failed,
            };
            let is_subjects = failure.kind() == FailureKind::Subject;
            (verdict, failure.to_string(), is_subjects)
        }
        Ok(()) if missing.is_empty() => (passed, String::new(), false),
        Ok(()) => (
            Verdict::NotExercised,
            format!("it never happened: {}", missing.join(", ")),
            false,
        ),
    };
    CaseReport {
        verdict,
        reason,
        is_subjects,
        seed,
    }
}

fn on_a_runtime(clock: Clock, play: impl Future<Output = Played>) -> Played {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(clock == Clock::Paused)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::of_kit("build a runtime", error.to_string());
            return (Err(failure), Vec::new());
        }
    };
    let played = runtime.block_on(AssertUnwindSafe(play).catch_unwind());
    // What a case leaves behind must not hold up the next.
    runtime.shutdown_background();
    played.unwrap_or_else(|_| (Err(panicked()), Vec::new()))
}

fn panicked() -> Failure {
    Failure::of_kit("panic", "the case panicked; the panic is printed above")
}

/// How long a case may take on its own clock.
const fn budget(clock: Clock) -> Duration {
    match clock {
        Clock::Paused => BUDGET_PAUSED,
        Clock::Real => BUDGET_REAL,
    }
}

/// How long a case may take in real time.
pub(super) const fn limit(clock: Clock) -> Duration {
    match clock {
        Clock::Paused => LIMIT_PAUSED,
        Clock::Real => LIMIT_REAL,
    }
}

async fn play(
    adapter: &dyn Adapter,
    profile: &Profile,
    run: CaseFn,
    seed: u64,
    progress: &Progress,
) -> Played {
    let fixture = match built(progress, profile.clock, adapter.fixture(profile)).await {
        Ok(fixture) => fixture,
        Err(failure) => return (Err(failure), Vec::new()),
    };
    let context = Context::new(&*fixture, profile, seed).telling(progress);
    let result = in_time(progress, profile.clock, run(&context)).await;
    (result, context.missing_events())
}

/// The fixture, or why there is none.
pub(super) async fn built<F>(
    progress: &Progress,
    clock: Clock,
    building: impl Future<Output = Result<F, FixtureError>>,
) -> Checked<F> {
    progress.step("build the fixture".to_owned());
    let _fixtures = progress.fixture();
    let budget = budget(clock);
    match timeout(budget, building).await {
        Ok(Ok(fixture)) => Ok(fixture),
        Ok(Err(error)) => Err(Failure::of_kit("build the fixture", error.to_string())),
        Err(_) => Err(progress.hangs(&format!("{budget:?}"))),
    }
}

/// What a case comes to, which is a failure when its time is over.
pub(super) async fn in_time(
    progress: &Progress,
    clock: Clock,
    case: impl Future<Output = Checked>,
) -> Checked {
    let budget = budget(clock);
    let mut case = pin!(timeout(budget, case));
    // The future is still there when its time is over, and with it the calls it waits for.
    let result = case.as_mut().await;
    result.unwrap_or_else(|_| Err(progress.hangs(&format!("{budget:?}"))))
}
