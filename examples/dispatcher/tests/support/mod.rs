//! Runs the program as a user does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use sink_testkit::sqs::SqsServer;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// A secret that must not come out anywhere.
pub(crate) const CANARY: &str = "canary-secret-key";

/// A folder with a configuration and hooks, and what a run said.
pub(crate) struct Workplace {
    folder: TempDir,
}

pub(crate) struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("standard output holds JSON only"))
            .collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().expect("it was not killed"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Workplace {
    pub(crate) fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("dispatcher.toml"), config).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.current_dir(self.folder.path());
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().await.unwrap().into()
    }

    /// `send` with these hooks on standard input.
    pub(crate) async fn send(&self, hooks: &str, more: &[&str]) -> Ran {
        let mut child = self.start_send(hooks, more).await;
        drop(child.stdin.take());
        child.wait_with_output().await.unwrap().into()
    }

    /// `send` with these hooks, and standard input kept open.
    pub(crate) async fn start_send(&self, hooks: &str, more: &[&str]) -> Child {
        let mut child = self
            .command(&["send", "--config", "dispatcher.toml", "--json"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(hooks.as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
        child
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatcher"));
    command
        .args(arguments)
        .kill_on_drop(true)
        .stdin(Stdio::null());
    for variable in [
        "RUST_LOG",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        command.env_remove(variable);
    }
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Ran {
    command(arguments).output().await.unwrap().into()
}

/// A configuration that sends the hooks of `github` to one queue.
pub(crate) fn one_queue(queue_url: &str) -> String {
    format!(
        r#"
[dispatch]
retry = {{ base_ms = 1, max_ms = 20, max_attempts = 4 }}

[sinks.main]
{}
[sources.github]
sinks = ["main"]
"#,
        sqs_sink(queue_url)
    )
}

/// The options of a sink at the test server.
pub(crate) fn sqs_sink(queue_url: &str) -> String {
    format!(
        r#"kind = "sqs"
queue_url = "{queue_url}"
region = "us-east-1"
access_key_id = "test"
secret_access_key = "test"
"#
    )
}

pub(crate) async fn server_with(queues: &[&str]) -> SqsServer {
    let server = SqsServer::start().await.unwrap();
    for queue in queues {
        let fifo = queue.ends_with(".fifo").then_some(("FifoQueue", "true"));
        server.create_queue(queue, fifo).await.unwrap();
    }
    server
}

/// `count` hooks of one tenant, their bodies numbered from 0.
pub(crate) fn hooks(tenant: &str, count: usize) -> String {
    (0..count)
        .map(|number| {
            format!(
                "{{\"source_id\":\"github\",\"tenant_id\":\"{tenant}\",\"body\":\"hook {number}\"}}\n"
            )
        })
        .collect()
}

/// The bodies of the hooks that a queue holds, in the queue's order.
pub(crate) fn stored_bodies(server: &SqsServer, queue: &str) -> Vec<String> {
    let messages = server.messages(queue).unwrap();
    messages
        .iter()
        .map(|stored| sqs_body(&stored.body))
        .collect()
}

/// The body of the hook that a message holds, or its claim.
pub(crate) fn sqs_body(message: &str) -> String {
    match dispatch_api::Message::decode(message.as_bytes())
        .unwrap()
        .content
    {
        dispatch_api::Content::Inline(body) => String::from_utf8(body.to_vec()).unwrap(),
        dispatch_api::Content::Claim(claim) => claim.to_string(),
    }
}
