//! Playing one case against one fixture.

use std::sync::Arc;

use super::case::{SourceCase, SourceCaseFn};
use super::context::SourceContext;
use super::fixture::SourceAdapter;
use super::profile::SourceProfile;
use crate::conformance::run::{Played, built, in_time, judged_by_divergences, limit, played};
use crate::conformance::watchdog::Progress;
use crate::conformance::{CaseReport, Verdict};

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
    played(
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
    let fixture = match built(progress, profile.clock, adapter.fixture(profile)).await {
        Ok(fixture) => fixture,
        Err(failure) => return (Err(failure), Vec::new()),
    };
    let context = SourceContext::new(&*fixture, profile, seed).telling(progress);
    let result = in_time(progress, profile.clock, run(&context)).await;
    (result, context.missing_events())
}
