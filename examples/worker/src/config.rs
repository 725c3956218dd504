//! The configuration: TOML, read raw, checked whole, then typed.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{ClaimCheck, HostServices, Problems, Registration, read_options, unknown};
use dispatcher::{DirectoryClaimCheck, Document};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use sink_sqs::SqsQueue;

const MOST_AT_ONCE: usize = 1_024;
const MOST_MILLIS: u64 = 43_200_000;

/// The configuration as it is written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawConfig {
    /// The options of the queue, and what is taken out of them here.
    source: Map<String, Value>,
    handler: RawHandler,
    claim_check: Option<RawClaimCheck>,
}

/// What stands in `[source]` beside the queue's own options.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawSource {
    kind: Option<String>,
    max_attempts: Option<u32>,
    dead_letter: Option<String>,
    concurrency: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawHandler {
    kind: Option<String>,
    command: Option<Vec<String>>,
    timeout_ms: Option<u64>,
    dedupe: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawClaimCheck {
    url: Option<String>,
}

/// What is done with a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerConfig {
    /// A program and its arguments, run once a delivery.
    Command(Vec<String>),
    /// The hook is printed.
    Print,
}

/// A configuration that was checked.
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// The queue, with its redrive policy.
    pub queue: Registration<SqsQueue>,
    /// How long a receive waits.
    pub wait: Duration,
    /// The most deliveries handled at once. Default 8.
    pub concurrency: NonZeroUsize,
    /// What is done with a hook.
    pub handler: HandlerConfig,
    /// How long that may take. Default 60 s.
    pub timeout: Duration,
    /// Whether a hook that was handled is not handled again when it comes again.
    pub dedupe: bool,
    /// Where bodies are that did not travel inside their message.
    pub claims: Option<Arc<dyn ClaimCheck>>,
}

impl Config {
    /// Reads and checks a configuration file. No network is needed.
    ///
    /// # Errors
    ///
    /// Everything wrong with it, each with the path of its key.
    pub fn load(path: &Path, services: &HostServices) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let mut problems = Problems::new();
            problems.add("", format!("cannot read {}: {error}", path.display()));
            problems
        })?;
        Self::parse(&text, services)
    }

    /// Checks a configuration.
    ///
    /// # Errors
    ///
    /// Everything wrong with it, each with the path of its key.
    pub fn parse(text: &str, services: &HostServices) -> Result<Self, Problems> {
        let document = Document::parse(text, services)?;
        let mut problems = document.problems;
        let mut raw: RawConfig = read_options(&document.value, &mut problems);
        let source = own_options(&mut raw.source, &mut problems);
        let queue = queue(&raw.source, &source, services, &mut problems);
        let handler = raw.handler.check(&mut problems);
        let timeout = raw.handler.timeout_ms.unwrap_or(60_000);
        if !(1..=MOST_MILLIS).contains(&timeout) {
            problems.add("handler.timeout_ms", format!("expected 1 to {MOST_MILLIS}"));
        }
        let concurrency = source.concurrency.unwrap_or(8);
        let concurrency = NonZeroUsize::new(concurrency).filter(|n| n.get() <= MOST_AT_ONCE);
        if concurrency.is_none() {
            let text = format!("expected 1 to {MOST_AT_ONCE}");
            problems.add("source.concurrency", text);
        }
        let claims = raw.claim_check.as_ref().and_then(|raw| {
            let url = raw.url.as_deref().unwrap_or_default();
            let store = DirectoryClaimCheck::at_url(url, services);
            if store.is_none() {
                problems.add(
                    "claim_check.url",
                    "expected the URL of a folder, such as file:///var/lib/dispatcher/claims",
                );
            }
            store.map(|store| Arc::new(store) as Arc<dyn ClaimCheck>)
        });
        for path in document.unset {
            problems.keep_first_at(&path);
        }
        // What is missing here is among the problems.
        let (Some(queue), Some(handler), Some(concurrency)) = (queue, handler, concurrency) else {
            return Err(problems);
        };
        let wait = queue.wait();
        let mut registration = Registration::new(queue);
        if let Some(attempts) = source.max_attempts {
            registration = registration.max_attempts(attempts);
        }
        if let Some(name) = source.dead_letter {
            registration = registration.dead_letter(name);
        }
        problems.into_result(Self {
            queue: registration,
            wait,
            concurrency,
            handler,
            timeout: Duration::from_millis(timeout),
            dedupe: raw.handler.dedupe.unwrap_or(false),
            claims,
        })
    }
}

