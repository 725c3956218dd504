//! Whose failure it is, and that a case which cannot end does.

use std::sync::Arc;
use std::time::Duration;

use sink_testkit::conformance::{
    Adapter, Case, CaseReport, Fault, Verdict, check_eq, run_case, run_case_within,
};
use sink_testkit::reference::{Mutant, ReferenceAdapter};

use crate::subject::{
    BLOCKS_ANOTHER, BLOCKS_ITS_THREAD, DIVERGES, Does, FAILS_EVERY_OTHER, LOGS_ITS_SECRET, MODE,
    NEVER_ANSWERS, Subject, case, own_case,
};

const ACCEPTANCE: &str = "deliver_then_observed_exactly_once";

fn play(does: Does, case: &Case) -> CaseReport {
    let profile = ReferenceAdapter::profile(MODE);
    run_case(&Subject::shared(does), &profile, case, 1)
}

/// The case failed, and not by the subject's doing.
fn is_no_kill(report: &CaseReport, reason: &str) {
    let seen = (report.verdict, report.is_subjects, &*report.reason);
    assert_eq!(seen, (Verdict::Failed, false, reason));
}

pub(crate) fn a_fixture_that_cannot_be_built_is_no_kill() {
    let report = play(
        Does::FailsToBuildItsFixture,
        &case("equal_bodies_stay_distinct"),
    );
    is_no_kill(
        &report,
        "kit: build the fixture: expected the fixture does its part; observed no server listens",
    );
}

pub(crate) fn a_destination_that_cannot_be_created_is_no_kill() {
    let report = play(Does::FailsToCreateDestinations, &case(ACCEPTANCE));
    is_no_kill(
        &report,
        "kit: create a destination: expected the fixture does its part; observed the quota is \
         used up",
    );
}

pub(crate) fn a_fixture_that_names_no_secret_is_no_kill() {
    let report = play(Does::NamesNoSecret, &case("secrets_are_not_in_debug"));
    is_no_kill(
        &report,
        "kit: Debug of a new sink: expected the fixture does its part; observed it names nothing \
         to look for",
    );
}

pub(crate) fn a_panic_in_a_case_is_no_kill() {
    let panics = own_case(|_| Box::pin(async { panic!("a bug of the case") }));
    is_no_kill(
        &play(Does::Nothing, &panics),
        "kit: panic: expected the fixture does its part; observed the case panicked; the panic \
         is printed above",
    );
}

pub(crate) fn a_fixture_that_hangs_is_no_kill() {
    let report = play(Does::HangsInItsFixture, &case(ACCEPTANCE));
    is_no_kill(
        &report,
        "kit: hangs at `create hooks`: expected the fixture does its part; observed it still \
         runs after 86400s",
    );
}

pub(crate) fn a_sink_that_never_answers_hangs_at_a_named_step() {
    let report = play(Does::Breaks(&NEVER_ANSWERS), &case(ACCEPTANCE));
    assert_eq!(
        report.reason,
        "hangs at `deliver`: expected an end within 86400s; observed it still runs"
    );
    assert!(report.is_subjects);
}

/// Plays against a sink that a clock does not stop.
fn play_blocked(mutant: &'static Mutant) -> CaseReport {
    let limit = Duration::from_millis(200);
    let adapter = Subject::shared(Does::Breaks(mutant));
    let profile = ReferenceAdapter::profile(MODE);
    run_case_within(limit, &adapter, &profile, &case(ACCEPTANCE), 1)
}

const BLOCKED: &str =
    "hangs at `deliver`: expected an end within 200ms of real time; observed it still runs";

pub(crate) fn a_sink_that_blocks_its_thread_hangs_at_a_named_step() {
    let report = play_blocked(&BLOCKS_ITS_THREAD);
    assert_eq!((&*report.reason, report.is_subjects), (BLOCKED, true));
}

