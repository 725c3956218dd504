//! Reading a message: every check of the format, in its order.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Content, Message};
use crate::claim::ClaimRef;
use crate::encoding::sha256_hex;
use crate::envelope::Verification;

/// The bytes are not a message. The same bytes never decode: do not retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}", self.field.map(|field| format!(": {field}")).unwrap_or_default())]
#[non_exhaustive]
pub struct DecodeError {
    /// Which check failed.
    pub code: DecodeErrorCode,
    /// The key at fault, with [`DecodeErrorCode::InvalidField`] only.
    pub field: Option<&'static str>,
}

/// The checks of the wire format, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorCode {
    /// Not one JSON text in UTF-8.
    InvalidJson,
    /// JSON, but no object.
    NotAnObject,
    /// `v` is missing, no integer, or neither 1 nor 2.
    UnsupportedVersion,
    /// A field is missing or has the wrong type or form.
    InvalidField,
    /// Both body forms are given.
    AmbiguousBody,
    /// Neither body form is given.
    MissingBody,
    /// The inline body is not strict base64.
    InvalidBodyBase64,
    /// The inline body is not as long as `size` says.
    SizeMismatch,
    /// The inline body does not match `sha256`.
    Integrity,
    /// The claim belongs to another tenant than the message.
    TenantMismatch,
}

impl DecodeErrorCode {
    /// The code as consumers in every language know it, such as `invalid_json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::NotAnObject => "not_an_object",
            Self::UnsupportedVersion => "unsupported_version",
            Self::InvalidField => "invalid_field",
            Self::AmbiguousBody => "ambiguous_body",
            Self::MissingBody => "missing_body",
            Self::InvalidBodyBase64 => "invalid_body_base64",
            Self::SizeMismatch => "size_mismatch",
            Self::Integrity => "integrity",
            Self::TenantMismatch => "tenant_mismatch",
        }
    }
}

impl fmt::Display for DecodeErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'a> Message<'a> {
    /// Reads a message, borrowing what needs no unescaping.
    ///
    /// Unknown keys are ignored; of a repeated key the last one counts. Versions
    /// 1 and 2 are read alike.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] with the first check that fails.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match serde_json::from_slice(bytes) {
            Err(_) => Err(DecodeErrorCode::InvalidJson.into()),
            Ok(Text::NotAnObject) => Err(DecodeErrorCode::NotAnObject.into()),
            Ok(Text::Object(raw)) => raw.check(),
        }
    }

    /// The message with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Message<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        Message {
            version: self.version,
            id: own(self.id),
            source_id: own(self.source_id),
            tenant_id: self.tenant_id.map(own),
            received_at: self.received_at,
            content_type: self.content_type.map(own),
            size: self.size,
            dedupe_key: self.dedupe_key.map(own),
            replay_id: self.replay_id.map(own),
            shipped_idempotency_key: self.shipped_idempotency_key.map(own),
            headers: self
                .headers
                .into_iter()
                .map(|(name, value)| (own(name), own(value)))
                .collect(),
            sha256: self.sha256.map(own),
            content: self.content,
            verification: self.verification,
            traceparent: self.traceparent.map(own),
            tracestate: self.tracestate.map(own),
            instance: self.instance.map(own),
            region: self.region.map(own),
            redelivery: self.redelivery,
        }
    }
}

impl From<DecodeErrorCode> for DecodeError {
    fn from(code: DecodeErrorCode) -> Self {
        Self { code, field: None }
    }
}

fn invalid(field: &'static str) -> DecodeError {
    DecodeError {
        code: DecodeErrorCode::InvalidField,
        field: Some(field),
    }
}

/// The fields of a message as they stand in the text, not yet checked.
#[derive(Default)]
struct Raw<'a> {
    v: Value<'a>,
    id: Value<'a>,
    source_id: Value<'a>,
    tenant_id: Value<'a>,
    received_at: Value<'a>,
    content_type: Value<'a>,
    size: Value<'a>,
    dedupe_key: Value<'a>,
    replay_id: Value<'a>,
    idempotency_key: Value<'a>,
    headers: Value<'a>,
    sha256: Value<'a>,
    body_base64: Value<'a>,
    claim: Value<'a>,
    verification: Value<'a>,
    traceparent: Value<'a>,
    tracestate: Value<'a>,
    instance: Value<'a>,
    region: Value<'a>,
}

