//! One captured hook, as the host hands it to its sinks.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use uuid::Uuid;

use crate::encoding::sha256_hex;

/// The identity of an envelope: a UUID, version 7 where this crate makes it.
///
/// It is the same over every attempt, every sink and every restart; the
/// deduplication ids of destinations are derived from it. Printed in lower case
/// with hyphens (36 characters).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvelopeId(Uuid);

impl EnvelopeId {
    /// A version 7 id of `unix_ms` (milliseconds since 1970) and ten random bytes.
    #[must_use]
    pub fn v7(unix_ms: u64, random: &[u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, random).into_uuid())
    }
}

impl FromStr for EnvelopeId {
    type Err = InvalidEnvelopeId;

    /// Reads a UUID of any version in its 36-character form.
    ///
    /// # Errors
    ///
    /// [`InvalidEnvelopeId`] for anything else.
    fn from_str(text: &str) -> Result<Self, InvalidEnvelopeId> {
        if text.len() != 36 {
            return Err(InvalidEnvelopeId);
        }
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| InvalidEnvelopeId)
    }
}

impl fmt::Display for EnvelopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for EnvelopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an envelope id is a UUID such as 0199f3a0-4c11-7b2e-9d10-6f2a7c55e901")]
pub struct InvalidEnvelopeId;

/// How the host verified a hook when it captured it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// `ok`, `failed`, `skipped` or a word of a later version; never empty.
    pub status: String,
    /// The hook was accepted although its check failed.
    pub flagged: bool,
}

impl Verification {
    /// A verification result. An empty `status` reads as `skipped`, because the
    /// wire format has no empty one.
    pub fn new(status: impl Into<String>, flagged: bool) -> Self {
        let mut status = status.into();
        if status.is_empty() {
            status.push_str("skipped");
        }
        Self { status, flagged }
    }

    /// Whether the hook is known to come from its sender: `ok` and not flagged.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.status == "ok" && !self.flagged
    }
}

/// One header of the captured request.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderField {
    name: String,
    value: String,
}

impl HeaderField {
    /// A header whose value is text.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    /// A header as it came over the wire. A value that is not UTF-8 is read as
    /// ISO-8859-1, the historical reading of such octets (RFC 9110, section 5.5).
    pub fn from_bytes(name: impl Into<String>, value: &[u8]) -> Self {
        let value = match std::str::from_utf8(value) {
            Ok(text) => text.to_owned(),
            Err(_) => value.iter().copied().map(char::from).collect(),
        };
        Self {
            name: name.into(),
            value,
        }
    }

    /// The name as it arrived.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value. It may hold a secret: never log it.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for HeaderField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: ({} bytes)", self.name, self.value.len())
    }
}

/// One captured hook: what a sink delivers.
///
/// Cheap to clone, because the body is shared. `Debug` shows names and sizes, never the
/// body or a header's value.
#[derive(Clone)]
pub struct Envelope {
    id: EnvelopeId,
    source_id: String,
    tenant_id: Option<String>,
    received_at: i64,
    method: String,
    path: String,
    headers: Vec<HeaderField>,
    content_type: Option<String>,
    body: Bytes,
    dedupe_key: Option<String>,
    idempotency_key: Option<String>,
    verification: Option<Verification>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    sha256: Arc<OnceLock<String>>,
}

impl Envelope {
    /// An envelope of `body`, captured from `source_id` at `received_at` (unix
    /// milliseconds), with method `POST`, path `/` and everything else absent.
    pub fn new(
        id: EnvelopeId,
        source_id: impl Into<String>,
        received_at: i64,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            id,
            source_id: source_id.into(),
            tenant_id: None,
            received_at,
            method: "POST".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            content_type: None,
            body: body.into(),
            dedupe_key: None,
            idempotency_key: None,
            verification: None,
            traceparent: None,
            tracestate: None,
            sha256: Arc::default(),
        }
    }

    /// Sets the tenant.
    #[must_use]
    pub fn with_tenant(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// Sets the request's method and path.
    #[must_use]
    pub fn with_request(mut self, method: impl Into<String>, path: impl Into<String>) -> Self {
        self.method = method.into();
        self.path = path.into();
        self
    }

    /// Sets the request's headers, in order of arrival, repeated names kept.
    #[must_use]
    pub fn with_headers(mut self, headers: impl IntoIterator<Item = HeaderField>) -> Self {
        self.headers = headers.into_iter().collect();
        self
    }

    /// Sets the content type, as the sender wrote it.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the sender's key of the event, by which consumers deduplicate.
    #[must_use]
    pub fn with_dedupe_key(mut self, dedupe_key: impl Into<String>) -> Self {
        self.dedupe_key = Some(dedupe_key.into());
        self
    }

    /// Sets the key by which consumers recognise a repeat, for an envelope that is made of a
    /// message whose producer shipped one. An empty one counts as none.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into()).filter(|key| !key.is_empty());
        self
    }

    /// Sets how the hook was verified.
    #[must_use]
    pub fn with_verification(mut self, verification: Verification) -> Self {
        self.verification = Some(verification);
        self
    }

    /// Sets the W3C trace context, carried unchanged.
    #[must_use]
    pub fn with_trace(
        mut self,
        traceparent: impl Into<String>,
        tracestate: Option<String>,
    ) -> Self {
        self.traceparent = Some(traceparent.into());
        self.tracestate = tracestate;
        self
    }

    /// The identity.
    #[must_use]
    pub fn id(&self) -> EnvelopeId {
        self.id
    }

    /// The source the hook was captured under.
    #[must_use]
    pub fn source_id(&self) -> &str {
        &self.source_id
    }

    /// The tenant, where the source has one.
    #[must_use]
    pub fn tenant_id(&self) -> Option<&str> {
        self.tenant_id.as_deref()
    }

    /// When the hook was received, in unix milliseconds.
    #[must_use]
    pub fn received_at(&self) -> i64 {
        self.received_at
    }

    /// The request's method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The request's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The request's headers, in order of arrival.
    #[must_use]
    pub fn headers(&self) -> &[HeaderField] {
        &self.headers
    }

    /// The content type, as the sender wrote it.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The body, byte for byte.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The sender's key of the event.
    #[must_use]
    pub fn dedupe_key(&self) -> Option<&str> {
        self.dedupe_key.as_deref()
    }

    /// How the hook was verified.
    #[must_use]
    pub fn verification(&self) -> Option<&Verification> {
        self.verification.as_ref()
    }

    /// The W3C `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// The W3C `tracestate`.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// The SHA-256 of the body, 64 lower-case hex digits. Computed once for all
    /// sinks and attempts.
    #[must_use]
    pub fn sha256(&self) -> &str {
        self.sha256.get_or_init(|| sha256_hex(&self.body))
    }

    /// The key by which a consumer recognises a repeat: the one that was set, else tenant
    /// (`default` where there is none), source and the sender's key, joined by colons; the
    /// envelope's id where the sender gave no key. See [`idempotency_key`].
    #[must_use]
    pub fn idempotency_key(&self) -> Cow<'_, str> {
        if let Some(key) = &self.idempotency_key {
            return Cow::Borrowed(key);
        }
        match idempotency_key(
            self.tenant_id.as_deref(),
            &self.source_id,
            self.dedupe_key.as_deref(),
        ) {
            Some(key) => Cow::Owned(key),
            None => Cow::Owned(self.id.to_string()),
        }
    }
}

