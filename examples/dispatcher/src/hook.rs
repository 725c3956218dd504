//! A hook as a line of JSON, both ways.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatch_api::{
    Envelope, EnvelopeId, HeaderField, HostServices, Problems, SinkError, is_header_name,
    read_options, shown,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delivery::Verdict;
use crate::notices::reason;

/// The most headers of a hook: more than any server takes.
const MAX_HEADERS: usize = 1_000;

/// A hook as it is written. Only `source_id` and one of `body` and `body_base64` are
/// required.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct RawHook {
    source_id: Option<String>,
    tenant_id: Option<String>,
    id: Option<String>,
    received_at: Option<i64>,
    method: Option<String>,
    path: Option<String>,
    headers: Option<Vec<(String, String)>>,
    content_type: Option<String>,
    dedupe_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<RawDeadLetter>,
}

/// Why a hook stands in a file of dead letters.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct RawDeadLetter {
    sink: Option<String>,
    class: Option<String>,
    code: Option<String>,
    reason: Option<String>,
    outcome: Option<String>,
    attempts: Option<u32>,
}

/// A hook of the input.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hook {
    /// What is delivered.
    pub envelope: Envelope,
    /// A dead letter goes again to the sink that refused it, not to those that took
    /// it.
    pub only_sink: Option<String>,
}

impl Hook {
    /// Reads one line. An absent `id` is made now, an absent `received_at` is now.
    ///
    /// # Errors
    ///
    /// Everything that keeps the line from being a hook.
    pub fn parse(line: &[u8], services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => {
                problems.add("", format!("not JSON: {}", place_of(&error)));
                return Err(problems);
            }
        };
        let raw: RawHook = read_options(&value, &mut problems);
        let source_id = raw.source_id.filter(|source| !source.is_empty());
        if source_id.is_none() && !mentions(&problems, "source_id") {
            problems.add("source_id", "is missing");
        }
        let id = match raw.id.as_deref().map(str::parse::<EnvelopeId>) {
            None => services.new_envelope_id(),
            Some(Ok(id)) => id,
            Some(Err(error)) => {
                problems.add("id", error.to_string());
                services.new_envelope_id()
            }
        };
        let body = match (raw.body, raw.body_base64) {
            (Some(body), None) => body.into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_else(|_| {
                problems.add("body_base64", "expected base64 with padding");
                Vec::new()
            }),
            (Some(_), Some(_)) => {
                problems.add("", "has both `body` and `body_base64`: keep one");
                Vec::new()
            }
            (None, None) => {
                if !mentions(&problems, "body") && !mentions(&problems, "body_base64") {
                    problems.add("", "needs `body` (text) or `body_base64`");
                }
                Vec::new()
            }
        };
        let received_at = raw
            .received_at
            .unwrap_or_else(|| i64::try_from(services.unix_ms()).unwrap_or(i64::MAX));
        let mut envelope = Envelope::new(id, source_id.unwrap_or_default(), received_at, body)
            .with_request(
                raw.method.unwrap_or_else(|| "POST".to_owned()),
                raw.path.unwrap_or_else(|| "/".to_owned()),
            );
        if let Some(tenant) = raw.tenant_id {
            envelope = envelope.with_tenant(tenant);
        }
        problems.explain("headers", "expected a list of [name, value] pairs of text");
        if let Some(headers) = raw.headers {
            check_headers(&headers, &mut problems);
            let headers = headers.into_iter();
            envelope =
                envelope.with_headers(headers.map(|(name, value)| HeaderField::new(name, value)));
        }
        if let Some(content_type) = raw.content_type {
            envelope = envelope.with_content_type(content_type);
        }
        if let Some(key) = raw.dedupe_key {
            envelope = envelope.with_dedupe_key(key);
        }
        problems.into_result(Self {
            envelope,
            only_sink: raw
                .dead_letter
                .and_then(|dead| dead.sink)
                .filter(|sink| !sink.is_empty()),
        })
    }
}

/// What a server would not have taken cannot be forwarded, and is not dropped in silence.
fn check_headers(headers: &[(String, String)], problems: &mut Problems) {
    if headers.len() > MAX_HEADERS {
        problems.add(
            "headers",
            format!("expected {MAX_HEADERS} headers at the most"),
        );
    }
    if let Some((name, _)) = headers.iter().find(|(name, _)| !is_header_name(name)) {
        problems.add(
            "headers",
            format!(
                "`{}` is no header name: letters, digits and !#$%&'*+-.^_`|~ are accepted",
                shown(name, 64)
            ),
        );
    }
}

/// A hook that was not delivered, as a line that is a hook again.
///
/// It names the sink that did not take it, so that no other gets it twice; none where no
/// route leads to that sink any more, so that the routes decide again.
pub(crate) fn dead_letter_line(
    envelope: &Envelope,
    verdict: &Verdict,
    error: &SinkError,
) -> String {
    let sink = verdict
        .sink
        .clone()
        .filter(|_| error.code() != "RouteRemoved");
    let (body, body_base64) = match std::str::from_utf8(envelope.body()) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(envelope.body()))),
    };
    let headers = envelope.headers().iter();
    let raw = RawHook {
        source_id: Some(envelope.source_id().to_owned()),
        tenant_id: envelope.tenant_id().map(str::to_owned),
        id: Some(envelope.id().to_string()),
        received_at: Some(envelope.received_at()),
        method: Some(envelope.method().to_owned()),
        path: Some(envelope.path().to_owned()),
        headers: Some(
            headers
                .map(|header| (header.name().to_owned(), header.value().to_owned()))
                .collect(),
        ),
        content_type: envelope.content_type().map(str::to_owned),
        dedupe_key: envelope.dedupe_key().map(str::to_owned),
        body,
        body_base64,
        dead_letter: Some(RawDeadLetter {
            sink,
            class: Some(error.class().to_string()),
            code: Some(error.code().to_owned()),
            reason: Some(reason(error)),
            outcome: Some(verdict.outcome.to_string()),
            attempts: Some(verdict.attempts),
        }),
    };
    serde_json::to_string(&raw).expect("strings and numbers under string keys are JSON")
}

