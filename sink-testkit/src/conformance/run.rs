//! Playing one case.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::case::Case;
use super::context::Context;
use super::failure::{Checked, Failure, FailureKind};
use super::fixture::Adapter;
use super::profile::{Clock, Profile};
use super::verdict::Verdict;

/// The longest that a case may take on its clock.
const BUDGET_PAUSED: Duration = Duration::from_secs(24 * 3600);
const BUDGET_REAL: Duration = Duration::from_secs(60);

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

/// Plays a case in a mode of an adapter, on a runtime of its own.
///
/// A case that hangs fails with the step at which it did. A panic within it is no failure
/// of the subject, which has its own [`deliver_contained`](dispatch_api::deliver_contained).
pub fn run_case(adapter: &dyn Adapter, profile: &Profile, case: &Case, seed: u64) -> CaseReport {
    let divergences = adapter.divergences(profile);
    let divergence = divergences.iter().find(|known| known.case == case.id);
    let mut report = play_on_a_runtime(adapter, profile, case, seed);
    if let Some(divergence) = divergence {
        (report.verdict, report.reason) = match report.verdict {
            Verdict::Failed => (Verdict::NotApplicable, divergence.reason.to_owned()),
            verdict => (
                Verdict::Failed,
                format!(
                    "it is listed as a divergence (`{}`) and comes to `{verdict}`: remove it from \
                     the list",
                    divergence.reason
                ),
            ),
        };
    }
    report
}

fn play_on_a_runtime(
    adapter: &dyn Adapter,
    profile: &Profile,
    case: &Case,
    seed: u64,
) -> CaseReport {
    let report = |verdict, reason: String, is_subjects| CaseReport {
        verdict,
        reason,
        is_subjects,
        seed,
    };
    if let Some(fault) = case.needs.missing_fault(profile) {
        let reason = format!("the fixture cannot play {}", fault.as_str());
        return report(Verdict::NotApplicable, reason, false);
    }
    let (run, passed) = match (case.needs.missing_capability(profile), case.inverse) {
        (None, _) => (case.run, Verdict::Passed),
        (Some(_), Some(inverse)) => (inverse, Verdict::RefusedAsDeclared),
        (Some(capability), None) => {
            let reason = format!("{} is not declared", capability.as_str());
            return report(Verdict::NotApplicable, reason, false);
        }
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(profile.clock == Clock::Paused)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return report(Verdict::Failed, error.to_string(), false),
    };
    let played = AssertUnwindSafe(runtime.block_on(async {
        let played = AssertUnwindSafe(play(adapter, profile, run, seed));
        played.catch_unwind().await
    }));
    let (result, missing) = played.0.unwrap_or_else(|_| {
        let failure = Failure::of_kit("panic", "the case panicked; the panic is printed above");
        (Err(failure), Vec::new())
    });
    // What a case leaves behind must not hold up the next.
    runtime.shutdown_background();
    match result {
        Err(failure) => report(
            Verdict::Failed,
            failure.to_string(),
            failure.kind() == FailureKind::Subject,
        ),
        Ok(()) if missing.is_empty() => report(passed, String::new(), false),
        Ok(()) => report(
            Verdict::NotExercised,
            format!("it never happened: {}", missing.join(", ")),
            false,
        ),
    }
}

async fn play(
    adapter: &dyn Adapter,
    profile: &Profile,
    run: super::CaseFn,
    seed: u64,
) -> (Checked, Vec<String>) {
    let fixture = match adapter.fixture(profile).await {
        Ok(fixture) => fixture,
        Err(error) => {
            let failure = Failure::of_kit("build the fixture", error.to_string());
            return (Err(failure), Vec::new());
        }
    };
    let context = Context::new(&*fixture, profile, seed);
    let budget = match profile.clock {
        Clock::Paused => BUDGET_PAUSED,
        Clock::Real => BUDGET_REAL,
    };
    let result = timeout(budget, run(&context)).await.unwrap_or_else(|_| {
        Err(Failure::new(
            format!("hangs at `{}`", context.current_step()),
            format!("an end within {budget:?}"),
            "it still runs",
        ))
    });
    (result, context.missing_events())
}
