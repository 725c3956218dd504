//! The broker: destinations, what they store, and what they refuse.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hex::ToHex as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::reply::{ErrorBody, FailedEntry, Results, StoredEntry};
use super::script::Script;
use super::wire::{Entry, Reply, Request, Wire, WireError, accounted};
use crate::conformance::StoredMessage;

/// Where a client of the broker would write down what it sends.
pub(super) const WIRE_LOG: &str = "reference_wire";

/// The largest message and the largest request, in bytes.
pub(super) const MAX_BYTES: usize = 16_384;
/// The most messages of a request.
pub(super) const MAX_ENTRIES: usize = 10;
/// The most attributes of a message.
pub(super) const MAX_ATTRIBUTES: usize = 10;
/// For how long a repeat is recognised.
pub(super) const DEDUP_WINDOW: Duration = Duration::from_secs(300);
/// Where the broker listens.
pub(super) const HOST: &str = "memory.internal";
/// A host that has no address.
pub(super) const NAMELESS: &str = "nobody.invalid";
/// A host at which nobody listens.
pub(super) const CLOSED: &str = "closed.internal";
/// A host that takes what comes and never answers.
pub(super) const SILENT: &str = "silent.internal";
/// Who may send, with what secret.
pub(super) const KEYS: [(&str, &str); 8] = [
    ("key-harbor", "harbor-s3cret-7f2c9d41aa"),
    ("key-depot", "depot-s3cret-b60e88d2c1"),
    ("key-stranger", "stranger-s3cret-19ce34f07b"),
    ("key-quay-1", "quay-s3cret-58a1f0b3c7"),
    ("key-quay-2", "quay-s3cret-e90d4c12ab"),
    ("key-quay-3", "quay-s3cret-07b6d83f5e"),
    ("key-quay-4", "quay-s3cret-c1e7952ad8"),
    ("key-quay-5", "quay-s3cret-3f80b46e91"),
];
/// The first of the keys that the vault has, one after the other.
const FIRST_OF_VAULT: usize = 3;
/// A key that may send nowhere.
pub(super) const STRANGER: &str = "key-stranger";

/// A broker in memory. A destination whose name ends in `.ordered` keeps the order of
/// each key and recognises repeats.
///
/// It checks like a service: keys and proofs, sizes, counts, names of entries, attributes.
#[derive(Debug)]
pub struct Broker {
    state: Mutex<State>,
    script: Script,
    /// The next request meets a connection that the restart ended.
    has_stale_connection: AtomicBool,
}

#[derive(Debug)]
struct State {
    topics: BTreeMap<String, Topic>,
    begun: Instant,
    advanced: Duration,
    stored: u64,
    requests: u64,
    /// Which of the keys the vault has; those before it that it had have ended.
    in_vault: usize,
    is_vault_empty: bool,
}

#[derive(Debug)]
struct Topic {
    messages: Vec<StoredMessage>,
    repeats: HashMap<String, (Duration, StoredEntry)>,
    max_bytes: usize,
    alphabet: Alphabet,
}

/// What a destination takes as the value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alphabet {
    /// Every character.
    Any,
    /// Every character that is no control character.
    Text,
    /// ASCII that is no control character.
    Ascii,
}

