//! Playing one case against one fixture.

use std::sync::Arc;

use tokio::time::timeout;

use super::case::{SourceCase, SourceCaseFn};
use super::context::SourceContext;
use super::fixture::SourceAdapter;
use super::profile::SourceProfile;
use crate::conformance::run::{self, Played, budget, judged_by_divergences, limit};
use crate::conformance::watchdog::Progress;
use crate::conformance::{CaseReport, Failure, Verdict};

/// Plays a case on a thread and a runtime of its own, on the clock that the profile names.
///
/// A panic is a failure of the suite. What hangs fails, and says at which step.
pub fn run_source_case(
    adapter: &Arc<dyn SourceAdapter>,
    profile: &SourceProfile,
    case: &SourceCase,
    seed: u64,
) -> CaseReport {
    let report = play_if_declared(adapter, profile, case, seed);
    judged_by_divergences(report, &adapter.divergences(profile), case.id)
}

fn play_if_declared(
    adapter: &Arc<dyn SourceAdapter>,
    profile: &SourceProfile,
    case: &SourceCase,
    seed: u64,
) -> CaseReport {
    if let Some((operation, kind)) = case.missing_fault(profile) {
        let (operation, kind) = (operation.as_str(), kind.as_str());
        let reason = format!("the fixture cannot play {kind} of {operation}");
        return CaseReport::not_applicable(reason, seed);
    }
    let (run, passed) = match (case.missing_capability(profile), case.inverse) {
        (None, _) => (case.run, Verdict::Passed),
        (Some(_), Some(inverse)) => (inverse, Verdict::RefusedAsDeclared),
        (Some(capability), None) => {
            let reason = format!("{} is not declared", capability.as_str());
            return CaseReport::not_applicable(reason, seed);
        }
    };
    let (adapter, profile) = (Arc::clone(adapter), profile.clone());
    let clock = profile.clock;
    run::played(
        limit(clock),
        clock,
        seed,
        passed,
        move |progress| async move { play(&*adapter, &profile, run, seed, &progress).await },
    )
}

async fn play(
    adapter: &dyn SourceAdapter,
    profile: &SourceProfile,
    run: SourceCaseFn,
    seed: u64,
    progress: &Progress,
) -> Played {
    progress.step("build the fixture".to_owned());
    let building = progress.fixture();
    let budget = budget(profile.clock);
    let hangs = || Err(progress.hangs(&format!("{budget:?}")));
    let fixture = match timeout(budget, adapter.fixture(profile)).await {
        Ok(Ok(fixture)) => fixture,
        Ok(Err(error)) => {
            let failure = Failure::of_kit("build the fixture", error.to_string());
            return (Err(failure), Vec::new());
        }
        Err(_) => return (hangs(), Vec::new()),
    };
    drop(building);
    let context = SourceContext::new(&*fixture, profile, seed).telling(progress);
    let case = timeout(budget, run(&context));
    let mut case = std::pin::pin!(case);
    // The future is still there when its time is over, and with it the calls it waits for.
    let result = case.as_mut().await.unwrap_or_else(|_| hangs());
    (result, context.missing_events())
}
