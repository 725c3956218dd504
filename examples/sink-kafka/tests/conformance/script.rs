//! The suite's faults, as a proxy plays them at requests that store something.
//!
//! The client sends a batch again until its time is over, and so one lost request or reply is
//! no fault that a delivery sees. What happens to a batch once happens to it each time, until
//! the rules are cleared.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rdkafka::types::RDKafkaRespErr as Error;
use sink_testkit::conformance::{
    Destination, Fault, FaultScript, Rule, SeenRequest, StoredMessage,
};

use crate::proxy::{Play, Watch};
use crate::wire::{self, Batch, Head, Record, Written};

/// Who may connect, with what password.
pub(crate) const HARBOR: (&str, &str) = ("harbor", "harbor-s3cret-41c09be77d2f4a");
pub(crate) const DEPOT: (&str, &str) = ("depot", "depot-s3cret-9d07ac15e3b862");
/// May connect, and store nothing.
pub(crate) const STRANGER: (&str, &str) = ("stranger", "stranger-s3cret-5be0c7");

fn is_known(user: &str, password: &str) -> bool {
    [HARBOR, DEPOT, STRANGER].contains(&(user, password))
}

/// The refusals of the profile's rows.
const ROWS: &[(&str, Error)] = &[
    (
        "MSG_SIZE_TOO_LARGE",
        Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
    ),
    ("INVALID_RECORD", Error::RD_KAFKA_RESP_ERR_INVALID_RECORD),
    (
        "INVALID_TIMESTAMP",
        Error::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
    ),
    (
        "TOPIC_AUTHORIZATION_FAILED",
        Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    ),
    (
        "POLICY_VIOLATION",
        Error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
    ),
    ("UNKNOWN", Error::RD_KAFKA_RESP_ERR_UNKNOWN),
];

/// What happens to a batch each time that it is sent.
#[derive(Clone)]
enum Fate {
    Close,
    Answer(Vec<u8>),
}

/// The rules, and what came by.
#[derive(Default)]
pub(crate) struct Script {
    rules: Mutex<Vec<Known>>,
    fates: Mutex<HashMap<Batch, Fate>>,
    /// Batches of which the brokers have told nobody that they are stored.
    untold: Mutex<HashSet<Batch>>,
    /// The most bytes of a batch, by topic.
    limits: Mutex<HashMap<String, usize>>,
    seen: Mutex<Vec<(String, SeenRequest)>>,
    played: AtomicU64,
}

