//! The suite's faults, as a proxy plays them at requests that store something.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::types::RDKafkaRespErr as Error;
use sink_testkit::conformance::{
    Destination, Fault, FaultScript, Gate, Rule, SeenRequest, StoredMessage,
};

use crate::wire::Record;

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

/// What the proxy does with one request.
pub(crate) enum Play {
    /// Hands it on.
    Pass,
    /// Holds it and what comes behind it, as a broker does that takes its time.
    HoldRequest(Arc<Gate>),
    /// Hands it on, and holds its reply.
    HoldReply(Arc<Gate>),
    /// Hands it on to brokers that refuse it.
    Refuse(Error),
}

/// The rules, and what came by.
#[derive(Default)]
pub(crate) struct Script {
    rules: Mutex<Vec<Known>>,
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
    /// A request comes by: it is recorded, and a rule may want something of it.
    pub(crate) fn request(&self, topics: &[(String, Vec<Record>)]) -> Play {
        let mut seen = lock(&self.seen);
        seen.extend(
            topics
                .iter()
                .map(|(topic, records)| (topic.clone(), request(records))),
        );
        drop(seen);
        let mut rules = lock(&self.rules);
        let due = rules.iter_mut().position(|known| {
            if !topics.iter().any(|(topic, _)| *topic == known.topic) {
                return false;
            }
            let is_due = known.rule.after == 0;
            known.rule.after = known.rule.after.saturating_sub(1);
            is_due
        });
        let Some(index) = due else {
            return Play::Pass;
        };
        let play = play(&rules[index].rule.fault);
        if let Some(times) = &mut rules[index].rule.times {
            *times -= 1;
            if *times == 0 {
                rules.remove(index);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        play
    }
}

fn play(fault: &Fault) -> Play {
    match fault {
        Fault::HoldRequest(gate) => Play::HoldRequest(Arc::clone(gate)),
        Fault::HoldReply(gate) => Play::HoldReply(Arc::clone(gate)),
        Fault::Row(name) => {
            let row = ROWS.iter().find(|(known, _)| known == name);
            Play::Refuse(row.expect("the suite plays rows of the profile").1)
        }
        // Of those that no request to store something is answered with.
        Fault::UnknownError(400..500) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP),
        Fault::UnknownError(_) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_LISTENER_NOT_FOUND),
        Fault::Throttle(None) => Play::Refuse(Error::RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED),
        other => panic!("the fixture does not play {other:?}"),
    }
}

fn request(records: &[Record]) -> SeenRequest {
    let mut seen = SeenRequest::new();
    for record in records {
        let key = record.key.as_ref();
        seen.envelopes
            .push(StoredMessage::new(record.value.clone()).envelope_id());
        seen.keys
            .push(key.map(|key| String::from_utf8_lossy(key).into_owned()));
        seen.dedup_ids.push(None);
        seen.bytes += record.value.len() + key.map_or(0, bytes::Bytes::len);
    }
    seen
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
