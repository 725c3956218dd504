//! The reference sink: as simple as honest can be.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    Admission, Answer, BatchEntry, BatchSender, Batcher, DeliveryContext, Description, DrainReport,
    Envelope, Flush, Guarantees, HostServices, InFlight, Message, Ordering, Outcome,
    RETRY_AFTER_CEILING, Receipt, Reconciliation, Sink, SinkError, tell_contained, throttle_after,
};
use metrics::counter;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::broker::{
    DEDUP_WINDOW, MAX_ATTRIBUTES, attributes_digest, body_digest, is_key, is_text, proof,
};
use super::config::ReferenceConfig;
use super::reply::{ErrorBody, Results, StoredEntry};
use super::wire::{Entry, Reply, Request, Wire, WireError};

/// Delivers to the reference broker.
pub struct ReferenceSink {
    config: ReferenceConfig,
    sender: Sender,
    batcher: Option<Batcher<Sender>>,
    in_flight: InFlight,
    /// Room for requests that nobody waits for.
    unconfirmed: Arc<Semaphore>,
}

/// The most requests at once that nobody waits for.
const UNCONFIRMED: usize = 64;

impl ReferenceSink {
    /// A sink of this configuration that sends over this wire.
    #[must_use]
    pub fn new(config: ReferenceConfig, wire: Arc<dyn Wire>, services: &HostServices) -> Self {
        let turns = match config.serial {
            true => 1,
            false => Semaphore::MAX_PERMITS,
        };
        let sender = Sender {
            turns: Arc::new(Semaphore::new(turns)),
            config: config.clone(),
            wire,
            services: services.clone(),
        };
        let batcher = config.batching;
        Self {
            batcher: batcher.map(|settings| Batcher::new(sender.clone(), settings)),
            sender,
            config,
            in_flight: InFlight::new(),
            unconfirmed: Arc::new(Semaphore::new(UNCONFIRMED)),
        }
    }

    /// The entry of a message, if the broker can take it.
    fn entry(&self, envelope: &Envelope, ctx: &DeliveryContext) -> Result<Entry, SinkError> {
        let message = Message::for_delivery(envelope, ctx, self.config.inline_max_bytes)?;
        let attributes: Vec<(String, Bytes)> = message
            .attributes()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Bytes::from(value.into_owned())))
            .collect();
        let mut names = attributes.iter();
        if !self.config.control_characters
            && let Some((name, _)) = names.find(|(_, value)| !is_text(value))
        {
            return Err(SinkError::permanent(
                "InvalidAttribute",
                format!("the attribute {name} holds a control character"),
            ));
        }
        let mut names = attributes.iter();
        if self.config.ascii_attributes
            && let Some((name, _)) = names.find(|(_, value)| !value.is_ascii())
        {
            return Err(SinkError::permanent(
                "InvalidAttribute",
                format!(
                    "the attribute {name} is not ASCII, and the destination takes nothing else"
                ),
            ));
        }
        let is_ordered = self.config.is_ordered();
        let tenant = envelope.tenant_id();
        let key = match (is_ordered, self.config.fair) {
            (true, _) => {
                let tenant = tenant.unwrap_or_default();
                Some(format!("{tenant}/{}", envelope.source_id()))
            }
            (false, true) => tenant
                .filter(|tenant| !tenant.is_empty())
                .map(str::to_owned),
            (false, false) => None,
        };
        if is_ordered && key.as_deref().is_some_and(|key| !is_key(key)) {
            return Err(SinkError::permanent(
                "InvalidKey",
                "the tenant or source makes a key that is not 1 to 128 printable ASCII characters",
            ));
        }
        let id = envelope.id();
        let dedup_id = is_ordered.then(|| match ctx.replay_id() {
            Some(replay) => format!("{id}:replay:{replay}"),
            None => id.to_string(),
        });
        let entry = Entry {
            id: "0".to_owned(),
            body: Bytes::from(message.encode()),
            attributes,
            key,
            dedup_id,
        };
        let (bytes, limit) = (entry.bytes(), self.config.max_message_bytes);
        if bytes > limit {
            return Err(SinkError::permanent(
                "MessageTooLarge",
                format!("the message has {bytes} bytes, and max_message_bytes is {limit}"),
            ));
        }
        Ok(entry)
    }

    fn deadline(&self, ctx: &DeliveryContext) -> Result<Instant, SinkError> {
        let now = Instant::now();
        let own = now + self.config.timeout;
        match ctx.deadline() {
            None => Ok(own),
            Some(deadline) if deadline > now => Ok(own.min(deadline)),
            Some(_) => Err(SinkError::transient(
                Outcome::NotStored,
                "DeadlinePassed",
                "the delivery's deadline was over before it began",
            )),
        }
    }
}