/// Takes out of the options of the queue what is not the queue's.
fn own_options(source: &mut Map<String, Value>, problems: &mut Problems) -> RawSource {
    let mut own = Map::new();
    for key in ["kind", "max_attempts", "dead_letter", "concurrency"] {
        if let Some(value) = source.remove(key) {
            own.insert(key.to_owned(), value);
        }
    }
    let mut found = Problems::new();
    let own = read_options(&Value::Object(own), &mut found);
    problems.add_all_under("source", found);
    own
}

fn queue(
    options: &Map<String, Value>,
    own: &RawSource,
    services: &HostServices,
    problems: &mut Problems,
) -> Option<SqsQueue> {
    match own.kind.as_deref() {
        Some("sqs") => {}
        Some(other) => problems.add("source.kind", unknown("kind", other, ["sqs"])),
        None => problems.add("source.kind", "missing: set it to sqs"),
    }
    match SqsQueue::from_options(&Value::Object(options.clone()), services) {
        Ok(queue) => Some(queue),
        Err(found) => {
            problems.add_all_under("source", found);
            None
        }
    }
}

impl RawHandler {
    fn check(&self, problems: &mut Problems) -> Option<HandlerConfig> {
        const KINDS: [&str; 2] = ["command", "print"];
        let handler = match (self.kind.as_deref(), &self.command) {
            (Some("command"), Some(command)) if command.iter().any(|part| !part.is_empty()) => {
                return Some(HandlerConfig::Command(command.clone()));
            }
            (Some("command"), _) => Err((
                "handler.command",
                "missing: a list of the program and its arguments, such as [\"./handle.sh\"]"
                    .to_owned(),
            )),
            (Some("print"), None) => Ok(HandlerConfig::Print),
            (Some("print"), Some(_)) => Err((
                "handler.command",
                "belongs to kind command, and kind is print: keep one".to_owned(),
            )),
            (Some(other), _) => Err(("handler.kind", unknown("kind", other, KINDS))),
            (None, _) => Err((
                "handler.kind",
                "missing: set it to command or print".to_owned(),
            )),
        };
        handler
            .map_err(|(path, text)| problems.add(path, text))
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let services = HostServices::new().with_environment(|_| None);
        match Config::parse(text, &services) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_documented_example_is_accepted() {
        let readme = include_str!("../README.md");
        let (_, rest) = readme.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let config = Config::parse(example, &HostServices::new()).unwrap();
        assert_eq!(config.queue.plan().max_attempts, Some(5));
        assert_eq!(
            config.queue.plan().dead_letter.as_deref(),
            Some("hooks-dead")
        );
        assert_eq!(config.concurrency.get(), 8);
        assert_eq!(config.timeout, Duration::from_secs(60));
        assert_eq!(
            config.handler,
            HandlerConfig::Command(vec!["./handle.sh".to_owned()])
        );
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let found = problems(
            r#"
            [source]
            kind = "sqz"
            queue = "${QUEUE}"
            region = "us-east-1"
            wait_ms = 30000
            concurrency = 0
            visibilty_ms = 1000
            [handler]
            kind = "command"
            timeout_ms = 0
            [claim_check]
            url = "claims"
            "#,
        );
        for start in [
            "source.kind: ",
            "source.queue: the environment variable QUEUE is not set",
            "source.wait_ms: expected 0 to 20000",
            "source.concurrency: expected 1 to 1024",
            "source.visibilty_ms: ",
            "handler.command: missing",
            "handler.timeout_ms: expected 1 to 43200000",
            "claim_check.url: expected",
        ] {
            assert!(
                found.iter().any(|problem| problem.starts_with(start)),
                "{start} {found:?}"
            );
        }
    }

    #[test]
    fn nothing_at_all_names_what_is_needed() {
        let found = problems("");
        for start in [
            "source.kind: missing",
            "source.queue: missing",
            "handler.kind: missing",
        ] {
            assert!(
                found.iter().any(|problem| problem.starts_with(start)),
                "{start} {found:?}"
            );
        }
    }
}