impl Broker {
    /// A broker without destinations. Its clock is tokio's.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                topics: BTreeMap::new(),
                begun: Instant::now(),
                advanced: Duration::ZERO,
                stored: 0,
                requests: 0,
                in_vault: FIRST_OF_VAULT,
                is_vault_empty: false,
            }),
            script: Script::new(),
            has_stale_connection: AtomicBool::new(false),
        }
    }

    /// Creates a destination that takes messages of at most `max_bytes`.
    pub fn create(&self, name: &str, max_bytes: usize) {
        self.create_with(name, max_bytes, Alphabet::Text);
    }

    /// Creates a destination that takes control characters in attributes too.
    pub fn create_of_any_text(&self, name: &str, max_bytes: usize) {
        self.create_with(name, max_bytes, Alphabet::Any);
    }

    /// Creates a destination that takes only ASCII in attributes.
    pub fn create_ascii_only(&self, name: &str, max_bytes: usize) {
        self.create_with(name, max_bytes, Alphabet::Ascii);
    }

    fn create_with(&self, name: &str, max_bytes: usize, alphabet: Alphabet) {
        let topic = Topic {
            messages: Vec::new(),
            repeats: HashMap::new(),
            max_bytes: max_bytes.min(MAX_BYTES),
            alphabet,
        };
        self.state().topics.insert(name.to_owned(), topic);
    }

    /// The names of all destinations.
    #[must_use]
    pub fn destinations(&self) -> Vec<String> {
        self.state().topics.keys().cloned().collect()
    }

    /// What a destination stores.
    #[must_use]
    pub fn stored(&self, name: &str) -> Vec<StoredMessage> {
        let state = self.state();
        let topic = state.topics.get(name);
        topic.map_or_else(Vec::new, |topic| topic.messages.clone())
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        self.state().advanced += by;
    }

    /// Ends all connections: the next request finds that out.
    pub fn restart(&self) {
        self.has_stale_connection.store(true, Ordering::SeqCst);
    }

    /// Key and secret, where whoever asks for them finds the newest.
    #[must_use]
    pub fn vault(&self) -> Option<(&'static str, &'static str)> {
        let state = self.state();
        (!state.is_vault_empty).then(|| KEYS[state.in_vault])
    }

    /// Empties the vault.
    pub fn empty_vault(&self) {
        self.state().is_vault_empty = true;
    }

    /// Puts the next key into the vault, ends the one before it, and names the new one.
    pub fn rotate(&self) -> &'static str {
        let mut state = self.state();
        state.in_vault += 1;
        state.is_vault_empty = false;
        let (key_id, _) = KEYS[state.in_vault];
        key_id
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a request.
    fn carry_out(&self, request: &Request, skip: impl Fn(&Entry) -> bool) -> Reply {
        let mut state = self.state();
        state.requests += 1;
        let reply = match state.checked(request) {
            Ok(()) => state.store(request, skip),
            Err((status, code, text)) => error_reply(status, code, &text),
        };
        Reply {
            request_id: format!("request-{}", state.requests),
            ..reply
        }
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Wire for Broker {
    async fn call(&self, request: Request) -> Result<Reply, WireError> {
        // A reply takes a turn of the scheduler, as on any wire.
        tokio::task::yield_now().await;
        if self.has_stale_connection.swap(false, Ordering::SeqCst) {
            return Err(WireError::NotSent);
        }
        match &*request.host {
            HOST => {}
            NAMELESS | CLOSED => return Err(WireError::NotSent),
            SILENT => return std::future::pending().await,
            _ => {
                self.script.note_stray();
                return Ok(error_reply(404, "NotHere", "another host"));
            }
        }
        self.script.note(&request);
        let act = self.script.next(&request);
        act.play(request, |request, skip| self.carry_out(request, skip))
            .await
    }
}

type Refusal = (u16, &'static str, String);

impl State {
    fn now(&self) -> Duration {
        self.begun.elapsed() + self.advanced
    }

    fn has_ended(&self, key_id: &str) -> bool {
        let ended = &KEYS[FIRST_OF_VAULT..self.in_vault];
        ended.iter().any(|(known, _)| *known == key_id)
    }

    fn checked(&self, request: &Request) -> Result<(), Refusal> {
        let secret = KEYS.iter().find(|(key_id, _)| *key_id == request.key_id);
        match secret {
            None => return Err((403, "UnknownKey", "no such key".to_owned())),
            Some((key_id, secret)) if proof(key_id, secret) != request.proof => {
                return Err((403, "BadProof", "the proof is not the secret's".to_owned()));
            }
            Some((key_id, _)) if self.has_ended(key_id) => {
                return Err((403, "ExpiredKey", "the key has ended".to_owned()));
            }
            Some((STRANGER, _)) => {
                return Err((403, "AccessDenied", "the key may not send here".to_owned()));
            }
            Some(_) => {}
        }
        let Some(topic) = self.topics.get(&request.destination) else {
            let text = format!("no destination `{}`", request.destination);
            return Err((404, "DestinationMissing", text));
        };
        let mut ids: Vec<&str> = request.entries.iter().map(|entry| &*entry.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let bytes: usize = request.entries.iter().map(Entry::bytes).sum();
        if ids.len() != request.entries.len() {
            return Err((
                400,
                "EntryIdsNotDistinct",
                "two entries have one id".to_owned(),
            ));
        }
        if request.entries.is_empty() || request.entries.len() > MAX_ENTRIES {
            return Err((400, "TooManyEntries", format!("1 to {MAX_ENTRIES} entries")));
        }
        if request.entries.len() > 1 && bytes > MAX_BYTES {
            return Err((400, "RequestTooLong", format!("over {MAX_BYTES} bytes")));
        }
        if request.entries.len() == 1 {
            // A lone message that is refused is a request that is refused.
            if let Some((code, text)) = topic.refusal(&request.destination, &request.entries[0]) {
                return Err((400, code, text));
            }
        }
        Ok(())
    }

    fn store(&mut self, request: &Request, skip: impl Fn(&Entry) -> bool) -> Reply {
        let now = self.now();
        let mut results = Results::default();
        for entry in request.entries.iter().filter(|entry| !skip(entry)) {
            let topic = self
                .topics
                .get_mut(&request.destination)
                .expect("a request was checked before");
            if let Some((code, text)) = topic.refusal(&request.destination, entry) {
                results.failed.push(FailedEntry {
                    id: entry.id.clone(),
                    code: code.to_owned(),
                    text,
                });
                continue;
            }
            if let Some(known) = topic.repeat_of(entry, now) {
                results.stored.push(known);
                continue;
            }
            self.stored += 1;
            let message_id = format!("message-{:08}", self.stored);
            let sequence = format!("{:020}", self.stored);
            topic.messages.push(StoredMessage {
                body: entry.body.clone(),
                attributes: entry.attributes.clone(),
                key: entry.key.clone(),
                dedup_id: entry.dedup_id.clone(),
                provider_id: Some(message_id.clone()),
                sequence: Some(sequence.clone()),
                sent_by: Some(request.key_id.clone()),
            });
            let stored = StoredEntry {
                id: entry.id.clone(),
                message_id,
                sequence,
                body_sha256: Some(body_digest(&entry.body)),
                attributes_sha256: Some(attributes_digest(&entry.attributes)),
            };
            if let Some(dedup_id) = &entry.dedup_id {
                let known = (now, stored.clone());
                topic.repeats.insert(dedup_id.clone(), known);
            }
            results.stored.push(stored);
        }
        Reply::new(200, results.to_body())
    }
}

impl Topic {
    fn refusal(&self, name: &str, entry: &Entry) -> Option<(&'static str, String)> {
        let bytes = accounted(&entry.body, &entry.attributes);
        if bytes > self.max_bytes {
            let text = format!("{bytes} bytes are over {}", self.max_bytes);
            return Some(("MessageTooLarge", text));
        }
        if entry.attributes.len() > MAX_ATTRIBUTES {
            return Some(("TooManyAttributes", format!("over {MAX_ATTRIBUTES}")));
        }
        let values = || entry.attributes.iter().map(|(_, value)| value);
        if self.alphabet != Alphabet::Any && values().any(|value| !is_text(value)) {
            return Some(("InvalidAttribute", "a control character".to_owned()));
        }
        if self.alphabet == Alphabet::Ascii && values().any(|value| !value.is_ascii()) {
            return Some(("InvalidAttribute", "not ASCII".to_owned()));
        }
        let is_ordered = is_ordered(name);
        match (&entry.key, &entry.dedup_id) {
            (None, _) | (_, None) if is_ordered => Some((
                "KeyMissing",
                "an ordered destination needs a key and a deduplication id".to_owned(),
            )),
            (_, Some(_)) if !is_ordered => Some((
                "DedupNotHere",
                "a deduplication id needs an ordered destination".to_owned(),
            )),
            (Some(key), _) if is_ordered && !is_key(key) => Some((
                "InvalidKey",
                "1 to 128 printable ASCII characters".to_owned(),
            )),
            _ => None,
        }
    }

    fn repeat_of(&self, entry: &Entry, now: Duration) -> Option<StoredEntry> {
        let (since, stored) = self.repeats.get(entry.dedup_id.as_ref()?)?;
        (now - *since < DEDUP_WINDOW).then(|| StoredEntry {
            id: entry.id.clone(),
            ..stored.clone()
        })
    }
}

/// Whether a destination of this name keeps order.
pub(super) fn is_ordered(name: &str) -> bool {
    name.ends_with(".ordered")
}

/// Whether a destination that keeps order takes this as a key.
pub(super) fn is_key(key: &str) -> bool {
    (1..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether this is text without control characters.
pub(super) fn is_text(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| !text.chars().any(char::is_control))
}

pub(super) fn proof(key_id: &str, secret: &str) -> String {
    Sha256::digest(format!("{key_id}:{secret}")).encode_hex()
}

pub(super) fn body_digest(body: &[u8]) -> String {
    Sha256::digest(body).encode_hex()
}

pub(super) fn attributes_digest(attributes: &[(String, bytes::Bytes)]) -> String {
    let mut digest = Sha256::new();
    for (name, value) in attributes {
        digest.update(name.len().to_be_bytes());
        digest.update(name);
        digest.update(value.len().to_be_bytes());
        digest.update(value);
    }
    digest.finalize().encode_hex()
}

/// A failure of a whole request.
pub(super) fn error_reply(status: u16, code: &str, text: &str) -> Reply {
    let body = ErrorBody {
        code: code.to_owned(),
        text: text.to_owned(),
    };
    Reply::new(status, body.to_body())
}