#[async_trait]
impl Sink for ReferenceSink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let running = self.in_flight.enter()?;
        let deadline = self.deadline(ctx)?;
        let entry = self.entry(envelope, ctx)?;
        if !self.config.confirm {
            let room = Arc::clone(&self.unconfirmed).acquire_owned();
            let Ok(Ok(room)) = timeout_at(deadline, room).await else {
                return Err(SinkError::transient(
                    Outcome::NotStored,
                    "Timeout",
                    "no room for another request in time",
                ));
            };
            let sender = self.sender.clone();
            tokio::spawn(async move {
                let _running = (running, room);
                // Whoever asks for no confirmation hears of no failure.
                let _ = sender.send_by(vec![entry], deadline).await;
            });
            return Ok(Receipt::new());
        }
        let Some(batcher) = self.batcher.as_ref().filter(|_| !ctx.is_direct()) else {
            let mut answers = self.sender.send_by(vec![entry], deadline).await;
            return answers.pop().unwrap_or_else(|| Err(timed_out()));
        };
        let tenant = envelope.tenant_id().unwrap_or_default();
        let key = entry.key.clone();
        let mut place = BatchEntry::new(tenant, entry.bytes(), entry);
        // A key without order holds no message back for another.
        if let Some(key) = key.filter(|_| self.config.is_ordered()) {
            place = place.with_ordering_key(key);
        }
        let attempt = ctx.attempt_number();
        let draw = self.sender.services.draw();
        let answer = batcher.submit(place, |full| full.into_error(throttle_after(attempt, draw)));
        match ctx.deadline() {
            None => answer.await,
            Some(deadline) => timeout_at(deadline, answer)
                .await
                .unwrap_or_else(|_| Err(timed_out())),
        }
    }

    fn durable(&self) -> bool {
        self.config.confirm
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes)
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = Guarantees::new(self.durable())
            .with_max_message_bytes(self.config.max_message_bytes)
            .with_max_attributes(MAX_ATTRIBUTES);
        match (self.config.is_ordered(), &self.batcher) {
            (false, _) => guarantees,
            (true, Some(_)) => guarantees
                .with_ordering(Ordering::PerKey)
                .with_dedup_window(DEDUP_WINDOW),
            (true, None) => guarantees
                .with_ordering(Ordering::PerKeyWhenAwaited)
                .with_dedup_window(DEDUP_WINDOW),
        }
    }

    fn admission(&self) -> Admission {
        match self.batcher {
            Some(_) => Admission::SelfLimited,
            None => Admission::HostLimited,
        }
    }

    fn describe(&self) -> Option<Description> {
        Some(Description::new(
            "reference",
            self.config.host.clone(),
            self.config.destination.clone(),
        ))
    }

    fn flush(&self) {
        if let Some(batcher) = &self.batcher {
            batcher.flush();
        }
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        if let Some(batcher) = &self.batcher {
            let (report, _) = tokio::join!(self.in_flight.drain(deadline), batcher.drain(deadline));
            return report;
        }
        self.in_flight.drain(deadline).await
    }
}

impl fmt::Debug for ReferenceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceSink")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Sender {
    config: ReferenceConfig,
    wire: Arc<dyn Wire>,
    services: HostServices,
    /// Room for requests beside each other.
    turns: Arc<Semaphore>,
}

