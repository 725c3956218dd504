//! Playing faults between the sink and the broker.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::broker::error_reply;
use super::reply::{FailedEntry, Results};
use super::wire::{Entry, Reply, Request, WireError};
use crate::conformance::{
    Destination, EntryFault, Fault, FaultScript, Garbage, Rule, SeenRequest, StoredMessage,
};
use crate::sqs::Gate;

/// The codes that the broker fails with, by status.
pub(super) const CODES: [(&str, u16); 10] = [
    ("DestinationMissing", 404),
    ("AccessDenied", 403),
    ("UnknownKey", 403),
    ("BadProof", 403),
    ("MessageTooLarge", 400),
    ("InvalidAttribute", 400),
    ("InvalidKey", 400),
    ("Throttled", 429),
    ("Internal", 500),
    ("Unavailable", 503),
];

#[derive(Debug, Default)]
pub(super) struct Script {
    rules: Mutex<Vec<Armed>>,
    seen: Mutex<Vec<(String, SeenRequest)>>,
    played: AtomicU64,
    strayed: AtomicUsize,
}

#[derive(Debug)]
struct Armed {
    destination: String,
    act: Act,
    after: u64,
    times: Option<u64>,
}

/// What happens to one request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Carry,
    HoldRequest(Arc<Gate>),
    HoldReply(Arc<Gate>),
    LoseRequest,
    LoseReply,
    Silence,
    /// Not carried out; this instead.
    Instead(Reply),
    /// Carried out; this instead.
    After(Garbage),
    Digest(DigestFault),
    Entries(Vec<(String, EntryFault)>),
    Reversed,
    Foreign,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DigestFault {
    Body,
    Attributes,
    Missing,
}

impl Script {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_stray(&self) {
        self.strayed.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn note(&self, request: &Request) {
        let entries = request.entries.iter();
        let seen = SeenRequest {
            envelopes: entries.clone().map(envelope_id).collect(),
            entry_ids: entries.clone().map(|entry| entry.id.clone()).collect(),
            bytes: entries.clone().map(Entry::bytes).sum(),
            signed_by: Some(request.key_id.clone()),
            dedup_ids: entries
                .clone()
                .map(|entry| entry.dedup_id.clone())
                .collect(),
            keys: entries.map(|entry| entry.key.clone()).collect(),
        };
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((request.destination.clone(), seen));
    }

    /// What to do with a request.
    pub(super) fn next(&self, request: &Request) -> Act {
        let mut rules = self.rules();
        for index in 0..rules.len() {
            let rule = &mut rules[index];
            if rule.destination != request.destination || !rule.act.concerns(request) {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            let act = rule.act.clone();
            if let Some(times) = &mut rule.times {
                *times -= 1;
                if *times == 0 {
                    rules.remove(index);
                }
            }
            self.played.fetch_add(1, Ordering::SeqCst);
            return act;
        }
        Act::Carry
    }
}

fn envelope_id(entry: &Entry) -> String {
    StoredMessage::new(entry.body.clone()).envelope_id()
}

impl FaultScript for Script {
    fn add(&self, destination: &Destination, rule: Rule) {
        self.rules().push(Armed {
            destination: destination.name().to_owned(),
            act: Act::of(&rule.fault),
            after: rule.after,
            times: rule.times,
        });
    }

    fn clear(&self) {
        self.rules().clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn requests(&self, destination: &Destination) -> Vec<SeenRequest> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let here = seen.iter().filter(|(name, _)| name == destination.name());
        here.map(|(_, request)| request.clone()).collect()
    }

    fn strayed(&self) -> usize {
        self.strayed.load(Ordering::SeqCst)
    }
}

/// The failure of a row of the error table.
fn row(name: &str) -> Reply {
    let known = CODES.iter().find(|(code, _)| *code == name);
    let status = known.map_or(400, |(_, status)| *status);
    error_reply(status, name, "as the script says")
}

impl Act {
    fn of(fault: &Fault) -> Self {
        match fault {
            Fault::HoldRequest(gate) => Self::HoldRequest(Arc::clone(gate)),
            Fault::HoldReply(gate) => Self::HoldReply(Arc::clone(gate)),
            Fault::LoseRequest => Self::LoseRequest,
            Fault::LoseReply => Self::LoseReply,
            Fault::Silence => Self::Silence,
            Fault::Row(name) => Self::Instead(row(name)),
            Fault::UnknownError(status) => Self::Instead(error_reply(
                *status,
                "NeverSeenBefore",
                "as the script says",
            )),
            Fault::Throttle(hint) => Self::Instead(Reply {
                retry_after: hint.clone(),
                ..row("Throttled")
            }),
            Fault::Garbage(garbage) => Self::After(*garbage),
            Fault::ForeignError(status, body) => Self::Instead(Reply::new(*status, body.clone())),
            Fault::Redirect => Self::Instead(Reply {
                location: Some("elsewhere.internal".to_owned()),
                ..Reply::new(307, "")
            }),
            Fault::WrongBodyDigest => Self::Digest(DigestFault::Body),
            Fault::WrongAttributesDigest => Self::Digest(DigestFault::Attributes),
            Fault::MissingDigests => Self::Digest(DigestFault::Missing),
            Fault::Entries(entries) => {
                let entries = entries.iter();
                Self::Entries(
                    entries
                        .map(|(id, fault)| (id.to_string(), fault.clone()))
                        .collect(),
                )
            }
            Fault::ReversedResults => Self::Reversed,
            Fault::ForeignResult => Self::Foreign,
        }
    }

