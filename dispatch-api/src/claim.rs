//! Bodies too large for a message: stored once, carried by reference.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;

use crate::encoding::sha256_hex;
use crate::envelope::Envelope;
use crate::error::SinkError;

const PREFIX_V1: &str = "urn:ankusa:claim:v1:";
const PREFIX_V2: &str = "urn:ankusa:claim:v2:";
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The id of a stored body: 26 characters of Crockford base32.
///
/// 48 bits of unix milliseconds, 64 random bits, and 16 bits of position, so
/// that all bodies stored together differ in their last characters only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClaimId(String);

impl ClaimId {
    /// Makes an id. Only the low 48 bits of `unix_ms` are used.
    #[must_use]
    pub fn new(unix_ms: u64, random: u64, position: u16) -> Self {
        let time = u128::from(unix_ms & 0xffff_ffff_ffff);
        let bits = (time << 80) | (u128::from(random) << 16) | u128::from(position);
        let text = (0..26)
            .rev()
            .map(|digit| {
                let index = (bits >> (digit * 5)) & 0x1f;
                char::from(CROCKFORD[usize::try_from(index).unwrap_or(0)])
            })
            .collect();
        Self(text)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let valid = bytes.len() == 26
            && bytes[0] <= b'7'
            && bytes.iter().all(|byte| CROCKFORD.contains(byte));
        valid.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reference to a stored body: `urn:ankusa:claim:v1:<tenant>:<claim id>`, or
/// `v2` with an expiry and a signature behind it.
///
/// The signature is the gateway's to check; it is carried, and hidden from
/// `Debug` because it grants access.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    tenant: String,
    id: ClaimId,
    signed: Option<Signed>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Signed {
    expires: String,
    signature: String,
}

impl ClaimRef {
    /// An unsigned reference. `tenant` is 1 to 64 letters, digits, `_` or `-`.
    ///
    /// # Errors
    ///
    /// [`InvalidClaimRef`] for any other tenant.
    pub fn new(tenant: &str, id: ClaimId) -> Result<Self, InvalidClaimRef> {
        if !is_tenant(tenant) {
            return Err(InvalidClaimRef);
        }
        Ok(Self {
            tenant: tenant.to_owned(),
            id,
            signed: None,
        })
    }

    /// The tenant the body belongs to.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The id of the body.
    #[must_use]
    pub fn id(&self) -> &ClaimId {
        &self.id
    }

    /// The path and query under which a claim-check gateway serves the body.
    #[must_use]
    pub fn gateway_path(&self) -> String {
        let Self { tenant, id, signed } = self;
        match signed {
            None => format!("/v1/claims/{tenant}/{id}"),
            Some(Signed { expires, signature }) => {
                format!("/v1/claims/{tenant}/{id}?exp={expires}&sig={signature}")
            }
        }
    }
}

impl FromStr for ClaimRef {
    type Err = InvalidClaimRef;

    /// Reads either form. Nothing is trimmed or unescaped, and letter case counts.
    ///
    /// # Errors
    ///
    /// [`InvalidClaimRef`] for anything else.
    fn from_str(text: &str) -> Result<Self, InvalidClaimRef> {
        let (segments, signed) = match text.strip_prefix(PREFIX_V1) {
            Some(rest) => (rest, false),
            None => (text.strip_prefix(PREFIX_V2).ok_or(InvalidClaimRef)?, true),
        };
        let mut segments = segments.split(':');
        let mut next = || segments.next().ok_or(InvalidClaimRef);
        let tenant = next()?;
        let id = ClaimId::parse(next()?).ok_or(InvalidClaimRef)?;
        let signed = if signed {
            let (expires, signature) = (next()?, next()?);
            if !is_expiry(expires) || !is_signature(signature) {
                return Err(InvalidClaimRef);
            }
            Some(Signed {
                expires: expires.to_owned(),
                signature: signature.to_owned(),
            })
        } else {
            None
        };
        if segments.next().is_some() {
            return Err(InvalidClaimRef);
        }
        Ok(Self {
            signed,
            ..Self::new(tenant, id)?
        })
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, id, signed } = self;
        match signed {
            None => write!(f, "{PREFIX_V1}{tenant}:{id}"),
            Some(Signed { expires, signature }) => {
                write!(f, "{PREFIX_V2}{tenant}:{id}:{expires}:{signature}")
            }
        }
    }
}

impl fmt::Debug for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimRef")
            .field("tenant", &self.tenant)
            .field("id", &self.id)
            .field("signed", &self.signed.is_some())
            .finish()
    }
}

