//! Clients of other languages, where `peers/install.sh` or somebody else installed them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::client::Kind;

/// How to start a client that is no Rust program; none for one that is.
pub(crate) fn command(
    kind: Kind,
    endpoint: &str,
    workload: &Path,
    per_request: usize,
) -> Result<Option<Command>, Failure> {
    let mut command = match kind {
        Kind::Boto3Batched | Kind::Boto3Single => {
            let mut command = python();
            command.arg(scripts().join("boto3_client.py"));
            command
        }
        Kind::NodeBatched | Kind::NodeSingle => {
            const SCRIPT: &str = "sqs_producer_client.mjs";
            // Node looks for a module's packages beside the module.
            std::fs::copy(scripts().join(SCRIPT), installed().join(SCRIPT))?;
            let mut command = Command::new("node");
            command.arg(installed().join(SCRIPT));
            command
        }
        _ => return Ok(None),
    };
    let per_request = match kind {
        Kind::Boto3Batched | Kind::NodeBatched => per_request,
        _ => 1,
    };
    command
        .arg(endpoint)
        .arg(workload)
        .arg(per_request.to_string());
    Ok(Some(command))
}

/// Whether the client's packages are there, or the client itself is in this build.
pub(crate) fn is_installed(kind: Kind) -> bool {
    let mut command = match kind {
        Kind::Boto3Batched | Kind::Boto3Single => {
            let mut command = python();
            command.args(["-c", "import boto3"]);
            command
        }
        Kind::NodeBatched | Kind::NodeSingle => {
            let mut command = Command::new("node");
            command.current_dir(installed()).args([
                "--input-type=module",
                "-e",
                "await import('sqs-producer'); await import('@aws-sdk/client-sqs')",
            ]);
            command
        }
        _ => return cfg!(feature = "peers") || !kind.is_rust_peer(),
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The Python of `peers/install.sh`, else the system's.
fn python() -> Command {
    let installed = installed().join("venv/bin/python3");
    Command::new(match installed.exists() {
        true => installed,
        false => PathBuf::from("python3"),
    })
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Where `peers/install.sh` puts packages.
fn installed() -> PathBuf {
    match std::env::var_os("BENCHMARK_PEERS") {
        Some(directory) => directory.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.integration/peers"),
    }
}
