//! Wrappers that leave everything but one thing as it is.

use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    Admission, Answer, DeliveryContext, Description, DrainReport, Envelope, ErrorClass, Guarantees,
    Message, Outcome, Receipt, Sink, SinkError,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Parts;
use crate::reference::broker::{attributes_digest, body_digest};
use crate::reference::reply::{Results, StoredEntry};
use crate::reference::script::changed;
use crate::reference::{Entry, ReferenceConfig, ReferenceSink, Reply, Request, Wire, WireError};

/// A boxed future.
pub(super) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type Deliver = dyn Fn(Arc<dyn Sink>, Envelope, DeliveryContext) -> Later<Answer> + Send + Sync;
type Drain = dyn Fn(Arc<dyn Sink>, Instant) -> Later<DrainReport> + Send + Sync;
type Change<T> = dyn Fn(T) -> T + Send + Sync;
type Write = dyn Fn(&dyn Sink, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync;

/// A sink of which single methods are replaced.
pub(super) struct Patched {
    inner: Arc<dyn Sink>,
    deliver: Option<Box<Deliver>>,
    drain: Option<Box<Drain>>,
    debug: Option<Box<Write>>,
    durable: Option<bool>,
    guarantees: Option<Box<Change<Guarantees>>>,
    describe: Option<Box<Change<Option<Description>>>>,
    admission: Option<Admission>,
    inline_max_bytes: Option<NonZeroUsize>,
}

impl Patched {
    /// Everything as it is.
    pub(super) fn new(inner: Arc<dyn Sink>) -> Self {
        Self {
            inner,
            deliver: None,
            drain: None,
            debug: None,
            durable: None,
            guarantees: None,
            describe: None,
            admission: None,
            inline_max_bytes: None,
        }
    }

    /// Replaces the delivery. The sink within is handed over with the envelope.
    pub(super) fn deliver(
        mut self,
        deliver: impl Fn(Arc<dyn Sink>, Envelope, DeliveryContext) -> Later<Answer>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.deliver = Some(Box::new(deliver));
        self
    }

    /// Replaces the drain.
    pub(super) fn drain(
        mut self,
        drain: impl Fn(Arc<dyn Sink>, Instant) -> Later<DrainReport> + Send + Sync + 'static,
    ) -> Self {
        self.drain = Some(Box::new(drain));
        self
    }

    /// Replaces `Debug`.
    pub(super) fn debug(
        mut self,
        debug: impl Fn(&dyn Sink, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        self.debug = Some(Box::new(debug));
        self
    }

    /// Replaces the claim of durability.
    pub(super) fn durable(mut self, durable: bool) -> Self {
        self.durable = Some(durable);
        self
    }

    /// Changes the guarantees.
    pub(super) fn guarantees(
        mut self,
        change: impl Fn(Guarantees) -> Guarantees + Send + Sync + 'static,
    ) -> Self {
        self.guarantees = Some(Box::new(change));
        self
    }

    /// Changes the description.
    pub(super) fn describe(
        mut self,
        change: impl Fn(Option<Description>) -> Option<Description> + Send + Sync + 'static,
    ) -> Self {
        self.describe = Some(Box::new(change));
        self
    }

    /// Replaces who bounds the deliveries.
    pub(super) fn admission(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Replaces the claim of the largest body inside a message.
    pub(super) fn inline_max_bytes(mut self, bytes: NonZeroUsize) -> Self {
        self.inline_max_bytes = Some(bytes);
        self
    }

    /// The sink.
    pub(super) fn sink(self) -> Arc<dyn Sink> {
        Arc::new(self)
    }
}

#[async_trait]
impl Sink for Patched {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        match &self.deliver {
            Some(deliver) => deliver(Arc::clone(&self.inner), envelope.clone(), ctx.clone()).await,
            None => self.inner.deliver(envelope, ctx).await,
        }
    }

    fn durable(&self) -> bool {
        self.durable.unwrap_or_else(|| self.inner.durable())
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        self.inline_max_bytes
            .or_else(|| self.inner.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = self.inner.guarantees();
        match &self.guarantees {
            Some(change) => change(guarantees),
            None => guarantees,
        }
    }

    fn admission(&self) -> Admission {
        self.admission.unwrap_or_else(|| self.inner.admission())
    }

    fn describe(&self) -> Option<Description> {
        let description = self.inner.describe();
        match &self.describe {
            Some(change) => change(description),
            None => description,
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        match &self.drain {
            Some(drain) => drain(Arc::clone(&self.inner), deadline).await,
            None => self.inner.drain(deadline).await,
        }
    }
}

impl fmt::Debug for Patched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.debug {
            Some(debug) => debug(&*self.inner, f),
            None => self.inner.fmt(f),
        }
    }
}

/// A sink that delivers otherwise.
pub(super) fn delivering(
    inner: Arc<dyn Sink>,
    deliver: impl Fn(Arc<dyn Sink>, Envelope, DeliveryContext) -> Later<Answer> + Send + Sync + 'static,
) -> Arc<dyn Sink> {
    Patched::new(inner).deliver(deliver).sink()
}

/// A sink that answers otherwise.
pub(super) fn answering(
    inner: Arc<dyn Sink>,
    change: impl Fn(&Envelope, Answer) -> Answer + Clone + Send + Sync + 'static,
) -> Arc<dyn Sink> {
    delivering(inner, move |inner, envelope, ctx| {
        let change = change.clone();
        Box::pin(async move {
            let answer = inner.deliver(&envelope, &ctx).await;
            change(&envelope, answer)
        })
    })
}

/// A sink that delivers another envelope.
pub(super) fn altering(
    inner: Arc<dyn Sink>,
    change: impl Fn(Envelope) -> Envelope + Send + Sync + 'static,
) -> Arc<dyn Sink> {
    delivering(inner, move |inner, envelope, ctx| {
        let envelope = change(envelope);
        Box::pin(async move { inner.deliver(&envelope, &ctx).await })
    })
}

type Calling = dyn Fn(Arc<dyn Wire>, Request) -> Later<Result<Reply, WireError>> + Send + Sync;

struct PatchedWire {
    inner: Arc<dyn Wire>,
    call: Box<Calling>,
}

#[async_trait]
impl Wire for PatchedWire {
    async fn call(&self, request: Request) -> Result<Reply, WireError> {
        (self.call)(Arc::clone(&self.inner), request).await
    }
}

/// A wire that carries requests otherwise.
pub(super) fn calling(
    inner: Arc<dyn Wire>,
    call: impl Fn(Arc<dyn Wire>, Request) -> Later<Result<Reply, WireError>> + Send + Sync + 'static,
) -> Arc<dyn Wire> {
    Arc::new(PatchedWire {
        inner,
        call: Box::new(call),
    })
}

/// A wire that changes requests.
pub(super) fn requesting(
    inner: Arc<dyn Wire>,
    change: impl Fn(Request) -> Request + Send + Sync + 'static,
) -> Arc<dyn Wire> {
    calling(inner, move |inner, request| {
        let request = change(request);
        Box::pin(async move { inner.call(request).await })
    })
}

/// A wire that changes replies; the request is the one that was sent.
pub(super) fn replying(
    inner: Arc<dyn Wire>,
    change: impl Fn(&Request, Result<Reply, WireError>) -> Result<Reply, WireError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> Arc<dyn Wire> {
    calling(inner, move |inner, request| {
        let change = change.clone();
        Box::pin(async move {
            let reply = inner.call(request.clone()).await;
            change(&request, reply)
        })
    })
}

/// The error with another class and outcome. Its source stays behind.
pub(super) fn remade(error: &SinkError, class: ErrorClass, outcome: Outcome) -> SinkError {
    let (code, text) = (error.code().to_owned(), error.text().to_owned());
    let made = match class {
        ErrorClass::Permanent => SinkError::permanent(code, text),
        ErrorClass::Config => SinkError::config(code, text),
        ErrorClass::RetryAfter(pause) => SinkError::retry_after(pause, outcome, code, text),
        ErrorClass::Transient => SinkError::transient(outcome, code, text),
    };
    match error.status() {
        Some(status) => made.with_status(status),
        None => made,
    }
}

/// What the broker says of an entry that it stored.
pub(super) fn as_stored(entry: &Entry) -> StoredEntry {
    StoredEntry {
        id: entry.id.clone(),
        message_id: "message-made-up".to_owned(),
        sequence: String::new(),
        body_sha256: Some(body_digest(&entry.body)),
        attributes_sha256: Some(attributes_digest(&entry.attributes)),
    }
}

/// A wire that changes the results of successes.
pub(super) fn changing_results(
    inner: Arc<dyn Wire>,
    change: impl Fn(&Request, &mut Results) + Clone + Send + Sync + 'static,
) -> Arc<dyn Wire> {
    replying(inner, move |request, reply| {
        reply.map(|reply| changed(reply, |results| change(request, results)))
    })
}

/// A wire that changes messages on their way, unnoticed: the replies have the digests of
/// what the sink sent.
pub(super) fn rewriting(
    inner: Arc<dyn Wire>,
    change: impl Fn(&mut Entry) + Send + Sync + 'static,
) -> Arc<dyn Wire> {
    calling(inner, move |inner, request| {
        let mut changed_request = request.clone();
        changed_request.entries.iter_mut().for_each(&change);
        Box::pin(async move {
            let reply = inner.call(changed_request).await?;
            Ok(changed(reply, |results| {
                for stored in &mut results.stored {
                    let sent = request.entries.iter().find(|entry| entry.id == stored.id);
                    if let Some(sent) = sent {
                        stored.body_sha256 = Some(body_digest(&sent.body));
                        stored.attributes_sha256 = Some(attributes_digest(&sent.attributes));
                    }
                }
            }))
        })
    })
}

/// Changes the text of a message.
pub(super) fn rewrite_text(entry: &mut Entry, change: impl FnOnce(String) -> String) {
    let text = String::from_utf8_lossy(&entry.body).into_owned();
    entry.body = Bytes::from(change(text));
}

/// Changes the fields of a message, and writes them in another order.
pub(super) fn rewrite_fields(entry: &mut Entry, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Ok(Value::Object(mut fields)) = serde_json::from_slice(&entry.body) {
        change(&mut fields);
        entry.body = Bytes::from(Value::Object(fields).to_string());
    }
}

/// Changes the values of the metadata of this name.
pub(super) fn rewrite_attribute(entry: &mut Entry, name: &str, value: &str) {
    for (known, old) in &mut entry.attributes {
        if known == name {
            *old = Bytes::from(value.to_owned());
        }
    }
}

/// An honest sink of another configuration.
pub(super) fn reconfigured(
    parts: &Parts,
    change: impl FnOnce(&mut ReferenceConfig),
) -> Arc<dyn Sink> {
    let mut config = parts.config.clone();
    change(&mut config);
    Arc::new(ReferenceSink::new(
        config,
        Arc::clone(&parts.wire),
        &parts.services,
    ))
}

/// A sink that keeps the key which it finds in the vault first.
pub(super) fn caching(inner: Arc<dyn Sink>, parts: Parts) -> Arc<dyn Sink> {
    let Some(vault) = parts.config.vault.clone() else {
        return inner;
    };
    let kept: Arc<OnceLock<Arc<dyn Sink>>> = Arc::default();
    delivering(inner, move |inner, envelope, ctx| {
        if let Some((key_id, secret)) = vault.vault() {
            kept.get_or_init(|| {
                reconfigured(&parts, |config| {
                    config.vault = None;
                    config.key_id = key_id.to_owned();
                    config.secret = secret.to_owned();
                })
            });
        }
        let inner = kept.get().map_or(inner, Arc::clone);
        Box::pin(async move { inner.deliver(&envelope, &ctx).await })
    })
}

/// A sink that refuses what is over the limit by a count of its own.
pub(super) fn counting(
    inner: Arc<dyn Sink>,
    parts: &Parts,
    count: fn(&Message<'_>, &Envelope) -> usize,
) -> Arc<dyn Sink> {
    let limit = parts.config.max_message_bytes;
    let inline_max_bytes = parts.config.inline_max_bytes;
    let unlimited = reconfigured(parts, |config| config.max_message_bytes = usize::MAX);
    delivering(inner, move |_, envelope, ctx| {
        let unlimited = Arc::clone(&unlimited);
        Box::pin(async move {
            let message = Message::for_delivery(&envelope, &ctx, inline_max_bytes)?;
            let counted = count(&message, &envelope);
            if counted > limit {
                return Err(SinkError::permanent(
                    "MessageTooLarge",
                    format!("{counted} bytes are over {limit}"),
                ));
            }
            unlimited.deliver(&envelope, &ctx).await
        })
    })
}

/// The bytes of a message's metadata.
pub(super) fn metadata_bytes(message: &Message<'_>) -> usize {
    let attributes = message.attributes();
    attributes
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// The envelope with another body.
pub(super) fn with_body(envelope: &Envelope, body: impl Into<Bytes>) -> Envelope {
    rebuilt(envelope, envelope.source_id(), envelope.tenant_id(), body)
}

/// The envelope of another source and tenant.
pub(super) fn rebuilt(
    envelope: &Envelope,
    source: &str,
    tenant: Option<&str>,
    body: impl Into<Bytes>,
) -> Envelope {
    rebuilt_at(envelope, envelope.received_at(), source, tenant, body)
}

/// The envelope of another source, tenant and time.
pub(super) fn rebuilt_at(
    envelope: &Envelope,
    received_at: i64,
    source: &str,
    tenant: Option<&str>,
    body: impl Into<Bytes>,
) -> Envelope {
    let mut other = Envelope::new(envelope.id(), source, received_at, body)
        .with_request(envelope.method(), envelope.path())
        .with_headers(envelope.headers().iter().cloned());
    if let Some(tenant) = tenant {
        other = other.with_tenant(tenant);
    }
    if let Some(content_type) = envelope.content_type() {
        other = other.with_content_type(content_type);
    }
    if let Some(key) = envelope.dedupe_key() {
        other = other.with_dedupe_key(key);
    }
    if let Some(verification) = envelope.verification() {
        other = other.with_verification(verification.clone());
    }
    if let Some(traceparent) = envelope.traceparent() {
        other = other.with_trace(traceparent, envelope.tracestate().map(str::to_owned));
    }
    other
}