fn is_tenant(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(is_url_safe)
}

fn is_expiry(text: &str) -> bool {
    (1..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0')
}

fn is_signature(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(is_url_safe)
}

fn is_url_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The text is not a claim reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a claim reference: expected urn:ankusa:claim:v1:<tenant>:<claim id>, the tenant 1 to 64 letters, digits, `_` or `-`"
)]
pub struct InvalidClaimRef;

/// A store of bodies.
///
/// The host checks a body in once, before its sinks run, when any of them sends
/// bodies of this size by reference; all sinks of the hook share the reference.
/// Both methods may be called concurrently. Dropping a future may leave a stored
/// body that nobody refers to, never a reference to a body that is not stored.
#[async_trait]
pub trait ClaimCheck: fmt::Debug + Send + Sync + 'static {
    /// Stores the envelope's body and answers its reference, once the body is
    /// stored durably.
    ///
    /// # Errors
    ///
    /// As a delivery: `Transient` when the store is out of reach, `Permanent`
    /// when this envelope can have no reference (a tenant outside the grammar of
    /// [`ClaimRef`]).
    async fn check_in(&self, envelope: &Envelope) -> Result<ClaimRef, SinkError>;

    /// Reads a body back. It may be called any number of times. Use [`redeem`],
    /// which also checks what came.
    ///
    /// # Errors
    ///
    /// [`ClaimError`], which says whether to try again.
    async fn fetch(&self, claim: &ClaimRef) -> Result<Bytes, ClaimError>;
}

/// Reads a body back and checks it against the `sha256` (64 lower-case hex
/// digits) of the message that referred to it.
///
/// # Errors
///
/// What [`ClaimCheck::fetch`] answers, and [`ClaimError::Integrity`].
pub async fn redeem(
    store: &dyn ClaimCheck,
    claim: &ClaimRef,
    sha256: &str,
) -> Result<Bytes, ClaimError> {
    let body = store.fetch(claim).await?;
    if sha256_hex(&body) == sha256 {
        Ok(body)
    } else {
        Err(ClaimError::Integrity)
    }
}

/// Why a body could not be redeemed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// What was read is not what was stored.
    #[error("the stored body does not match the digest of its message")]
    Integrity,
    /// The body never existed or was swept.
    #[error("no body is stored under this claim")]
    NotFound,
    /// The store refuses this reference.
    #[error("the claim store refuses this reference")]
    Rejected,
    /// The store cannot be reached now.
    #[error("the claim store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ClaimError {
    /// Whether the same call can succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_moment_differ_in_their_last_characters() {
        let id = |position| ClaimId::new(1_767_225_600_123, 0x1122_3344_5566_7788, position);
        assert_eq!(id(0).as_str(), "01KDVDNA3V24H36H2NCSVRG000");
        assert_eq!(id(5).as_str(), "01KDVDNA3V24H36H2NCSVRG005");
        assert_eq!(id(65_535).as_str(), "01KDVDNA3V24H36H2NCSVRHZZZ");
    }

    #[test]
    fn a_signature_is_not_shown_by_debug() {
        let signature = "s".repeat(43);
        let claim: ClaimRef =
            format!("urn:ankusa:claim:v2:d:01KDVDNA3V24H36H2NCSVRG000:1798761600:{signature}")
                .parse()
                .unwrap();
        assert!(!format!("{claim:?}").contains(&signature));
        assert!(claim.to_string().contains(&signature));
    }

    #[test]
    fn a_tenant_outside_the_grammar_has_no_reference() {
        let id = ClaimId::new(0, 0, 0);
        for tenant in ["", "a.b", "ä", &"t".repeat(65)] {
            assert_eq!(
                ClaimRef::new(tenant, id.clone()),
                Err(InvalidClaimRef),
                "{tenant}"
            );
        }
    }
}
