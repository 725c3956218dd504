//! The suite's faults, as a proxy plays them at pulls and acknowledgements.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dispatch_api::ErrorClass;
use sink_testkit::conformance::Destination;
use sink_testkit::conformance::source::{Operation, SourceFault, SourceFaultScript};

use crate::live::proxy::{AtReply, Play, Reply, Watch};
use crate::live::wire::Frame;

/// How a server ends a pull with an error: a name of it, its class, status and words.
pub(crate) const ENDS: &[(&str, ErrorClass, u16, &str)] = &[
    ("NoResponders", ErrorClass::Transient, 503, ""),
    (
        "ServerShutdown",
        ErrorClass::Transient,
        409,
        "Server Shutdown",
    ),
    (
        "LeadershipChange",
        ErrorClass::Transient,
        409,
        "Leadership Change",
    ),
    (
        "MaxWaiting",
        ErrorClass::Transient,
        409,
        "Exceeded MaxWaiting",
    ),
    (
        "MaxRequestBatch",
        ErrorClass::Config,
        409,
        "Exceeded MaxRequestBatch of 1",
    ),
    (
        "PushConsumer",
        ErrorClass::Config,
        409,
        "Consumer is push based",
    ),
    (
        "ConsumerDeleted",
        ErrorClass::Config,
        409,
        "Consumer Deleted",
    ),
];

/// The rules, and what came by.
#[derive(Default)]
pub(crate) struct Script {
    state: Mutex<State>,
    played: AtomicU64,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// The stream of each request.
    calls: Vec<(String, Operation)>,
    /// What was delivered, by where it is acknowledged.
    delivered: HashMap<String, Bytes>,
}

struct Rule {
    stream: String,
    operation: Operation,
    fault: SourceFault,
    times: Option<u64>,
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream and the kind of a request; `None` for what is neither a pull nor an
/// acknowledgement.
fn kind_of(frame: &Frame) -> Option<(String, Operation)> {
    let subject = frame.word(1);
    if let Some(consumer) = subject.strip_prefix("$JS.API.CONSUMER.MSG.NEXT.") {
        let (stream, _) = consumer.split_once('.')?;
        return Some((stream.to_owned(), Operation::Receive));
    }
    let tokens: Vec<&str> = subject.strip_prefix("$JS.ACK.")?.split('.').collect();
    // The longer form has a domain and an account before the stream.
    let stream = match tokens.len() {
        7 => tokens[0],
        _ => tokens.get(2)?,
    };
    let payload = frame.payload();
    let kind = payload.split(|byte| *byte == b' ').next()?;
    let operation = match kind {
        b"+ACK" | b"+TERM" => Operation::Ack,
        b"-NAK" => Operation::Return,
        b"+WPI" => Operation::Extend,
        _ => return None,
    };
    Some(((*stream).to_owned(), operation))
}

impl Watch for Script {
    fn published(&self, frame: &Frame, _user: Option<&str>) -> Play {
        let Some((stream, operation)) = kind_of(frame) else {
            return Play::Pass;
        };
        let mut state = self.state();
        let body = state.delivered.get(frame.word(1)).cloned();
        state.calls.push((stream.clone(), operation));
        let due = state.rules.iter().position(|rule| {
            let is_meant = match &rule.fault {
                SourceFault::Entry(wanted) => body.as_deref() == Some(wanted.as_bytes()),
                _ => true,
            };
            is_meant && rule.stream == stream && rule.operation == operation
        });
        let Some(at) = due else {
            return Play::Pass;
        };
        let play = play(&state.rules[at].fault);
        if let Some(times) = &mut state.rules[at].times {
            *times -= 1;
            if *times == 0 {
                state.rules.remove(at);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        play
    }

    fn delivered(&self, frame: &Frame) {
        let reply = frame.word(3);
        if reply.starts_with("$JS.ACK.") {
            let mut state = self.state();
            state.delivered.insert(reply.to_owned(), frame.payload());
        }
    }
}

fn play(fault: &SourceFault) -> Play {
    let status = |status: u16, words: &str| Play::Answer(Reply::Status(status, words.to_owned()));
    match fault {
        // A server takes what a connection sends in its order.
        SourceFault::HoldRequest(gate) => Play::HoldLine(Arc::clone(gate)),
        SourceFault::HoldReply(gate) => Play::AtReply(AtReply::Hold(Arc::clone(gate))),
        SourceFault::LoseRequest => Play::Close,
        SourceFault::LoseReply => Play::AtReply(AtReply::Lose),
        SourceFault::Silence => Play::Swallow,
        SourceFault::Row(name) => {
            let known = ENDS.iter().find(|(known, ..)| known == name);
            let (_, _, code, words) = known.expect("the suite plays rows of the profile");
            status(*code, words)
        }
        // What a server answers while nobody serves the consumer.
        SourceFault::Internal | SourceFault::Entry(_) => status(503, ""),
        other => panic!("the fixture does not play {other:?}"),
    }
}

impl SourceFaultScript for Script {
    fn add(
        &self,
        destination: &Destination,
        operation: Operation,
        fault: SourceFault,
        times: Option<u64>,
    ) {
        self.state().rules.push(Rule {
            stream: destination.name().to_owned(),
            operation,
            fault,
            times,
        });
    }

    fn clear(&self) {
        self.state().rules.clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn calls(&self, destination: &Destination, operation: Operation) -> usize {
        let state = self.state();
        let of_it = state
            .calls
            .iter()
            .filter(|(stream, kind)| *stream == destination.name() && *kind == operation);
        of_it.count()
    }
}