struct Known {
    topic: String,
    rule: Rule,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// A user's request comes by: it is recorded, and a rule may want something of it.
    fn request(&self, user: Option<&str>, written: &[Written]) -> Play {
        for written in written {
            let topic = written.batch.topic.clone();
            let request = (topic, request(user, &written.records));
            lock(&self.seen).push(request);
        }
        if user == Some(STRANGER.0) {
            return Play::Refuse(Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
        }
        if written.iter().any(|written| self.is_too_large(written)) {
            return Play::Refuse(Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
        }
        let batches = || written.iter().map(|written| &written.batch);
        if let Some(fate) = batches().find_map(|batch| lock(&self.fates).get(batch).cloned()) {
            return match fate {
                Fate::Close => Play::Close,
                Fate::Answer(bytes) => Play::Answer(bytes),
            };
        }
        // The mock cluster recognises repeats in transactions alone.
        if batches().any(|batch| lock(&self.untold).contains(batch)) {
            return Play::Refuse(Error::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER);
        }
        let Some(play) = self.due(written) else {
            return Play::Pass;
        };
        for batch in batches().cloned() {
            let fate = match &play {
                Play::LoseReply => {
                    lock(&self.untold).insert(batch.clone());
                    Fate::Close
                }
                Play::Close => Fate::Close,
                Play::Answer(bytes) => Fate::Answer(bytes.clone()),
                _ => continue,
            };
            lock(&self.fates).insert(batch, fate);
        }
        play
    }

    /// What the first rule whose turn it is wants.
    fn due(&self, written: &[Written]) -> Option<Play> {
        let mut rules = lock(&self.rules);
        let index = rules.iter_mut().position(|known| {
            let is_of = |written: &Written| written.batch.topic == known.topic;
            if !written.iter().any(is_of) {
                return false;
            }
            let is_due = known.rule.after == 0;
            known.rule.after = known.rule.after.saturating_sub(1);
            is_due
        })?;
        let play = play(&rules[index].rule.fault);
        if let Some(times) = &mut rules[index].rule.times {
            *times -= 1;
            if *times == 0 {
                rules.remove(index);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        Some(play)
    }

    /// Sets a topic's `max.message.bytes`.
    pub(crate) fn limit(&self, topic: &str, bytes: usize) {
        lock(&self.limits).insert(topic.to_owned(), bytes);
    }

    fn is_too_large(&self, written: &Written) -> bool {
        let limits = lock(&self.limits);
        let limit = limits.get(&written.batch.topic);
        limit.is_some_and(|limit| written.bytes > *limit)
    }

    /// Whose messages of this envelope were the first.
    pub(crate) fn sender(&self, envelope: &str) -> Option<String> {
        let seen = lock(&self.seen);
        let of_it = seen
            .iter()
            .find(|(_, request)| request.envelopes.iter().any(|id| id == envelope));
        of_it.and_then(|(_, request)| request.signed_by.clone())
    }
}

fn play(fault: &Fault) -> Play {
    match fault {
        Fault::HoldRequest(gate) => Play::HoldRequest(Arc::clone(gate)),
        Fault::HoldReply(gate) => Play::HoldReply(Arc::clone(gate)),
        Fault::LoseRequest => Play::Close,
        Fault::LoseReply => Play::LoseReply,
        Fault::Silence => Play::Silence,
        Fault::Row(name) => {
            let row = ROWS.iter().find(|(known, _)| known == name);
            Play::Refuse(row.expect("the suite plays rows of the profile").1)
        }
        // Of those that no request to store something is answered with.
        Fault::UnknownError(400..500) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP),
        Fault::UnknownError(_) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_LISTENER_NOT_FOUND),
        Fault::Throttle(None) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED),
        Fault::Garbage(garbage) => Play::Garble(*garbage),
        Fault::ForeignError(status, body) => {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} Other\r\ncontent-length: {length}\r\n\r\n");
            Play::Answer([head.as_bytes(), body.as_bytes()].concat())
        }
        other => panic!("the fixture does not play {other:?}"),
    }
}

fn request(user: Option<&str>, records: &[Record]) -> SeenRequest {
    let mut seen = SeenRequest::new();
    seen.signed_by = user.map(str::to_owned);
    for record in records {
        let key = record.key.as_ref();
        seen.envelopes
            .push(StoredMessage::new(record.value.clone()).envelope_id());
        seen.keys
            .push(key.map(|key| String::from_utf8_lossy(key).into_owned()));
        seen.dedup_ids.push(None);
        seen.bytes += record.value.len() + key.map_or(0, Bytes::len);
    }
    seen
}

impl Watch for Script {
    fn is_known(&self, user: &str, password: &str) -> bool {
        is_known(user, password)
    }

    fn asked(&self, user: Option<&str>, head: Head, frame: &Bytes) -> Play {
        if head.api != wire::PRODUCE {
            return Play::Pass;
        }
        let written = wire::written(frame, head);
        self.request(
            user,
            &written.expect("the client writes what the proxy reads"),
        )
    }
}

impl FaultScript for Script {
    fn add(&self, destination: &Destination, rule: Rule) {
        lock(&self.rules).push(Known {
            topic: destination.name().to_owned(),
            rule,
        });
    }

    fn clear(&self) {
        lock(&self.rules).clear();
        lock(&self.fates).clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn requests(&self, destination: &Destination) -> Vec<SeenRequest> {
        let seen = lock(&self.seen);
        let of_it = seen.iter().filter(|(topic, _)| topic == destination.name());
        of_it.map(|(_, request)| request.clone()).collect()
    }
}
