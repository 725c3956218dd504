//! Copies for a later attempt, and the sink that takes them.
//!
//! A sink delivers envelopes, and a copy keeps a message of any producer as it is. So the
//! envelope of a copy holds the message's body as its own and the attributes as headers, and
//! says so by its method; every other envelope becomes a message of the wire format.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    DEFAULT_INLINE_MAX_BYTES, DeliveryContext, DrainReport, Envelope, EnvelopeId, Guarantees,
    HeaderField, InFlight, Message, Receipt, Received, Sink, SinkError,
};
use tokio::time::Instant;

use super::queue::{NewMessage, QueueBroker};

/// The method of an envelope that is a copy.
const COPY: &str = "COPY";
/// The header of the moment before which a copy is not handed out, in milliseconds from its
/// delivery to the sink.
const DELAY: &str = "reference-delay-ms";

/// The copy of a message for one group, as a delivery to a sink. The attempt's number is that
/// of the next.
pub(super) fn copy_of(
    received: &Received,
    group: &str,
    not_before: Option<Instant>,
) -> (Envelope, DeliveryContext) {
    let id = received
        .message()
        .ok()
        .and_then(|message| message.id.parse().ok());
    let id = id.unwrap_or_else(|| EnvelopeId::v7(0, &[0; 10]));
    let attributes = received.attributes().iter();
    let mut headers: Vec<HeaderField> = attributes
        .map(|(name, value)| HeaderField::from_bytes(name.clone(), value))
        .collect();
    if let Some(not_before) = not_before {
        let delay = not_before.saturating_duration_since(Instant::now());
        headers.push(HeaderField::new(DELAY, delay.as_millis().to_string()));
    }
    let mut envelope = Envelope::new(id, "copies", 0, received.body().clone())
        .with_request(COPY, group)
        .with_headers(headers);
    if let Some(key) = received.group() {
        envelope = envelope.with_dedupe_key(key);
    }
    let attempts = received.redelivery_count().unwrap_or(1).saturating_add(1);
    let attempt = NonZeroU32::new(attempts).unwrap_or(NonZeroU32::MIN);
    (envelope, DeliveryContext::attempt(attempt))
}

/// A sink that puts messages at a place of the reference broker.
#[derive(Debug)]
pub struct CopySink {
    broker: Arc<QueueBroker>,
    place: String,
    in_flight: InFlight,
}

impl CopySink {
    /// A sink to this place.
    #[must_use]
    pub fn new(broker: Arc<QueueBroker>, place: impl Into<String>) -> Self {
        Self {
            broker,
            place: place.into(),
            in_flight: InFlight::new(),
        }
    }
}

/// What is put for a copy.
fn copied(envelope: &Envelope, ctx: &DeliveryContext) -> NewMessage {
    let mut not_before = None;
    let mut attributes = Vec::new();
    for header in envelope.headers() {
        if header.name() == DELAY {
            let delay = header.value().parse().map(Duration::from_millis);
            not_before = delay
                .ok()
                .and_then(|delay| Instant::now().checked_add(delay));
        } else {
            let value = Bytes::from(header.value().to_owned());
            attributes.push((header.name().to_owned(), value));
        }
    }
    NewMessage {
        body: envelope.body().clone(),
        attributes,
        key: envelope.dedupe_key().map(str::to_owned),
        attempts: ctx.attempt_number().get() - 1,
        not_before,
        only_for: Some(envelope.path().to_owned()),
    }
}

/// What is put for an envelope.
fn written(envelope: &Envelope, ctx: &DeliveryContext) -> Result<NewMessage, SinkError> {
    let message = Message::for_delivery(envelope, ctx, DEFAULT_INLINE_MAX_BYTES)?;
    let attributes = message.attributes().into_iter();
    Ok(NewMessage {
        body: Bytes::from(message.encode()),
        attributes: attributes
            .map(|(name, value)| (name.to_owned(), Bytes::from(value.into_owned())))
            .collect(),
        key: None,
        attempts: 0,
        not_before: None,
        only_for: None,
    })
}

#[async_trait]
impl Sink for CopySink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _running = self.in_flight.enter()?;
        let message = match envelope.method() {
            COPY => copied(envelope, ctx),
            _ => written(envelope, ctx)?,
        };
        match self.broker.put_one(&self.place, message) {
            Some(id) => Ok(Receipt::new().with_provider_id(id)),
            None => Err(SinkError::config(
                "Missing",
                format!("no such place: create it (place {})", self.place),
            )),
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(true)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}
