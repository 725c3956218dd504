//! The message that every sink publishes: one JSON object, format version 1.

mod attributes;
mod decode;
mod encode;
mod repeat;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;

pub use self::decode::{DecodeError, DecodeErrorCode};
pub use self::encode::push_json_string;
use crate::claim::ClaimRef;
use crate::context::DeliveryContext;
use crate::envelope::{Envelope, Verification, idempotency_key};
use crate::error::SinkError;
use crate::redelivery::Redelivery;

/// The format version that [`Message::encode`] writes.
pub const MESSAGE_VERSION: u64 = 1;

/// A body up to this many bytes travels inside its message, unless a sink is
/// configured otherwise: 64 KiB.
pub const DEFAULT_INLINE_MAX_BYTES: NonZeroUsize =
    NonZeroUsize::new(65_536).expect("65,536 is not zero");

/// One message, on its way out (borrowing from its [`Envelope`]) or decoded.
///
/// The same envelope and context give the same bytes at every sink. `Debug`
/// shows names and sizes, never the body or a header's value.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The format version it was written in: 1, or 2 when decoded from a later
    /// producer.
    pub version: u64,
    /// The envelope's id. Never empty.
    pub id: Cow<'a, str>,
    /// The source of capture.
    pub source_id: Cow<'a, str>,
    /// The tenant.
    pub tenant_id: Option<Cow<'a, str>>,
    /// Unix milliseconds.
    pub received_at: i64,
    /// The hook's content type, as its sender wrote it.
    pub content_type: Option<Cow<'a, str>>,
    /// The body's length in bytes.
    pub size: u64,
    /// The sender's key of the event.
    pub dedupe_key: Option<Cow<'a, str>>,
    /// The replay this delivery belongs to.
    pub replay_id: Option<Cow<'a, str>>,
    /// The key as written by the producer; read it through
    /// [`Message::idempotency_key`].
    pub shipped_idempotency_key: Option<Cow<'a, str>>,
    /// The forwarded headers: lower-case names, each once, in order of arrival.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// SHA-256 of the body, 64 lower-case hex digits. Only messages of old
    /// producers have none, and only with the body inline.
    pub sha256: Option<Cow<'a, str>>,
    /// The body, or where it is stored.
    pub content: Content,
    /// How the hook was verified.
    pub verification: Option<Verification>,
    /// W3C trace context.
    pub traceparent: Option<Cow<'a, str>>,
    /// W3C trace context.
    pub tracestate: Option<Cow<'a, str>>,
    /// The name of the publishing instance.
    pub instance: Option<Cow<'a, str>>,
    /// The region of that instance.
    pub region: Option<Cow<'a, str>>,
    /// What is said of it as a copy for a later attempt. It travels beside the message, so
    /// that a decoded one has none: see [`Redelivery::from_attribute`].
    pub redelivery: Option<Arc<Redelivery>>,
}

/// How a message carries its body.
///
/// Closed on purpose: the wire format has these two.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Inside the message.
    Inline(Bytes),
    /// In a claim store.
    Claim(ClaimRef),
}

impl<'a> Message<'a> {
    /// The message of one delivery: the body inline up to and including
    /// `inline_max_bytes`, by `ctx.claim` above it.
    ///
    /// # Errors
    ///
    /// `Config`, code `ClaimCheckMissing`, for a larger body without a claim.
    pub fn for_delivery(
        envelope: &'a Envelope,
        ctx: &'a DeliveryContext,
        inline_max_bytes: NonZeroUsize,
    ) -> Result<Self, SinkError> {
        let size = envelope.body().len();
        let content = if size <= inline_max_bytes.get() {
            Content::Inline(envelope.body().clone())
        } else if let Some(claim) = ctx.claim() {
            Content::Claim(claim.clone())
        } else {
            return Err(SinkError::config(
                "ClaimCheckMissing",
                format!(
                    "the body of {size} bytes is over inline_max_bytes ({inline_max_bytes}) and \
                     the host has no claim check: configure one, or raise inline_max_bytes"
                ),
            ));
        };
        Ok(Self {
            version: MESSAGE_VERSION,
            id: Cow::Owned(envelope.id().to_string()),
            source_id: Cow::Borrowed(envelope.source_id()),
            tenant_id: envelope.tenant_id().map(Cow::Borrowed),
            received_at: envelope.received_at(),
            content_type: envelope.content_type().map(Cow::Borrowed),
            size: size as u64,
            dedupe_key: envelope.dedupe_key().map(Cow::Borrowed),
            replay_id: ctx.replay_id().map(Cow::Borrowed),
            shipped_idempotency_key: Some(envelope.idempotency_key()),
            headers: ctx.forward_headers().apply(envelope.headers()),
            sha256: Some(Cow::Borrowed(envelope.sha256())),
            content,
            verification: envelope.verification().cloned(),
            traceparent: envelope.traceparent().map(Cow::Borrowed),
            tracestate: envelope.tracestate().map(Cow::Borrowed),
            instance: ctx.origin().map(|origin| Cow::Borrowed(&*origin.instance)),
            region: ctx
                .origin()
                .and_then(|origin| origin.region.as_deref())
                .map(Cow::Borrowed),
            redelivery: ctx.shared_redelivery().cloned(),
        })
    }

    /// The key by which to recognise a repeat: the one the producer shipped,
    /// else [`idempotency_key`] of the fields, else the id. Opaque.
    ///
    /// [`idempotency_key`]: crate::idempotency_key
    #[must_use]
    pub fn idempotency_key(&self) -> Cow<'_, str> {
        if let Some(key) = self.shipped_idempotency_key.as_deref()
            && !key.is_empty()
        {
            return Cow::Borrowed(key);
        }
        match idempotency_key(
            self.tenant_id.as_deref(),
            &self.source_id,
            self.dedupe_key.as_deref(),
        ) {
            Some(key) => Cow::Owned(key),
            None => Cow::Borrowed(&self.id),
        }
    }

    /// The key for a consumer that wants replays processed again: as
    /// [`Message::idempotency_key`], with `#replay:<replay id>` behind it on a replay.
    #[must_use]
    pub fn idempotency_key_with_replay(&self) -> Cow<'_, str> {
        let key = self.idempotency_key();
        match &self.replay_id {
            None => key,
            Some(replay_id) => Cow::Owned(format!("{key}#replay:{replay_id}")),
        }
    }

    /// Whether the hook is known to come from its sender. A message that says
    /// nothing about it is untrusted.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.verification
            .as_ref()
            .is_some_and(Verification::is_trusted)
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("version", &self.version)
            .field("id", &self.id)
            .field("source_id", &self.source_id)
            .field("tenant_id", &self.tenant_id)
            .field("size", &self.size)
            .field("content", &self.content)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(body) => write!(f, "Inline({} bytes)", body.len()),
            Self::Claim(claim) => f.debug_tuple("Claim").field(claim).finish(),
        }
    }
}
