//! A conformance test as a process of its own, as `cargo test` runs it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use sink_testkit::conformance;

use crate::subject::{Does, FAILS_EVERY_OTHER, NEVER_ANSWERS, Subject};

/// The variable that names the adapter to play.
pub(crate) const SUBJECT: &str = "META_SUBJECT";
const LEDGER: &str = "META_LEDGER";

/// Is the conformance test of this adapter.
pub(crate) fn play(subject: &str) -> ExitCode {
    let does = match subject {
        "honest" => Does::Nothing,
        "fails-every-other" => Does::Breaks(&FAILS_EVERY_OTHER),
        "never-answers" => Does::Breaks(&NEVER_ANSWERS),
        "hears-nothing" => {
            // As an adapter might that shows its own log.
            let quiet = tracing_subscriber::fmt()
                .with_writer(std::io::sink)
                .finish();
            tracing::subscriber::set_global_default(quiet).unwrap();
            Does::Nothing
        }
        "cannot-run" => Does::CannotRun,
        "has-no-modes" => Does::HasNoModes,
        other => unreachable!("no subject {other}"),
    };
    conformance::main(Subject::new(does), std::env::var(LEDGER).unwrap())
}

/// How a run ended.
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    /// What it printed, on both streams.
    pub(crate) text: String,
    /// The ledger afterwards.
    pub(crate) ledger: String,
}

/// Runs these cases of a subject with this text as its ledger.
pub(crate) fn run(
    subject: &str,
    ledger: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Ended {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Ordering::SeqCst);
    let id = std::process::id();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("meta-{id}-{number}.toml"));
    std::fs::write(&path, ledger).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["UPDATE_LEDGER", "CONFORMANCE_SEED", "REQUIRE_LIVE"] {
        command.env_remove(name);
    }
    let output = command
        .args(arguments)
        .env(SUBJECT, subject)
        .env(LEDGER, &path)
        .env("NO_COLOR", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let ledger = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    let text = [output.stdout, output.stderr].concat();
    Ended {
        is_success: output.status.success(),
        text: String::from_utf8(text).unwrap(),
        ledger,
    }
}