pub(crate) fn a_sink_that_waits_for_a_blocking_task_hangs_at_a_named_step() {
    let report = play_blocked(&BLOCKS_ANOTHER);
    assert_eq!((&*report.reason, report.is_subjects), (BLOCKED, true));
}

pub(crate) fn a_case_goes_on_after_another_has_hung() {
    play_blocked(&BLOCKS_ITS_THREAD);
    let report = play(Does::Nothing, &case(ACCEPTANCE));
    assert_eq!((report.verdict, &*report.reason), (Verdict::Passed, ""));
}

pub(crate) fn the_subject_runs_bare() {
    let counts = own_case(|context| {
        Box::pin(async move {
            let destination = context.destination().await?;
            let sink = context.build(&destination)?;
            let mut failed = Vec::new();
            for call in 0..6 {
                if context.deliver(&*sink, &context.envelope()).await.is_err() {
                    failed.push(call);
                }
            }
            check_eq("calls that failed", &vec![1, 3, 5], &failed)
        })
    });
    let subject = Does::Breaks(&FAILS_EVERY_OTHER);
    let report = play(subject, &counts);
    assert_eq!((report.verdict, &*report.reason), (Verdict::Passed, ""));
    let report = play(subject, &case(ACCEPTANCE));
    assert_eq!(
        report.reason,
        "deliver: expected Ok; observed transient: Busy: every other time"
    );
}

pub(crate) fn what_never_happened_is_not_exercised() {
    let empty = own_case(|context| {
        Box::pin(async move {
            context.plan("a throttle");
            context.plan("a retry");
            context.happened("a retry");
            Ok(())
        })
    });
    let report = play(Does::Nothing, &empty);
    assert_eq!(
        (report.verdict, &*report.reason),
        (Verdict::NotExercised, "it never happened: a throttle")
    );
}

pub(crate) fn a_fault_that_was_not_played_is_not_exercised() {
    let idle = own_case(|context| {
        Box::pin(async move {
            let destination = context.destination().await?;
            // Nobody sends what it could be played at.
            context.play(&destination, Fault::Throttle(None))
        })
    });
    let report = play(Does::Nothing, &idle);
    assert_eq!(
        (report.verdict, &*report.reason),
        (
            Verdict::NotExercised,
            "it never happened: a fault is played"
        )
    );
}

pub(crate) fn a_secret_in_a_log_is_found_and_not_repeated() {
    let case = case("secrets_are_not_in_logs_or_metrics");
    let report = play(Does::Nothing, &case);
    assert_eq!(report.verdict, Verdict::Passed, "{}", report.reason);
    let report = play(Does::Breaks(&LOGS_ITS_SECRET), &case);
    assert!(report.is_subjects, "{report:?}");
    assert!(report.reason.contains("what was told"), "{}", report.reason);
    assert!(!report.reason.contains("s3cret"), "{}", report.reason);
}

pub(crate) fn a_divergence_that_fails_is_not_applicable() {
    let report = play(Does::Breaks(&DIVERGES), &case(ACCEPTANCE));
    assert_eq!(
        (report.verdict, &*report.reason),
        (
            Verdict::NotApplicable,
            "the emulator answers nothing, and the service does"
        )
    );
}

pub(crate) fn a_divergence_that_passes_fails() {
    let report = play(Does::Diverges(ACCEPTANCE), &case(ACCEPTANCE));
    is_no_kill(
        &report,
        "it is listed as a divergence (`the emulator answers nothing, and the service does`) and \
         comes to `passed`: remove it from the list",
    );
}

pub(crate) fn a_divergence_does_not_excuse_the_fixture() {
    let adapter: Arc<dyn Adapter> = Subject::shared(Does::FailsToBuildItsFixture);
    let profile = ReferenceAdapter::profile(MODE);
    assert_eq!(adapter.divergences(&profile)[0].case, ACCEPTANCE);
    let report = run_case(&adapter, &profile, &case(ACCEPTANCE), 1);
    is_no_kill(
        &report,
        "kit: build the fixture: expected the fixture does its part; observed no server listens",
    );
}