impl<'a> Raw<'a> {
    fn slot(&mut self, key: &str) -> Option<&mut Value<'a>> {
        Some(match key {
            "v" => &mut self.v,
            "id" => &mut self.id,
            "source_id" => &mut self.source_id,
            "tenant_id" => &mut self.tenant_id,
            "received_at" => &mut self.received_at,
            "content_type" => &mut self.content_type,
            "size" => &mut self.size,
            "dedupe_key" => &mut self.dedupe_key,
            "replay_id" => &mut self.replay_id,
            "idempotency_key" => &mut self.idempotency_key,
            "headers" => &mut self.headers,
            "sha256" => &mut self.sha256,
            "body_base64" => &mut self.body_base64,
            "claim" => &mut self.claim,
            "verification" => &mut self.verification,
            "traceparent" => &mut self.traceparent,
            "tracestate" => &mut self.tracestate,
            "instance" => &mut self.instance,
            "region" => &mut self.region,
            _ => return None,
        })
    }

    /// The checks, in the order of the format: the first failure wins.
    fn check(self) -> Result<Message<'a>, DecodeError> {
        let Value::Unsigned(version @ 1..=2) = self.v else {
            return Err(DecodeErrorCode::UnsupportedVersion.into());
        };
        let id = match self.id {
            Value::Text(id) if !id.is_empty() => id,
            _ => return Err(invalid("id")),
        };
        let Value::Text(source_id) = self.source_id else {
            return Err(invalid("source_id"));
        };
        let received_at = match self.received_at {
            Value::Unsigned(at) => i64::try_from(at).map_err(|_| invalid("received_at"))?,
            Value::Negative(at) => at,
            _ => return Err(invalid("received_at")),
        };
        let Value::Unsigned(size) = self.size else {
            return Err(invalid("size"));
        };
        let tenant_id = self.tenant_id.optional_text("tenant_id")?;
        let content_type = self.content_type.optional_text("content_type")?;
        let dedupe_key = self.dedupe_key.optional_text("dedupe_key")?;
        let replay_id = self.replay_id.optional_text("replay_id")?;
        let shipped_idempotency_key = self.idempotency_key.optional_text("idempotency_key")?;
        let traceparent = self.traceparent.optional_text("traceparent")?;
        let tracestate = self.tracestate.optional_text("tracestate")?;
        let instance = self.instance.optional_text("instance")?;
        let region = self.region.optional_text("region")?;
        let headers = self.headers.headers().ok_or_else(|| invalid("headers"))?;
        let sha256 = match self.sha256 {
            Value::Absent => None,
            Value::Text(digest) if is_digest(&digest) => Some(digest),
            _ => return Err(invalid("sha256")),
        };
        let verification = self
            .verification
            .verification()
            .map_err(|()| invalid("verification"))?;
        let content = match (self.body_base64.given(), self.claim.given()) {
            (Some(_), Some(_)) => return Err(DecodeErrorCode::AmbiguousBody.into()),
            (None, None) => return Err(DecodeErrorCode::MissingBody.into()),
            (Some(body), None) => Content::Inline(decode_inline(body, size, sha256.as_deref())?),
            (None, Some(claim)) => {
                Content::Claim(decode_claim(claim, tenant_id.as_deref(), sha256.is_some())?)
            }
        };
        Ok(Message {
            version,
            id,
            source_id,
            tenant_id,
            received_at,
            content_type,
            size,
            dedupe_key,
            replay_id,
            shipped_idempotency_key,
            headers,
            sha256,
            content,
            verification,
            traceparent,
            tracestate,
            instance,
            region,
            redelivery: None,
        })
    }
}

fn decode_inline(body: Value<'_>, size: u64, sha256: Option<&str>) -> Result<Bytes, DecodeError> {
    let Value::Text(body) = body else {
        return Err(DecodeErrorCode::InvalidBodyBase64.into());
    };
    let body = STANDARD
        .decode(body.as_bytes())
        .map_err(|_| DecodeErrorCode::InvalidBodyBase64)?;
    if body.len() as u64 != size {
        return Err(DecodeErrorCode::SizeMismatch.into());
    }
    if let Some(expected) = sha256
        && sha256_hex(&body) != expected
    {
        return Err(DecodeErrorCode::Integrity.into());
    }
    Ok(body.into())
}

