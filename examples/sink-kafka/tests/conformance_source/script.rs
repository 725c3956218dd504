//! The suite's faults, as a proxy plays them at fetches and commits.
//!
//! A client fetches ahead of who receives, and there is always a fetch under way. An error is
//! told in the place of records, so that it is a receive's that would have brought them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dispatch_api::ErrorClass;
use sink_testkit::conformance::Destination;
use sink_testkit::conformance::source::{Operation, SourceFault, SourceFaultScript};

use crate::group::{self, Topic};
use crate::proxy::{Play, Watch};
use crate::wire::Head;

/// What a broker answers a fetch with: its name of the error, the class, and its number. Those
/// that are not here the client keeps to itself: it looks for the leader, or begins anew.
pub(crate) const ROWS: &[(&str, ErrorClass, i16)] = &[
    ("UNKNOWN_SERVER_ERROR", ErrorClass::Transient, -1),
    ("CORRUPT_MESSAGE", ErrorClass::Transient, 2),
    ("UNSUPPORTED_VERSION", ErrorClass::Config, 35),
    // The client looks elsewhere for longer than a receive waits: nothing comes behind it.
    ("TOPIC_AUTHORIZATION_FAILED", ErrorClass::Config, 29),
];

const UNKNOWN_SERVER_ERROR: i16 = -1;

/// The rules, and what came by.
#[derive(Default)]
pub(crate) struct Script {
    rules: Mutex<Vec<Rule>>,
    /// The topic of each request.
    calls: Mutex<Vec<(String, Operation)>>,
    played: AtomicU64,
}

struct Rule {
    topic: String,
    operation: Operation,
    fault: SourceFault,
    times: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is an error that is told in the place of what a fetch brings.
fn is_error(fault: &SourceFault) -> bool {
    matches!(fault, SourceFault::Internal | SourceFault::Row(_))
}

impl Script {
    /// The fault of the first rule for one of these topics, if it is to be played now.
    fn due(
        &self,
        operation: Operation,
        topics: &[Topic],
        is_now: impl Fn(&SourceFault) -> bool,
    ) -> Option<SourceFault> {
        let mut rules = lock(&self.rules);
        let at = rules.iter().position(|rule| {
            rule.operation == operation && topics.iter().any(|topic| topic.name == rule.topic)
        })?;
        let fault = Some(rules[at].fault.clone()).filter(is_now)?;
        if let Some(times) = &mut rules[at].times {
            *times -= 1;
            if *times == 0 {
                rules.remove(at);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }
}

impl Script {
    /// Whether receives are never answered any more: then nobody joins to receive, either.
    fn is_silent(&self, topics: &[Topic]) -> bool {
        let is_silence = |rule: &Rule| {
            rule.operation == Operation::Receive
                && rule.times.is_none()
                && matches!(rule.fault, SourceFault::Silence)
                && topics.iter().any(|topic| topic.name == rule.topic)
        };
        let is_silent = lock(&self.rules).iter().any(is_silence);
        if is_silent {
            self.played.fetch_add(1, Ordering::SeqCst);
        }
        is_silent
    }
}

impl Watch for Script {
    fn is_known(&self, _: &str, _: &str) -> bool {
        true
    }

    fn asked(&self, _: Option<&str>, head: Head, frame: &Bytes) -> Play {
        let operation = match head.api {
            group::FETCH => Operation::Receive,
            group::OFFSET_COMMIT => Operation::Ack,
            group::JOIN_GROUP => Operation::Receive,
            _ => return Play::Pass,
        };
        let topics = group::asked(frame, head);
        let topics = topics.expect("the client writes what the proxy reads");
        if head.api == group::JOIN_GROUP {
            return match self.is_silent(&topics) {
                true => Play::Silence,
                false => Play::Pass,
            };
        }
        for topic in &topics {
            lock(&self.calls).push((topic.name.clone(), operation));
        }
        let is_fetch = operation == Operation::Receive;
        let due = self.due(operation, &topics, |fault| !(is_fetch && is_error(fault)));
        match due {
            None if is_fetch => Play::Look,
            None => Play::Pass,
            Some(SourceFault::HoldRequest(gate)) => Play::HoldRequest(Arc::clone(&gate)),
            Some(SourceFault::HoldReply(gate)) => Play::HoldReply(Arc::clone(&gate)),
            Some(SourceFault::LoseRequest) => Play::Close,
            Some(SourceFault::LoseReply) => Play::LoseReply,
            Some(SourceFault::Silence) => Play::Silence,
            Some(SourceFault::Internal) => {
                Play::Instead(group::commit_failed(head, &topics, UNKNOWN_SERVER_ERROR))
            }
            Some(other) => panic!("the fixture does not play {other:?}"),
        }
    }

    fn answered(&self, _: Head, frame: Bytes) -> Bytes {
        let Some(topics) = group::brought(&frame) else {
            return frame;
        };
        let error = match self.due(Operation::Receive, &topics, is_error) {
            None => return frame,
            Some(SourceFault::Row(name)) => {
                let row = ROWS.iter().find(|(known, ..)| *known == name);
                row.expect("the suite plays rows of the profile").2
            }
            Some(_) => UNKNOWN_SERVER_ERROR,
        };
        group::fetch_failed(&frame, &topics, error)
    }

    fn latest(&self) -> &'static [(i16, i16)] {
        group::VERSIONS
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
        lock(&self.rules).push(Rule {
            topic: destination.name().to_owned(),
            operation,
            fault,
            times,
        });
    }

    fn clear(&self) {
        lock(&self.rules).clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn calls(&self, destination: &Destination, operation: Operation) -> usize {
        let calls = lock(&self.calls);
        let of_it = calls
            .iter()
            .filter(|(topic, kind)| topic == destination.name() && *kind == operation);
        of_it.count()
    }
}
