//! Signature version 4 of one request.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use dispatch_api::SinkError;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::credentials::{Credentials, is_token};

const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
const SERVICE: &str = "sqs";

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const AMZ_TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// Asks for the code of the older protocol beside the newer one.
const AMZN_QUERY_MODE: HeaderName = HeaderName::from_static("x-amzn-query-mode");

/// What a signature is made of, beside the credentials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsigned<'a> {
    /// Where the request goes; its host is signed.
    pub(super) url: &'a str,
    pub(super) region: &'a str,
    /// The operation, as `x-amz-target` names it.
    pub(super) target: &'static str,
    pub(super) body: &'a [u8],
    pub(super) time: SystemTime,
}

/// Signs the requests of one client.
///
/// Its requests differ in little: it writes down what is signed without the general
/// library, and keeps the key that is derived from the secret, which holds for a day.
#[derive(Default)]
pub(super) struct Signer {
    key: Mutex<Option<DayKey>>,
}

/// A signing key, and what it was derived from.
struct DayKey {
    date: [u8; 8],
    region: String,
    secret: Zeroizing<String>,
    key: Zeroizing<Vec<u8>>,
}

impl Signer {
    /// The headers of the request, signature included. Those that grant access are
    /// marked as sensitive.
    ///
    /// # Errors
    ///
    /// `Config`, code `SigningFailed`. With a checked configuration it does not happen.
    pub(super) fn headers(
        &self,
        request: &Unsigned<'_>,
        credentials: &Credentials,
    ) -> Result<HeaderMap, SinkError> {
        let (Some(host), Some(stamp)) = (host_of_root(request.url), Stamp::of(request.time)) else {
            return signed_by_library(request, credentials);
        };
        let keys = credentials.for_signing();
        if !credentials.secrets().all(is_token) {
            // White space has a spelling of its own in a signature.
            return signed_by_library(request, credentials);
        }
        let signed_names = match keys.session_token() {
            None => "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode",
            Some(_) => {
                "content-type;host;x-amz-date;x-amz-security-token;x-amz-target;x-amzn-query-mode"
            }
        };
        let (date, time) = (stamp.date(), stamp.as_str());
        let scope = [date, "/", request.region, "/", SERVICE, "/aws4_request"].concat();
        let mut canonical = Zeroizing::new(String::with_capacity(512));
        canonical.extend([
            "POST\n/\n\ncontent-type:",
            CONTENT_TYPE,
            "\nhost:",
            host,
            "\nx-amz-date:",
            time,
        ]);
        if let Some(token) = keys.session_token() {
            canonical.extend(["\nx-amz-security-token:", token]);
        }
        canonical.extend([
            "\nx-amz-target:",
            request.target,
            "\nx-amzn-query-mode:true\n\n",
            signed_names,
            "\n",
            Hex::of(request.body).as_str(),
        ]);
        let to_sign = [
            "AWS4-HMAC-SHA256\n",
            time,
            "\n",
            &scope,
            "\n",
            Hex::of(canonical.as_bytes()).as_str(),
        ]
        .concat();
        let signature = self.signature(request, keys.secret_access_key(), &stamp, &to_sign);
        let authorization = [
            "AWS4-HMAC-SHA256 Credential=",
            keys.access_key_id(),
            "/",
            &scope,
            ", SignedHeaders=",
            signed_names,
            ", Signature=",
            &signature,
        ]
        .concat();

        let mut headers = own_headers(request);
        headers.insert(AMZ_DATE, HeaderValue::from_str(time).map_err(failed)?);
        headers.insert(header::AUTHORIZATION, sensitive(&authorization)?);
        if let Some(token) = keys.session_token() {
            headers.insert(AMZ_SECURITY_TOKEN, sensitive(token)?);
        }
        Ok(headers)
    }

