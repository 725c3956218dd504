//! The suite's faults, as a proxy plays them at messages and their replies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use sink_testkit::conformance::{
    Destination, Fault, FaultScript, Garbage, Rule, SeenRequest, StoredMessage,
};

use crate::live::proxy::{AtReply, Play, Reply, Watch};
use crate::live::wire::Frame;

/// What a stream refuses with: the sink's name of it, code, number and description.
pub(crate) const REFUSALS: &[(&str, u16, u32, &str)] = &[
    (
        "MessageTooLarge",
        400,
        10054,
        "message size exceeds maximum allowed",
    ),
    (
        "HeadersTooLarge",
        400,
        10097,
        "header size exceeds maximum allowed of 64k",
    ),
    ("NoStream", 404, 10059, "stream not found"),
    (
        "JetStreamNotEnabled",
        503,
        10039,
        "jetstream not enabled for account",
    ),
    (
        "StreamSealed",
        400,
        10109,
        "invalid operation on sealed stream",
    ),
    ("StreamFull", 503, 10077, "maximum messages exceeded"),
    (
        "InsufficientResources",
        503,
        10023,
        "insufficient resources",
    ),
    (
        "ResourcesExceeded",
        400,
        10002,
        "resource limits exceeded for account",
    ),
    ("TooManyRequests", 429, 10167, "too many requests"),
    (
        "JetStreamUnavailable",
        503,
        10008,
        "jetstream system temporarily unavailable",
    ),
    ("StreamOffline", 500, 10118, "stream is offline"),
    ("StoreFailed", 503, 10077, "error opening msg block file"),
    (
        "DuplicateInProcess",
        409,
        10158,
        "duplicate message id is in process",
    ),
    ("StreamError", 400, 10071, "wrong last sequence: 1"),
];

/// The rules, and what came by.
#[derive(Default)]
pub(crate) struct Script {
    rules: Mutex<Vec<Known>>,
    seen: Mutex<Vec<(String, SeenRequest)>>,
    played: AtomicU64,
}

struct Known {
    destination: String,
    after: u64,
    times: Option<u64>,
    fault: Arc<Fault>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a subject belongs to a destination: its own, or one of its template.
fn is_of(subject: &str, destination: &str) -> bool {
    let rest = subject.strip_prefix(destination);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Watch for Script {
    /// It is recorded, and a rule may want something of it.
    fn published(&self, frame: &Frame, user: Option<&str>) -> Play {
        // Messages of the sink have headers, and nothing else that it sends has.
        if frame.verb() != "HPUB" {
            return Play::Pass;
        }
        let subject = frame.word(1);
        lock(&self.seen).push((subject.to_owned(), seen(frame, user)));
        let mut rules = lock(&self.rules);
        let due = rules.iter_mut().position(|rule| {
            if !is_of(subject, &rule.destination) {
                return false;
            }
            let is_due = rule.after == 0;
            rule.after = rule.after.saturating_sub(1);
            is_due
        });
        let Some(index) = due else {
            return Play::Pass;
        };
        let fault = Arc::clone(&rules[index].fault);
        if let Some(times) = &mut rules[index].times {
            *times -= 1;
            if *times == 0 {
                rules.remove(index);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        play(&fault)
    }
}

impl Script {
    /// Whose messages of these envelopes were the first.
    pub(crate) fn sender(&self, envelope: &str) -> Option<String> {
        let seen = lock(&self.seen);
        let of_it = seen
            .iter()
            .find(|(_, request)| request.envelopes.iter().any(|id| id == envelope));
        of_it.and_then(|(_, request)| request.signed_by.clone())
    }
}

fn play(fault: &Fault) -> Play {
    let refusal = |code: u16, number: u32, text: &str| {
        let error = json!({ "code": code, "err_code": number, "description": text });
        let answer = json!({ "error": error, "stream": "any", "seq": 0 });
        Play::Answer(Reply::Payload(answer.to_string().into_bytes()))
    };
    let row = |name: &str| {
        let known = REFUSALS.iter().find(|(known, ..)| *known == name);
        let (_, code, number, text) = known.expect("the suite plays rows of the profile");
        refusal(*code, *number, text)
    };
    match fault {
        Fault::HoldRequest(gate) => Play::HoldRequest(Arc::clone(gate)),
        Fault::HoldReply(gate) => Play::AtReply(AtReply::Hold(Arc::clone(gate))),
        Fault::LoseReply => Play::AtReply(AtReply::Lose),
        Fault::Garbage(garbage) => {
            let garbage = *garbage;
            Play::AtReply(AtReply::Replace(Box::new(move |reply| {
                garbled(garbage, reply)
            })))
        }
        Fault::LoseRequest => Play::Close,
        Fault::Silence => Play::Swallow,
        Fault::Row(name) => row(name),
        Fault::UnknownError(code) => refusal(*code, 99_999, "never seen before"),
        Fault::Throttle(None) => row("TooManyRequests"),
        Fault::ForeignError(_, body) => Play::Answer(Reply::Payload(body.clone().into_bytes())),
        other => panic!("the fixture does not play {other:?}"),
    }
}

/// What stands in the place of a stream's reply.
fn garbled(garbage: Garbage, reply: &[u8]) -> Vec<u8> {
    match garbage {
        Garbage::Empty => Vec::new(),
        Garbage::Html => b"<html><body>It works!</body></html>".to_vec(),
        Garbage::WrongTypes => br#"{"stream":7,"seq":"first"}"#.to_vec(),
        Garbage::NoMessageId => br#"{"stream":"any"}"#.to_vec(),
        Garbage::Truncated => reply[..reply.len() / 2].to_vec(),
        other => panic!("the fixture does not play {other:?}"),
    }
}

fn seen(frame: &Frame, user: Option<&str>) -> SeenRequest {
    let mut seen = SeenRequest::new();
    let headers = frame.headers();
    let id = headers.iter().find(|(name, _)| name == "Nats-Msg-Id");
    let id = id.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    seen.envelopes = vec![StoredMessage::new(frame.payload()).envelope_id()];
    seen.bytes = frame.content().len();
    seen.signed_by = user.map(str::to_owned);
    seen.dedup_ids = vec![id];
    seen.keys = vec![crate::fixture::key_of(frame.word(1))];
    seen
}

impl FaultScript for Script {
    fn add(&self, destination: &Destination, rule: Rule) {
        lock(&self.rules).push(Known {
            destination: destination.name().to_owned(),
            after: rule.after,
            times: rule.times,
            fault: Arc::new(rule.fault),
        });
    }

    fn clear(&self) {
        lock(&self.rules).clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn requests(&self, destination: &Destination) -> Vec<SeenRequest> {
        let seen = lock(&self.seen);
        let of_it = seen
            .iter()
            .filter(|(subject, _)| is_of(subject, destination.name()));
        of_it.map(|(_, request)| request.clone()).collect()
    }
}
