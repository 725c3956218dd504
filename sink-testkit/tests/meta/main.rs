//! What the suite itself is held to: it notices, it blames nobody wrongly, and what its
//! documentation shows is what it prints.
//!
//! The program is also the subject of its own tests: with `META_SUBJECT` in its environment
//! it is a conformance test of that adapter.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]

mod barren;
mod crowded;
mod documents;
mod guides;
mod judge;
mod kills;
mod ledger;
mod limited;
mod parallel;
mod process;
mod seeds;
mod subject;
mod workspace;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The tests of a module, each by its function's name.
macro_rules! tests {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        vec![$($(
            Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
                $module::$name();
                Ok(())
            }),
        )+)+]
    };
}

fn main() -> ExitCode {
    if let Ok(subject) = std::env::var(process::SUBJECT) {
        return process::play(&subject);
    }
    let tests = tests! {
        barren:
            what_a_fixture_lacks_fails_and_is_no_kill,
            what_a_plugin_may_be_without_is_not_applicable,
            a_schema_without_options_passes_no_case_about_them,
            a_case_says_by_itself_that_it_does_not_apply;
        crowded:
            a_backend_that_is_dirty_changes_no_verdict_and_is_left_as_it_was,
            a_fixture_is_gone_however_its_case_ends;
        documents:
            the_readme_counts_the_cases_of_every_group,
            the_readme_shows_what_the_runner_prints,
            the_readme_shows_a_mutant_of_the_kill_matrix,
            every_file_that_a_document_links_to_is_there,
            every_test_that_stands_in_for_a_case_is_there,
            every_case_that_a_field_report_names_is_there;
        guides:
            the_guide_of_sinks_begins_with_all_that_is_needed_in_thirty_lines,
            the_guide_of_sources_begins_with_all_that_is_needed_in_thirty_lines,
            the_guide_shows_the_files_of_its_example,
            the_guide_counts_the_verdicts_of_its_examples,
            every_excerpt_is_a_part_of_the_file_that_it_names,
            an_excerpt_that_differs_in_one_character_is_noticed;
        judge:
            good_histories_pass,
            bad_histories_fail_for_what_is_wrong_with_them,
            a_duplicate_does_not_hide_a_loss,
            what_is_unknown_and_arrives_is_recovered,
            what_is_no_message_is_an_error;
        kills:
            a_fixture_that_cannot_be_built_is_no_kill,
            a_destination_that_cannot_be_created_is_no_kill,
            a_fixture_that_names_no_secret_is_no_kill,
            a_panic_in_a_case_is_no_kill,
            a_fixture_that_hangs_is_no_kill,
            a_sink_that_never_answers_hangs_at_a_named_step,
            a_sink_that_blocks_its_thread_hangs_at_a_named_step,
            a_sink_that_waits_for_a_blocking_task_hangs_at_a_named_step,
            a_case_goes_on_after_another_has_hung,
            the_subject_runs_bare,
            what_never_happened_is_not_exercised,
            a_fault_that_was_not_played_is_not_exercised,
            a_secret_in_a_log_is_found_and_not_repeated,
            a_divergence_that_fails_is_not_applicable,
            a_divergence_that_passes_fails,
            a_divergence_does_not_excuse_the_fixture;
        ledger:
            every_mode_has_a_row_for_every_case,
            what_is_in_the_ledger_passes,
            a_new_pass_fails,
            a_new_skip_fails,
            a_case_without_a_row_fails,
            a_row_without_a_case_fails,
            a_mode_that_is_gone_fails,
            a_failure_cannot_be_expected,
            a_ledger_of_another_suite_is_refused,
            a_malformed_ledger_is_refused,
            an_update_of_one_case_leaves_the_other_rows,
            an_update_does_not_accept_a_failure,
            an_adapter_without_modes_fails,
            a_process_in_which_nothing_is_heard_fails_what_listens,
            what_cannot_run_says_so,
            what_cannot_run_and_has_to_fails;
        limited:
            limited_references_pass_as_limited,
            each_limit_shows_in_its_verdicts;
        parallel:
            all_cases_of_a_mode_run_at_once,
            one_case_runs_twenty_times_at_once;
        seeds:
            a_seed_gives_the_same_random_numbers,
            a_failure_prints_its_seed_and_fails_alike_with_it,
            a_seed_that_is_no_number_is_refused;
        workspace:
            every_sink_of_the_workspace_has_a_suite,
            every_source_of_the_workspace_has_a_suite,
            every_ledger_is_one_that_a_suite_compares,
            every_ledger_has_a_row_for_every_case_and_no_other;
    };
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