    fn signature(
        &self,
        request: &Unsigned<'_>,
        secret: &str,
        stamp: &Stamp,
        to_sign: &str,
    ) -> String {
        // A key is replaced as a whole: a panic leaves none that is half right.
        let mut kept = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match &mut *kept {
            Some(key) if key.is_for(request.region, secret, stamp) => key,
            stale => stale.insert(DayKey::derive(request, secret, stamp)),
        };
        v4::calculate_signature(&*key.key, to_sign.as_bytes())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl DayKey {
    fn derive(request: &Unsigned<'_>, secret: &str, stamp: &Stamp) -> Self {
        let key = v4::generate_signing_key(secret, request.time, request.region, SERVICE);
        Self {
            date: stamp.day(),
            region: request.region.to_owned(),
            secret: Zeroizing::new(secret.to_owned()),
            key: Zeroizing::new(key.as_ref().to_vec()),
        }
    }

    fn is_for(&self, region: &str, secret: &str, stamp: &Stamp) -> bool {
        self.date == stamp.day() && self.region == region && *self.secret == secret
    }
}

/// A moment as a signature writes it: `20261130T120000Z`.
struct Stamp([u8; 16]);

impl Stamp {
    /// None for a year without four digits.
    fn of(time: SystemTime) -> Option<Self> {
        const DAY: u64 = 86_400;
        let unix = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        // Years that begin in March have their leap day at the end: the day of such a
        // year gives its month without a table.
        let days = unix / DAY + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        if year > 9_999 {
            return None;
        }
        let second = unix % DAY;
        let mut stamp = *b"00000000T000000Z";
        digits(&mut stamp[0..4], year);
        digits(&mut stamp[4..6], month);
        digits(&mut stamp[6..8], day);
        digits(&mut stamp[9..11], second / 3_600);
        digits(&mut stamp[11..13], second / 60 % 60);
        digits(&mut stamp[13..15], second % 60);
        Some(Self(stamp))
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and two letters are ASCII")
    }

    fn date(&self) -> &str {
        &self.as_str()[..8]
    }

    fn day(&self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

/// A SHA-256 in lower-case hex.
struct Hex([u8; 64]);

impl Hex {
    fn of(bytes: &[u8]) -> Self {
        let mut digits = [0; 64];
        hex::encode_to_slice(Sha256::digest(bytes), &mut digits)
            .expect("32 bytes are written as 64 digits");
        Self(digits)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits are ASCII")
    }
}

/// Writes a number, its last digit last.
fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The host and port of a URL that has nothing but them; none for one with a path, whose
/// spelling in a signature has rules of its own.
fn host_of_root(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.strip_suffix('/')?;
    (!host.contains(['/', '?', '#', '@'])).then_some(host)
}

fn own_headers(request: &Unsigned<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(AMZ_TARGET, HeaderValue::from_static(request.target));
    headers.insert(AMZN_QUERY_MODE, HeaderValue::from_static("true"));
    headers
}

/// As [`Signer::headers`], for any URL, deriving the key anew.
fn signed_by_library(
    request: &Unsigned<'_>,
    credentials: &Credentials,
) -> Result<HeaderMap, SinkError> {
    let mut headers = own_headers(request);
    let own: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().expect("our own are ASCII")))
        .collect();
    let identity = credentials.for_signing().clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(request.region)
        .name(SERVICE)
        .time(request.time)
        .settings(SigningSettings::default())
        .build()
        .map_err(failed)?
        .into();
    let signable = SignableRequest::new(
        "POST",
        request.url,
        own.into_iter(),
        SignableBody::Bytes(request.body),
    )
    .map_err(failed)?;
    let (instructions, _signature) = sign(signable, &params).map_err(failed)?.into_parts();

    let (signature, _query) = instructions.into_parts();
    for line in signature {
        headers.insert(
            HeaderName::from_static(line.name()),
            sensitive(line.value())?,
        );
    }
    Ok(headers)
}

fn sensitive(value: &str) -> Result<HeaderValue, SinkError> {
    let mut value = HeaderValue::from_str(value).map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> SinkError {
    SinkError::config(
        "SigningFailed",
        "the request cannot be signed: check region, access_key_id and session_token",
    )
    .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    const BODY: &str =
        r#"{"QueueUrl":"http://127.0.0.1:9911/000000000000/dock","MessageBody":"sink ✓"}"#;

    fn authorization(session_token: Option<&str>) -> HeaderMap {
        assert_eq!(BODY.len(), 79);
        let credentials = Credentials::new(
            "AKIDSINKTESTKIT00001",
            "sinkTestSecret+NotReal/0000000000000001",
            session_token,
            "test",
        );
        let request = Unsigned {
            url: "http://127.0.0.1:9911/",
            region: "eu-west-1",
            target: "AmazonSQS.SendMessage",
            body: BODY.as_bytes(),
            // 2026-11-30T12:00:00Z
            time: UNIX_EPOCH + Duration::from_secs(1_796_040_000),
        };
        Signer::default().headers(&request, &credentials).unwrap()
    }

    proptest::proptest! {
        /// The library judges what is written here by hand.
        #[test]
        fn every_signature_is_that_of_the_library(
            seconds in 0_u64..253_402_300_800,
            body in "\\PC{0,64}",
            token in proptest::option::of("[!-~]{1,40}"),
            secrets in proptest::collection::vec("[!-~]{1,40}", 1..4),
            port in 1_u16..,
            target in proptest::sample::select(&["AmazonSQS.SendMessage", "AmazonSQS.SendMessageBatch"]),
        ) {
            let signer = Signer::default();
            let url = format!("http://queue.example:{port}/");
            // The same signer before and after midnight, and with other keys.
            for (secret, day) in secrets.iter().flat_map(|secret| [(secret, 0), (secret, 1), (secret, 0)]) {
                let credentials = Credentials::new("AKIDSINKTESTKIT00001", secret, token.as_deref(), "test");
                let request = Unsigned {
                    url: &url,
                    region: "eu-west-1",
                    target,
                    body: body.as_bytes(),
                    time: UNIX_EPOCH + Duration::from_secs((seconds + day * 86_400) % 253_402_300_800),
                };
                proptest::prop_assert_eq!(
                    signer.headers(&request, &credentials).unwrap(),
                    signed_by_library(&request, &credentials).unwrap()
                );
            }
        }
    }

    #[test]
    fn only_a_bare_host_is_signed_by_hand() {
        assert_eq!(
            host_of_root("https://sqs.eu-west-1.amazonaws.com/"),
            Some("sqs.eu-west-1.amazonaws.com")
        );
        assert_eq!(host_of_root("http://[::1]:9324/"), Some("[::1]:9324"));
        for other in [
            "http://h/base/",
            "http://h/?q=/",
            "http://u@h/",
            "http://h",
            "h/",
        ] {
            assert_eq!(host_of_root(other), None, "{other}");
        }
    }

    #[test]
    fn the_known_request_has_the_known_signature() {
        let headers = authorization(None);
        assert_eq!(headers["x-amz-date"], "20261130T120000Z");
        assert_eq!(
            headers["authorization"],
            "AWS4-HMAC-SHA256 \
             Credential=AKIDSINKTESTKIT00001/20261130/eu-west-1/sqs/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode, \
             Signature=0bc69fb44ffa528b895bd6ddf5618232aeb16965c95298d7487d66a07182e745"
        );
        assert!(!headers.contains_key("x-amz-security-token"));
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let headers = authorization(Some("sink-session-token-1"));
        assert_eq!(headers["x-amz-security-token"], "sink-session-token-1");
        assert_eq!(
            headers["authorization"],
            "AWS4-HMAC-SHA256 \
             Credential=AKIDSINKTESTKIT00001/20261130/eu-west-1/sqs/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target;x-amzn-query-mode, \
             Signature=ecc1b63b387763b01dcd4f406706677252ddd359fc454cb33f8ad1fbcddc1ec9"
        );
    }

    #[test]
    fn headers_that_grant_access_are_hidden_from_debug() {
        let headers = authorization(Some("sink-session-token-1"));
        let shown = format!("{headers:?}");
        assert!(!shown.contains("sink-session-token-1"), "{shown}");
        assert!(!shown.contains("AKIDSINKTESTKIT00001"), "{shown}");
    }
}