fn decode_claim(
    claim: Value<'_>,
    tenant_id: Option<&str>,
    has_digest: bool,
) -> Result<ClaimRef, DecodeError> {
    let Value::Text(claim) = claim else {
        return Err(invalid("claim"));
    };
    let claim: ClaimRef = claim.parse().map_err(|_| invalid("claim"))?;
    if !has_digest {
        return Err(invalid("sha256"));
    }
    if tenant_id.is_some_and(|tenant| tenant != claim.tenant()) {
        return Err(DecodeErrorCode::TenantMismatch.into());
    }
    Ok(claim)
}

fn is_digest(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A JSON text, looked at only as far as a message needs.
enum Text<'a> {
    Object(Box<Raw<'a>>),
    NotAnObject,
}

/// A JSON value, kept only as far as a message needs.
///
/// Deeper values are walked through, so that the parser's own checks (nesting,
/// escapes, UTF-8) hold for them too.
#[derive(Default)]
enum Value<'a> {
    #[default]
    Absent,
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Text(Cow<'a, str>),
    Object(Vec<(Cow<'a, str>, Self)>),
    Other,
}

impl<'a> Value<'a> {
    fn given(self) -> Option<Self> {
        match self {
            Self::Absent | Self::Null => None,
            other => Some(other),
        }
    }

    fn optional_text(self, field: &'static str) -> Result<Option<Cow<'a, str>>, DecodeError> {
        match self {
            Self::Absent | Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            _ => Err(invalid(field)),
        }
    }

    fn headers(self) -> Option<Vec<(Cow<'a, str>, Cow<'a, str>)>> {
        let members = match self {
            Self::Absent | Self::Null => return Some(Vec::new()),
            Self::Object(members) => members,
            _ => return None,
        };
        last_of_each_name(members)
            .into_iter()
            .map(|(name, value)| match value {
                Self::Text(value) => Some((name, value)),
                _ => None,
            })
            .collect()
    }

    fn verification(self) -> Result<Option<Verification>, ()> {
        let members = match self {
            Self::Absent | Self::Null => return Ok(None),
            Self::Object(members) => members,
            _ => return Err(()),
        };
        let (mut status, mut flagged) = (Self::Absent, Self::Absent);
        for (name, value) in members {
            match &*name {
                "status" => status = value,
                "flagged" => flagged = value,
                _ => {}
            }
        }
        match (status, flagged) {
            (Self::Text(status), Self::Bool(flagged)) if !status.is_empty() => {
                Ok(Some(Verification::new(status, flagged)))
            }
            _ => Err(()),
        }
    }
}

/// Of members with one name the last counts, as in any JSON object.
fn last_of_each_name<'a>(
    mut members: Vec<(Cow<'a, str>, Value<'a>)>,
) -> Vec<(Cow<'a, str>, Value<'a>)> {
    let mut seen = HashSet::with_capacity(members.len());
    let repeated: Vec<usize> = (0..members.len())
        .rev()
        .filter(|index| !seen.insert(members[*index].0.clone()))
        .collect();
    if !repeated.is_empty() {
        let repeated: HashSet<usize> = repeated.into_iter().collect();
        let mut index = 0;
        members.retain(|_| {
            index += 1;
            !repeated.contains(&(index - 1))
        });
    }
    members
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON text")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text<'de>, A::Error> {
                let mut raw = Box::<Raw<'de>>::default();
                while let Some(Name(name)) = map.next_key()? {
                    let value = map.next_value()?;
                    if let Some(slot) = raw.slot(&name) {
                        *slot = value;
                    }
                }
                Ok(Text::Object(raw))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text<'de>, A::Error> {
                while seq.next_element::<Value<'de>>()?.is_some() {}
                Ok(Text::NotAnObject)
            }

            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }

            fn visit_str<E>(self, _: &str) -> Result<Text<'de>, E> {
                Ok(Text::NotAnObject)
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Value::Object(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'de>, A::Error> {
                while seq.next_element::<Value<'de>>()?.is_some() {}
                Ok(Value::Other)
            }

            fn visit_unit<E>(self) -> Result<Value<'de>, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
                Ok(Value::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
                Ok(Value::Unsigned(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value<'de>, E> {
                Ok(Value::Negative(value))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Value<'de>, E> {
                Ok(Value::Other)
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(Value::Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

/// A member's name, borrowed where it needs no unescaping.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(NameVisitor)
    }
}
