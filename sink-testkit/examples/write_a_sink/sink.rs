use std::io::{ErrorKind, Write as _};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, Guarantees, HostServices, InFlight, Message, Outcome,
    Problems, Receipt, Sink, SinkError, SinkPlugin, read_options,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

/// The plugin of kind `journal`.
pub static PLUGIN: SinkPlugin =
    SinkPlugin::new("journal", "a file of messages, one a line", schema, build);

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Options {
    /// The file, required. It has to exist.
    path: Option<String>,
    /// The largest body in bytes inside a message. 1 to 1000000, default 65536.
    #[schemars(range(min = 1, max = 1_000_000))]
    inline_max_bytes: Option<u64>,
    /// How long one delivery may take, in milliseconds. 1 to 300000, default 5000.
    #[schemars(range(min = 1, max = 300_000))]
    timeout_ms: Option<u64>,
}

fn schema() -> Value {
    schemars::schema_for!(Options).to_value()
}

/// Reads all options, and reports everything that is wrong with them at once.
fn build(options: &Value, _: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let mut problems = Problems::new();
    let options: Options = read_options(options, &mut problems);
    let path = options.path.filter(|path| !path.trim().is_empty());
    if path.is_none() {
        problems.add("path", "is required");
    }
    let mut number = |key: &str, value: Option<u64>, range: RangeInclusive<u64>, default| {
        let value = value.unwrap_or(default);
        if !range.contains(&value) {
            let (least, most) = range.into_inner();
            problems.add(key, format!("expected a number from {least} to {most}"));
        }
        value
    };
    let inline = options.inline_max_bytes;
    let inline = number("inline_max_bytes", inline, 1..=1_000_000, 65_536);
    let timeout = number("timeout_ms", options.timeout_ms, 1..=300_000, 5_000);
    let inline = usize::try_from(inline).ok().and_then(NonZeroUsize::new);
    problems.into_result(Arc::new(JournalSink {
        path: path.unwrap_or_default().into(),
        inline_max_bytes: inline.unwrap_or(NonZeroUsize::MIN),
        timeout: Duration::from_millis(timeout),
        in_flight: InFlight::new(),
    }))
}

/// Appends each message to a file as a line of JSON.
#[derive(Debug)]
struct JournalSink {
    path: PathBuf,
    inline_max_bytes: NonZeroUsize,
    timeout: Duration,
    in_flight: InFlight,
}

#[async_trait]
impl Sink for JournalSink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _running = self.in_flight.enter()?;
        let deadline = Instant::now() + self.timeout;
        let deadline = ctx.deadline().map_or(deadline, |host| host.min(deadline));
        if deadline <= Instant::now() {
            let text = "the deadline was over before the delivery began";
            let error = SinkError::transient(Outcome::NotStored, "DeadlinePassed", text);
            return Err(error);
        }
        let message = Message::for_delivery(envelope, ctx, self.inline_max_bytes)?;
        let line = json!({ "attributes": message.attributes(), "body": message.encode() });
        let (path, line) = (self.path.clone(), format!("{line}\n"));
        let appended = tokio::task::spawn_blocking(move || append(&path, &line));
        match timeout_at(deadline, appended).await {
            Ok(Ok(Ok(()))) => Ok(Receipt::new()),
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::NotFound => {
                let path = self.path.display();
                let text = format!("there is no {path}: create it, then replay");
                Err(SinkError::config("FileMissing", text).with_source(error))
            }
            // What is half written may be there.
            Ok(Ok(Err(error))) => Err(unknown("WriteFailed").with_source(error)),
            Ok(Err(error)) => Err(unknown("WriteFailed").with_source(error)),
            Err(_) => Err(unknown("Timeout")),
        }
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.inline_max_bytes)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(true)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}

fn unknown(code: &'static str) -> SinkError {
    SinkError::transient(Outcome::Unknown, code, "the message may be in the file")
}

/// One write, so that lines of several sinks do not mix; `Ok` once it is on the disk.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}
