//! Clients of other languages, where they are installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::client::Kind;

/// How to start a client that is no Rust program; none for one that is.
pub(crate) fn command(
    kind: Kind,
    addr: SocketAddr,
    workload: &Path,
    per_request: usize,
) -> Option<Command> {
    let (program, script) = match kind {
        Kind::Boto3Batched | Kind::Boto3Single => ("python3", "boto3_client.py"),
        Kind::NodeBatched | Kind::NodeSingle => ("node", "sqs_producer_client.mjs"),
        _ => return None,
    };
    let per_request = match kind {
        Kind::Boto3Batched | Kind::NodeBatched => per_request,
        _ => 1,
    };
    let mut command = Command::new(program);
    command
        .current_dir(directory())
        .arg(script)
        .arg(format!("http://{addr}"))
        .arg(workload)
        .arg(per_request.to_string());
    Some(command)
}

/// Whether the client's packages are there.
pub(crate) fn is_installed(kind: Kind) -> bool {
    let mut command = match kind {
        Kind::Boto3Batched | Kind::Boto3Single => {
            let mut command = Command::new("python3");
            command.args(["-c", "import boto3"]);
            command
        }
        Kind::NodeBatched | Kind::NodeSingle => {
            let mut command = Command::new("node");
            command.args([
                "--input-type=module",
                "-e",
                "await import('sqs-producer'); await import('@aws-sdk/client-sqs')",
            ]);
            command
        }
        _ => return true,
    };
    command
        .current_dir(directory())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Where the scripts are, and where `npm install` puts what one of them needs.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}
