//! From options to the configuration of a source, with every problem at once.

use std::time::Duration;

use dispatch_api::Problems;

use super::raw::RawSource;
use crate::config::{Check, LinkConfig, present};
use crate::subject::MAX_SUBJECT_BYTES;

/// A complete and consistent configuration of a [`NatsSource`](super::NatsSource).
#[derive(Clone, Debug)]
pub(crate) struct SourceConfig {
    pub(crate) stream: String,
    pub(crate) durable: String,
    pub(crate) filter_subject: Option<String>,
    pub(crate) ack_wait: Option<Duration>,
    pub(crate) max_ack_pending: Option<u64>,
    pub(crate) wait: Duration,
    pub(crate) timeout: Duration,
    pub(crate) link: LinkConfig,
}

/// Checks everything that can be checked without a network.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(raw: RawSource, problems: Problems) -> Result<SourceConfig, Problems> {
    let mut check = Check { problems };
    let servers = check.servers(raw.servers);
    let stream = name(&mut check, "stream", raw.stream);
    let durable = name(&mut check, "durable", raw.durable);
    let filter_subject = present(raw.filter_subject).map(|subject| subject.trim().to_owned());
    if let Some(problem) = filter_subject.as_deref().and_then(subject_problem) {
        check.problems.add("filter_subject", problem);
    }
    let ack_wait = raw.ack_wait_ms.map(|millis| {
        let range = 100..=86_400_000;
        Duration::from_millis(check.number("ack_wait_ms", Some(millis), 30_000, range))
    });
    let max_ack_pending = raw.max_ack_pending.map(|messages| {
        let range = 1..=1_000_000;
        check.number("max_ack_pending", Some(messages), 1_000, range)
    });
    let wait = check.number("wait_ms", raw.wait_ms, 20_000, 0..=60_000);
    let (timeout, connect_timeout) = check.timeouts(raw.timeout_ms, raw.connect_timeout_ms);
    let credentials = check.credentials(raw.token, raw.user, raw.password, raw.credentials_file);
    let root_certificates = check.root_certificates(
        raw.tls
            .and_then(|tls| tls.root_certificates)
            .unwrap_or_default(),
    );
    // What is missing here is among the problems.
    let (Some(stream), Some(durable), Some(credentials)) = (stream, durable, credentials) else {
        return Err(check.problems);
    };
    check.problems.into_result(SourceConfig {
        stream,
        durable,
        filter_subject,
        ack_wait,
        max_ack_pending,
        wait: Duration::from_millis(wait),
        timeout,
        link: LinkConfig {
            servers,
            connect_timeout,
            credentials,
            root_certificates,
        },
    })
}

/// A name is a token of the subjects by which the server is asked.
fn name(check: &mut Check, key: &'static str, value: Option<String>) -> Option<String> {
    let Some(value) = present(value) else {
        check
            .problems
            .add(key, format!("missing: set the name of the {key}"));
        return None;
    };
    let name = value.trim();
    let is_good = |c: char| c.is_ascii_graphic() && !matches!(c, '.' | '*' | '>' | '/' | '\\');
    if name.len() > 255 || !name.chars().all(is_good) {
        check.problems.add(
            key,
            "expected 1 to 255 visible ASCII characters without `.`, `*`, `>`, `/` and `\\`",
        );
        return None;
    }
    Some(name.to_owned())
}

/// What is wrong with a subject that may hold wildcards.
pub(super) fn subject_problem(subject: &str) -> Option<&'static str> {
    let mut tokens = subject.split('.').peekable();
    if subject.len() > MAX_SUBJECT_BYTES {
        return Some("is too long for a server: expected at most 2048 bytes");
    }
    if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("holds white space or a control character");
    }
    while let Some(token) = tokens.next() {
        if token.is_empty() {
            return Some("holds an empty token: expected tokens joined by single dots");
        }
        if token == ">" && tokens.peek().is_some() {
            return Some("holds `>` before its end: expected it as the last token");
        }
    }
    None
}

/// Whether `filter`, which may hold wildcards, takes `subject`.
pub(super) fn takes(filter: &str, subject: &str) -> bool {
    let mut filter = filter.split('.');
    let mut subject = subject.split('.');
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::read_options;
    use serde_json::{Value, json};

    fn read(options: &Value) -> Result<SourceConfig, Vec<String>> {
        let mut problems = Problems::new();
        let raw = read_options(options, &mut problems);
        validate(raw, problems)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_stream_and_durable_are_enough_and_everything_else_has_its_default() {
        let options = json!({"servers": ["127.0.0.1"], "stream": "HOOKS", "durable": "worker"});
        let config = read(&options).unwrap();
        assert_eq!(config.wait, Duration::from_secs(20));
        assert_eq!(config.timeout, Duration::from_secs(5));
        assert_eq!(config.ack_wait, None);
        assert_eq!(config.max_ack_pending, None);
        assert_eq!(config.filter_subject, None);
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_key() {
        let problems = read(&json!({
            "stream": "HO.OKS", "filter_subject": "hooks..a", "ack_wait_ms": 99,
            "max_ack_pending": 0, "wait_ms": 60_001, "timeout_ms": 0, "user": "u", "durabl": "w",
        }))
        .unwrap_err();
        let keys: Vec<_> = problems
            .iter()
            .map(|problem| problem.split(": ").next().unwrap())
            .collect();
        assert_eq!(
            keys,
            [
                "durabl",
                "servers",
                "stream",
                "durable",
                "filter_subject",
                "ack_wait_ms",
                "max_ack_pending",
                "wait_ms",
                "timeout_ms",
                "password",
            ],
            "{problems:#?}"
        );
    }

    #[test]
    fn a_filter_takes_what_its_wildcards_stand_for() {
        for (filter, subject, expected) in [
            ("hooks.acme", "hooks.acme", true),
            ("hooks.*", "hooks.acme", true),
            ("hooks.>", "hooks.acme.x", true),
            (">", "hooks", true),
            ("hooks.*", "hooks.acme.x", false),
            ("hooks.>", "hooks", false),
            ("hooks.acme", "hooks", false),
            ("hooks", "hooks.acme", false),
        ] {
            assert_eq!(takes(filter, subject), expected, "{filter} {subject}");
        }
    }

    #[test]
    fn a_subject_is_tokens_joined_by_dots() {
        for subject in ["hooks", "hooks.*.a", "hooks.>"] {
            assert_eq!(subject_problem(subject), None, "{subject}");
        }
        for subject in ["", ".", "a.", "a..b", "a.>.b", "a b", "a\n"] {
            assert!(subject_problem(subject).is_some(), "{subject:?}");
        }
    }
}
