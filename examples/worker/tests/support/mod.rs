//! A server, a configuration, and the program.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use dispatch_api::{ClaimRef, DeliveryContext, Envelope, Message};
use serde_json::{Value, json};
use sink_testkit::sqs::{Operation, PeekedMessage, SqsServer, Visibility};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";

/// A queue, and a folder that the program runs in.
pub(crate) struct Place {
    pub(crate) server: SqsServer,
    folder: TempDir,
    url: String,
    sent: std::sync::Mutex<Vec<String>>,
}

pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
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

pub(crate) fn envelope(body: &str) -> Envelope {
    let body = body.to_owned().into_bytes();
    Envelope::new(ID.parse().unwrap(), "github", 1_764_500_000_000, body).with_tenant("acme")
}

impl Place {
    pub(crate) async fn new() -> Self {
        let server = SqsServer::start().await.unwrap();
        let url = server.create_queue("hooks", []).await.unwrap();
        Self {
            server,
            folder: tempfile::tempdir().unwrap(),
            url,
            sent: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A shell script a delivery, and more of `[handler]`.
    pub(crate) fn configure(&self, script: &str, handler: &str) {
        self.configure_all(script, handler, "", "");
    }

    pub(crate) fn configure_with(&self, script: &str, handler: &str, more: &str) {
        self.configure_all(script, handler, "", more);
    }

    pub(crate) fn configure_source(&self, script: &str, source: &str) {
        self.configure_all(script, "", source, "");
    }

    pub(crate) fn configure_all(&self, script: &str, handler: &str, source: &str, more: &str) {
        let command = format!(
            "kind = \"command\"\ncommand = {}",
            json!(["sh", "-c", script])
        );
        self.write(&format!("{command}\n{handler}"), source, more);
    }

    pub(crate) fn configure_print(&self) {
        self.write("kind = \"print\"\n", "", "");
    }

    fn write(&self, handler: &str, source: &str, more: &str) {
        let text = format!(
            r#"
[source]
kind = "sqs"
queue = "{}"
region = "us-east-1"
access_key_id = "test"
secret_access_key = "test"
wait_ms = 1000
visibility_ms = 2000
{source}
[handler]
{handler}
{more}
"#,
            self.url
        );
        std::fs::write(self.path("worker.toml"), text).unwrap();
    }

    pub(crate) async fn send(&self, envelope: &Envelope) {
        self.deliver(envelope, &DeliveryContext::direct()).await;
    }

    pub(crate) async fn send_by_claim(&self, envelope: &Envelope, claim: ClaimRef) {
        let ctx = DeliveryContext::direct().with_claim(claim);
        self.deliver(envelope, &ctx).await;
    }

    async fn deliver(&self, envelope: &Envelope, ctx: &DeliveryContext) {
        let inline = match ctx.claim() {
            Some(_) => 1,
            None => 65_536,
        };
        let inline = std::num::NonZeroUsize::new(inline).unwrap();
        let message = Message::for_delivery(envelope, ctx, inline).unwrap();
        self.send_raw(&message.encode()).await;
    }

    pub(crate) async fn send_raw(&self, body: &str) {
        let request = json!({"QueueUrl": self.url, "MessageBody": body});
        let answer = self
            .server
            .call(Operation::SendMessage, request)
            .await
            .unwrap();
        let id = answer["MessageId"].as_str().unwrap().to_owned();
        self.sent.lock().unwrap().push(id);
    }

    /// The queue's ids of what was sent.
    pub(crate) fn sent_ids(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }

    pub(crate) fn stored(&self) -> Vec<PeekedMessage> {
        self.server.messages("hooks").unwrap()
    }

    pub(crate) fn in_flight(&self) -> usize {
        let stored = self.stored();
        let in_flight = stored
            .iter()
            .filter(|m| m.visibility == Visibility::InFlight);
        in_flight.count()
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command
            .args(["--config", "worker.toml"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG")
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        let running = self.start(arguments).wait_with_output();
        timeout(120 * SECOND, running)
            .await
            .unwrap()
            .unwrap()
            .into()
    }
}

/// Waits until it is so, and not for ever.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