impl BatchSender for Sender {
    type Entry = Entry;

    async fn send(&self, entries: Vec<Entry>, _flush: Flush) -> Vec<Answer> {
        self.send_by(entries, Instant::now() + self.config.timeout)
            .await
    }
}

impl Sender {
    /// One request, and an answer for each of its entries.
    async fn send_by(&self, mut entries: Vec<Entry>, deadline: Instant) -> Vec<Answer> {
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.id = index.to_string();
        }
        let found = self.config.vault.as_ref().map(|vault| vault.vault());
        let (key_id, secret) = match &found {
            None => (&*self.config.key_id, &*self.config.secret),
            Some(Some(found)) => *found,
            Some(None) => {
                let text = self.at("the vault has no key: put one there, then replay");
                return all(&entries, &SinkError::config("NoCredentials", text));
            }
        };
        let request = Request {
            host: self.config.host.clone(),
            destination: self.config.destination.clone(),
            key_id: key_id.to_owned(),
            proof: proof(key_id, secret),
            entries: entries.clone(),
        };
        let operation = if entries.len() == 1 {
            "send"
        } else {
            "send_batch"
        };
        let span = match self.config.is_observed {
            false => tracing::Span::none(),
            true => tracing::debug_span!(
                "send",
                messaging.system = "reference",
                messaging.operation.name = operation,
                messaging.destination.name = &*self.config.destination,
                messaging.batch.message_count = entries.len(),
            ),
        };
        let call = async {
            let _turn = self.turns.acquire().await;
            self.wire.call(request).await
        };
        let reply = timeout_at(deadline, call.instrument(span)).await;
        let answers = match reply {
            Err(_) => all(&entries, &timed_out()),
            Ok(Err(error)) => {
                let outcome = match error {
                    WireError::NotSent => Outcome::NotStored,
                    WireError::Lost => Outcome::Unknown,
                };
                let error = SinkError::transient(outcome, "ConnectionLost", self.at("no reply"))
                    .with_source(error);
                all(&entries, &error)
            }
            Ok(Ok(reply)) => self.answers(&reply, &entries),
        };
        if self.config.is_observed {
            tell_contained(|| self.count(operation, &answers));
        }
        answers
    }

    fn count(&self, operation: &'static str, answers: &[Answer]) {
        for answer in answers {
            let code = answer.as_ref().map_or_else(SinkError::code, |_| "");
            counter!(
                "messaging_client_sent_messages_total",
                "messaging_system" => "reference",
                "messaging_operation_name" => operation,
                "messaging_destination_name" => self.config.destination.clone(),
                "error_type" => code.to_owned(),
            )
            .increment(1);
        }
    }

    fn answers(&self, reply: &Reply, entries: &[Entry]) -> Vec<Answer> {
        let with_identity = |error: SinkError| {
            error
                .with_status(reply.status)
                .with_request_id(reply.request_id.clone())
        };
        if reply.status != 200 {
            return all(entries, &with_identity(self.failure(reply)));
        }
        let Ok(results) = serde_json::from_slice::<Results>(&reply.body) else {
            let error = unexpected("a success that is not the broker's JSON");
            return all(entries, &with_identity(error));
        };
        let index = |id: &str| entries.iter().position(|entry| entry.id == id);
        let mut answers = Reconciliation::new(entries.len());
        for stored in &results.stored {
            let index = index(&stored.id);
            let answer = match index {
                Some(index) => confirmed(&entries[index], stored),
                None => Ok(Receipt::new()),
            };
            answers.note(index, answer.map_err(with_identity));
        }
        for failed in &results.failed {
            let error = self.classified(&failed.code, 400, None);
            answers.note(index(&failed.id), Err(with_identity(error)));
        }
        answers.finish()
    }

    /// The failure of a whole request.
    fn failure(&self, reply: &Reply) -> SinkError {
        if (300..400).contains(&reply.status) {
            return SinkError::config("Redirect", self.at("the broker points elsewhere"));
        }
        let code = serde_json::from_slice::<ErrorBody>(&reply.body).map(|error| error.code);
        let hint = reply.retry_after.as_deref();
        let code = code.as_deref().unwrap_or("NotTheBroker");
        self.classified(code, reply.status, hint)
    }

    fn classified(&self, code: &str, status: u16, hint: Option<&str>) -> SinkError {
        let outcome = match status {
            400..=499 => Outcome::NotStored,
            _ => Outcome::Unknown,
        };
        match code {
            "DestinationMissing" => SinkError::config(
                "DestinationMissing",
                self.at("no such destination: create it, then replay"),
            ),
            "AccessDenied" => {
                SinkError::config("AccessDenied", self.at("the key may not send: allow it"))
            }
            "UnknownKey" | "BadProof" => SinkError::config(
                "BadCredentials",
                self.at("key_id and secret are refused: correct them"),
            ),
            // The next request asks the vault again.
            "ExpiredKey" => SinkError::transient(
                Outcome::NotStored,
                "ExpiredKey",
                self.at("the key has ended"),
            ),
            "MessageTooLarge" => {
                SinkError::permanent("MessageTooLarge", self.at("over the destination's limit"))
            }
            "InvalidAttribute" => {
                SinkError::permanent("InvalidAttribute", self.at("an attribute is refused"))
            }
            "InvalidKey" => SinkError::permanent("InvalidKey", self.at("the key is refused")),
            "Throttled" => {
                let pause = hint.and_then(|hint| parse_hint(hint, self.services.now()));
                let one = std::num::NonZeroU32::MIN;
                let pause = pause.unwrap_or_else(|| throttle_after(one, self.services.draw()));
                SinkError::retry_after(pause, outcome, "Throttled", self.at("too much at once"))
            }
            "Internal" => {
                SinkError::transient(Outcome::NotStored, "Internal", self.at("it failed"))
            }
            "Unavailable" => {
                SinkError::transient(outcome, "Unavailable", self.at("it is not available"))
            }
            _ => SinkError::transient(outcome, "ServiceError", self.at("an unknown failure")),
        }
    }

    /// A text that says where.
    fn at(&self, text: &str) -> String {
        format!("{text} (destination {})", self.config.destination)
    }
}