fn mentions(problems: &Problems, path: &str) -> bool {
    problems.iter().any(|problem| problem.path == path)
}

/// What `serde_json` found and where, without the text around it.
fn place_of(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let what = match error.classify() {
        Category::Eof => "the line ends too early",
        _ => "a fault",
    };
    format!("{what} at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::Outcome;

    fn parse(line: &str) -> Result<Hook, String> {
        Hook::parse(line.as_bytes(), &HostServices::new()).map_err(|problems| problems.to_string())
    }

    #[test]
    fn source_and_body_are_enough() {
        let hook = parse(r#"{"source_id":"github","body":"{}"}"#).unwrap();
        assert_eq!(hook.envelope.source_id(), "github");
        assert_eq!(&**hook.envelope.body(), b"{}");
        assert_eq!(hook.envelope.tenant_id(), None);
        assert!(hook.envelope.received_at() > 1_700_000_000_000);
    }

    #[test]
    fn every_field_is_carried_over() {
        let hook = parse(
            r#"{"source_id":"github","tenant_id":"acme","id":"0199f3a0-4c11-7b2e-9d10-6f2a7c55e901",
                "received_at":1764500000000,"method":"PUT","path":"/h","headers":[["A","1"],["A","2"]],
                "content_type":"text/plain","dedupe_key":"d1","body_base64":"/w=="}"#,
        )
        .unwrap()
        .envelope;
        assert_eq!(hook.tenant_id(), Some("acme"));
        assert_eq!(
            hook.id().to_string(),
            "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901"
        );
        assert_eq!(hook.received_at(), 1_764_500_000_000);
        assert_eq!((hook.method(), hook.path()), ("PUT", "/h"));
        let headers = hook.headers().iter().map(|header| header.value());
        assert_eq!(headers.collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(hook.content_type(), Some("text/plain"));
        assert_eq!(hook.dedupe_key(), Some("d1"));
        assert_eq!(&**hook.body(), b"\xff");
    }

    #[test]
    fn what_is_no_hook_says_all_that_is_wrong() {
        assert_eq!(
            parse("{\"source_id\":").unwrap_err(),
            "not JSON: the line ends too early at column 13"
        );
        assert_eq!(
            parse("{}").unwrap_err(),
            "source_id: is missing\nneeds `body` (text) or `body_base64`"
        );
        assert_eq!(
            parse(r#"{"source_id":"s","body":"a","body_base64":"YQ=="}"#).unwrap_err(),
            "has both `body` and `body_base64`: keep one"
        );
        assert_eq!(
            parse(r#"{"source_id":7,"body":"a","id":"x"}"#).unwrap_err(),
            "source_id: expected a string\nid: an envelope id is a UUID such as \
             0199f3a0-4c11-7b2e-9d10-6f2a7c55e901"
        );
    }

    #[test]
    fn headers_that_no_server_would_take_are_refused_with_the_hook() {
        let hook = |headers: &str| {
            parse(&format!(
                r#"{{"source_id":"s","body":"a","headers":{headers}}}"#
            ))
        };
        for name in ["authorization ", " cookie", "x-api-key:", "", "a b"] {
            let problem = hook(&format!(r#"[["{name}","secret"]]"#)).unwrap_err();
            assert!(problem.contains("is no header name"), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
        let many = vec![r#"["x","v"]"#; 1_001].join(",");
        assert_eq!(
            hook(&format!("[{many}]")).unwrap_err(),
            "headers: expected 1000 headers at the most"
        );
        for wrong in [r#"{"a":"b"}"#, r#"[["a"]]"#, "7"] {
            assert_eq!(
                hook(wrong).unwrap_err(),
                "headers: expected a list of [name, value] pairs of text"
            );
        }
    }

    #[test]
    fn a_misspelt_tenant_is_refused_rather_than_sent_to_nobodys_sink() {
        let problem = parse(r#"{"source_id":"s","body":"a","tenat_id":"acme"}"#).unwrap_err();
        assert!(
            problem.starts_with("tenat_id: unknown key `tenat_id`, did you mean `tenant_id`?"),
            "{problem}"
        );
    }

    #[test]
    fn a_dead_letter_is_the_same_hook_again_for_the_sink_that_refused_it() {
        for body in [&b"text"[..], b"\xff\x00"] {
            let envelope = Envelope::new(
                HostServices::new().new_envelope_id(),
                "github",
                5,
                body.to_vec(),
            )
            .with_tenant("acme")
            .with_headers([HeaderField::new("A", "1")])
            .with_content_type("text/plain")
            .with_dedupe_key("d1");
            let error = SinkError::transient(Outcome::Unknown, "Timeout", "no answer");
            let verdict = Verdict {
                attempts: 3,
                ..Verdict::refused(Some("main".to_owned()), error.clone())
            };
            let line = dead_letter_line(&envelope, &verdict, &error);
            let hook = parse(&line).unwrap();
            assert_eq!(hook.envelope, envelope);
            assert_eq!(hook.only_sink.as_deref(), Some("main"));
            let dead: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                dead["dead_letter"],
                serde_json::json!({"sink": "main", "class": "transient", "code": "Timeout",
                    "reason": "no answer", "outcome": "unknown", "attempts": 3})
            );
        }
    }
}