    fn concerns(&self, request: &Request) -> bool {
        match self {
            Self::Entries(faults) => request
                .entries
                .iter()
                .any(|entry| faults.iter().any(|(id, _)| *id == envelope_id(entry))),
            _ => true,
        }
    }

    /// Plays it. `carry_out` takes the request, and which entries to leave out.
    pub(super) async fn play(
        self,
        request: Request,
        carry_out: impl Fn(&Request, &dyn Fn(&Entry) -> bool) -> Reply,
    ) -> Result<Reply, WireError> {
        let all = |request: &Request| carry_out(request, &|_| false);
        match self {
            Self::Carry => Ok(all(&request)),
            Self::HoldRequest(gate) => {
                gate.pass().await;
                Ok(all(&request))
            }
            Self::HoldReply(gate) => {
                let reply = all(&request);
                gate.pass().await;
                Ok(reply)
            }
            Self::LoseRequest => Err(WireError::Lost),
            Self::LoseReply => {
                all(&request);
                Err(WireError::Lost)
            }
            Self::Silence => std::future::pending().await,
            Self::Instead(reply) => Ok(Reply {
                request_id: "request-scripted".to_owned(),
                ..reply
            }),
            Self::After(garbage) => {
                let reply = all(&request);
                let body = garbled(garbage, &reply.body);
                Ok(Reply { body, ..reply })
            }
            Self::Digest(fault) => Ok(changed(all(&request), |results| {
                results
                    .stored
                    .iter_mut()
                    .for_each(|entry| fault.spoil(entry));
            })),
            Self::Entries(faults) => {
                let fault_of = |entry: &Entry| {
                    let id = envelope_id(entry);
                    faults
                        .iter()
                        .find(|(of, _)| *of == id)
                        .map(|(_, fault)| fault)
                };
                let reply = carry_out(&request, &|entry| {
                    matches!(fault_of(entry), Some(EntryFault::Row(_)))
                });
                let is_alone = request.entries.len() == 1;
                if is_alone && let Some(EntryFault::Row(name)) = fault_of(&request.entries[0]) {
                    return Ok(row(name));
                }
                Ok(changed(reply, |results| {
                    for entry in &request.entries {
                        if let Some(fault) = fault_of(entry) {
                            spoil_entry(results, &entry.id, fault);
                        }
                    }
                }))
            }
            Self::Reversed => Ok(changed(all(&request), |results| results.stored.reverse())),
            Self::Foreign => Ok(changed(all(&request), |results| {
                if let Some(first) = results.stored.first().cloned() {
                    let mut foreign = first;
                    foreign.id = "nobodys".to_owned();
                    results.stored.insert(0, foreign);
                }
            })),
        }
    }
}

impl DigestFault {
    fn spoil(self, entry: &mut super::reply::StoredEntry) {
        match self {
            Self::Body => entry.body_sha256 = Some("0".repeat(64)),
            Self::Attributes => entry.attributes_sha256 = Some("0".repeat(64)),
            Self::Missing => {
                entry.body_sha256 = None;
                entry.attributes_sha256 = None;
            }
        }
    }
}

fn spoil_entry(results: &mut Results, id: &str, fault: &EntryFault) {
    let failed = |code: &str| FailedEntry {
        id: id.to_owned(),
        code: code.to_owned(),
        text: "as the script says".to_owned(),
    };
    let stored = results.stored.iter().position(|entry| entry.id == id);
    match fault {
        EntryFault::Row(code) => results.failed.push(failed(code)),
        EntryFault::Unmentioned => results.stored.retain(|entry| entry.id != id),
        EntryFault::InBothLists => results.failed.push(failed("Internal")),
        EntryFault::Twice => {
            if let Some(index) = stored {
                let copy = results.stored[index].clone();
                results.stored.push(copy);
            }
        }
        EntryFault::WrongBodyDigest => {
            if let Some(index) = stored {
                DigestFault::Body.spoil(&mut results.stored[index]);
            }
        }
    }
}

/// A success with other results; a failure as it is.
pub(super) fn changed(reply: Reply, change: impl FnOnce(&mut Results)) -> Reply {
    match serde_json::from_slice::<Results>(&reply.body) {
        Ok(mut results) if reply.status == 200 => {
            change(&mut results);
            let body = results.to_body();
            Reply { body, ..reply }
        }
        _ => reply,
    }
}

fn garbled(garbage: Garbage, honest: &[u8]) -> Vec<u8> {
    match garbage {
        Garbage::Empty => Vec::new(),
        Garbage::Html => b"<html><body>Welcome</body></html>".to_vec(),
        Garbage::WrongTypes => br#"{"stored":"all","failed":0}"#.to_vec(),
        Garbage::NoMessageId => String::from_utf8_lossy(honest)
            .replace("\"message_id\"", "\"message\"")
            .into_bytes(),
        Garbage::Truncated => honest[..honest.len() / 2].to_vec(),
    }
}