fn confirmed(entry: &Entry, stored: &StoredEntry) -> Answer {
    let body = body_digest(&entry.body);
    let attributes = attributes_digest(&entry.attributes);
    match (&stored.body_sha256, &stored.attributes_sha256) {
        (None, _) | (_, None) => Err(unexpected("a success without digests")),
        (Some(of_body), Some(of_attributes))
            if *of_body != body || *of_attributes != attributes =>
        {
            Err(SinkError::transient(
                Outcome::Unknown,
                "DigestMismatch",
                "the broker stored other bytes than were sent",
            ))
        }
        _ => Ok(Receipt::new()
            .with_provider_id(stored.message_id.clone())
            .with_sequence(stored.sequence.clone())),
    }
}

fn all(entries: &[Entry], error: &SinkError) -> Vec<Answer> {
    entries.iter().map(|_| Err(error.clone())).collect()
}

fn timed_out() -> SinkError {
    SinkError::transient(Outcome::Unknown, "Timeout", "no answer in time")
}

fn unexpected(text: &'static str) -> SinkError {
    SinkError::transient(Outcome::Unknown, "UnexpectedReply", text)
}

/// A pause of seconds, whole or not, or until a date.
fn parse_hint(hint: &str, now: SystemTime) -> Option<Duration> {
    let hint = hint.trim();
    let pause = if hint.starts_with(|first: char| first.is_ascii_digit()) {
        let seconds: f64 = hint.parse().ok()?;
        Duration::try_from_secs_f64(seconds.min(RETRY_AFTER_CEILING.as_secs_f64())).ok()?
    } else {
        let until = httpdate::parse_http_date(hint).ok()?;
        until.duration_since(now).unwrap_or_default()
    };
    Some(pause.min(RETRY_AFTER_CEILING))
}