/// `tenant:source:dedupe_key`, or none without a (non-empty) sender's key.
///
/// Only an absent tenant reads as `default`; an empty one stays empty. Nothing
/// is escaped.
#[must_use]
pub fn idempotency_key(
    tenant_id: Option<&str>,
    source_id: &str,
    dedupe_key: Option<&str>,
) -> Option<String> {
    let dedupe_key = dedupe_key.filter(|key| !key.is_empty())?;
    let tenant = tenant_id.unwrap_or("default");
    Some(format!("{tenant}:{source_id}:{dedupe_key}"))
}

impl PartialEq for Envelope {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.source_id == other.source_id
            && self.tenant_id == other.tenant_id
            && self.received_at == other.received_at
            && self.method == other.method
            && self.path == other.path
            && self.headers == other.headers
            && self.content_type == other.content_type
            && self.body == other.body
            && self.dedupe_key == other.dedupe_key
            && self.idempotency_key == other.idempotency_key
            && self.verification == other.verification
            && self.traceparent == other.traceparent
            && self.tracestate == other.tracestate
    }
}

impl Eq for Envelope {}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("source_id", &self.source_id)
            .field("tenant_id", &self.tenant_id)
            .field("received_at", &self.received_at)
            .field("content_type", &self.content_type)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let id = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901".parse().unwrap();
        Envelope::new(id, "harbor", 1_767_225_600_123, "{}")
    }

    #[test]
    fn a_made_id_is_a_version_7_uuid_of_the_given_millisecond() {
        let id = EnvelopeId::v7(1_767_225_600_123, &[0xff; 10]);
        assert_eq!(id.to_string(), "019b76da-a87b-7fff-bfff-ffffffffffff");
    }

    #[test]
    fn an_id_in_any_other_form_is_refused() {
        for text in ["", "evt_1", "0199f3a04c117b2e9d106f2a7c55e901"] {
            assert_eq!(text.parse::<EnvelopeId>(), Err(InvalidEnvelopeId), "{text}");
        }
    }

    #[test]
    fn the_key_is_tenant_source_and_the_senders_key() {
        assert_eq!(
            envelope()
                .with_tenant("quay-7")
                .with_dedupe_key("mv-88")
                .idempotency_key(),
            "quay-7:harbor:mv-88"
        );
    }

    #[test]
    fn only_an_absent_tenant_reads_as_default() {
        let keyed = envelope().with_dedupe_key("mv-88");
        assert_eq!(keyed.idempotency_key(), "default:harbor:mv-88");
        assert_eq!(keyed.with_tenant("").idempotency_key(), ":harbor:mv-88");
    }

    #[test]
    fn without_a_senders_key_the_id_is_the_key() {
        let id = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";
        assert_eq!(envelope().idempotency_key(), id);
        assert_eq!(envelope().with_dedupe_key("").idempotency_key(), id);
    }

    #[test]
    fn header_octets_beyond_utf8_are_read_as_latin_1() {
        assert_eq!(HeaderField::from_bytes("x", b"caf\xe9").value(), "café");
        assert_eq!(
            HeaderField::from_bytes("x", "café".as_bytes()).value(),
            "café"
        );
    }

    #[test]
    fn debug_shows_neither_body_nor_header_values() {
        let shown = format!(
            "{:?}",
            envelope().with_headers([HeaderField::new("Authorization", "canary-secret")])
        );
        assert!(shown.contains("Authorization"));
        assert!(!shown.contains("canary-secret"));
        assert!(!shown.contains("{}"));
    }
}
