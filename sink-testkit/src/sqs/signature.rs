//! Verifies Signature Version 4 ("Create a signed AWS API request").
//!
//! This is written apart from the signers that it judges, and shares no code with them.

use std::collections::HashMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};

use super::clock::Timestamp;
use super::credentials::Credentials;
use super::error::{ErrorCode, ServiceError};
use super::limits::CLOCK_SKEW;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "sqs";
const TERMINATOR: &str = "aws4_request";

/// The parts of a request that a signature covers.
#[derive(Clone, Copy)]
pub(crate) struct SignedRequest<'a> {
    pub(crate) method: &'a str,
    /// The path as it was received; queries are refused before.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// Accepts a request that one of `known` signed for `region` at about `now`.
pub(crate) fn verify(
    request: SignedRequest<'_>,
    known: &HashMap<String, Credentials>,
    region: &str,
    now: Timestamp,
) -> Result<(), ServiceError> {
    let header = request
        .headers
        .get(AUTHORIZATION)
        .ok_or_else(|| ServiceError::new(ErrorCode::AccessDenied, "the request is not signed"))?;
    let authorization = header
        .to_str()
        .ok()
        .and_then(Authorization::parse)
        .ok_or_else(|| incomplete("the authorization header cannot be read"))?;
    let date = request
        .headers
        .get("x-amz-date")
        .and_then(|date| date.to_str().ok())
        .ok_or_else(|| incomplete("the header x-amz-date is missing"))?;
    let signed_at = parse_date(date).ok_or_else(|| incomplete("x-amz-date cannot be read"))?;
    let credentials = known.get(authorization.access_key).ok_or_else(|| {
        ServiceError::new(
            ErrorCode::UnrecognizedClient,
            "the security token included in the request is invalid",
        )
    })?;
    check_token(request.headers, credentials, now)?;
    authorization.check_scope(date, region)?;
    authorization.check_coverage(request.headers)?;
    check_skew(signed_at, now)?;
    let payload_hash = hex::encode(Sha256::digest(request.body));
    let claimed_hash = request.headers.get("x-amz-content-sha256");
    if claimed_hash.is_some_and(|claimed| claimed.as_bytes() != payload_hash.as_bytes()) {
        return Err(mismatch(
            "the body is not the one that x-amz-content-sha256 describes",
        ));
    }
    let canonical = canonical_request(request, &authorization.signed_headers, &payload_hash)
        .ok_or_else(|| mismatch("a signed header is missing from the request"))?;
    let expected = sign(
        &credentials.secret,
        &authorization.scope,
        date,
        &hex::encode(Sha256::digest(&canonical)),
    );
    if expected == authorization.signature {
        Ok(())
    } else {
        Err(mismatch(
            "the request signature we calculated does not match the signature you provided",
        ))
    }
}

struct Authorization<'a> {
    access_key: &'a str,
    /// Date, region, service and terminator, as one text.
    scope: String,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn parse(header: &'a str) -> Option<Self> {
        let rest = header.strip_prefix(ALGORITHM)?.strip_prefix(' ')?;
        let mut fields = HashMap::new();
        for field in rest.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            if fields.insert(name, value).is_some() {
                return None;
            }
        }
        let (access_key, scope) = fields.remove("Credential")?.split_once('/')?;
        let signed_headers: Vec<&str> = fields.remove("SignedHeaders")?.split(';').collect();
        let signature = fields.remove("Signature")?;
        let complete = fields.is_empty()
            && !access_key.is_empty()
            && scope.split('/').count() == 4
            && signed_headers.iter().all(|name| !name.is_empty())
            && !signature.is_empty();
        complete.then(|| Self {
            access_key,
            scope: scope.to_owned(),
            signed_headers,
            signature,
        })
    }

    fn check_scope(&self, date: &str, region: &str) -> Result<(), ServiceError> {
        let day = date.get(..8).unwrap_or_default();
        let expected = format!("{day}/{region}/{SERVICE}/{TERMINATOR}");
        if self.scope == expected {
            Ok(())
        } else {
            Err(mismatch(format!(
                "credential should be scoped to {expected}"
            )))
        }
    }

    /// `host` and every `x-amz-*` header must be under the signature.
    fn check_coverage(&self, headers: &HeaderMap) -> Result<(), ServiceError> {
        let required = headers
            .keys()
            .map(http::HeaderName::as_str)
            .filter(|name| name.starts_with("x-amz-"));
        for name in required.chain(["host"]) {
            if !self.signed_headers.contains(&name) {
                return Err(mismatch(format!("the header {name} must be signed")));
            }
        }
        Ok(())
    }
}

fn check_token(
    headers: &HeaderMap,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<(), ServiceError> {
    let given = headers
        .get("x-amz-security-token")
        .map(|token| token.as_bytes());
    if given
        != credentials
            .session_token
            .as_ref()
            .map(|token| token.as_bytes())
    {
        return Err(ServiceError::new(
            ErrorCode::UnrecognizedClient,
            "the security token included in the request is invalid",
        ));
    }
    match credentials.expires_at {
        Some(end) if Timestamp::from_system(end) <= now => Err(ServiceError::new(
            ErrorCode::ExpiredToken,
            "the security token included in the request is expired",
        )),
        _ => Ok(()),
    }
}

fn check_skew(signed_at: Timestamp, now: Timestamp) -> Result<(), ServiceError> {
    if now.since(signed_at) > CLOCK_SKEW {
        Err(mismatch(
            "Signature expired: it is more than 15 minutes old",
        ))
    } else if signed_at.since(now) > CLOCK_SKEW {
        Err(mismatch(
            "Signature not yet current: it is more than 15 minutes ahead",
        ))
    } else {
        Ok(())
    }
}

/// Nothing when a header that should be signed is not there.
fn canonical_request(
    request: SignedRequest<'_>,
    signed_headers: &[&str],
    payload_hash: &str,
) -> Option<Vec<u8>> {
    let mut names = signed_headers.to_vec();
    names.sort_unstable();
    let mut canonical = Vec::with_capacity(512);
    let line = |canonical: &mut Vec<u8>, bytes: &[u8]| {
        canonical.extend_from_slice(bytes);
        canonical.push(b'\n');
    };
    line(&mut canonical, request.method.as_bytes());
    line(&mut canonical, encode_path(request.path).as_bytes());
    line(&mut canonical, b"");
    for name in &names {
        let mut values = request.headers.get_all(*name).iter().peekable();
        values.peek()?;
        canonical.extend_from_slice(name.as_bytes());
        canonical.push(b':');
        for (index, value) in values.enumerate() {
            if index > 0 {
                canonical.push(b',');
            }
            canonical.extend(trimmed(value.as_bytes()));
        }
        canonical.push(b'\n');
    }
    line(&mut canonical, b"");
    line(&mut canonical, names.join(";").as_bytes());
    canonical.extend_from_slice(payload_hash.as_bytes());
    Some(canonical)
}

/// The value without space around it, and with one space where there are several.
fn trimmed(value: &[u8]) -> Vec<u8> {
    value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(&b' ')
}

/// Encodes a path that is encoded once already once more, as every service but one wants it.
fn encode_path(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn sign(secret: &str, scope: &str, date: &str, request_hash: &str) -> String {
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = mac(&key, part);
    }
    let text = format!("{ALGORITHM}\n{date}\n{scope}\n{request_hash}");
    hex::encode(mac(&key, &text))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Reads `yyyymmddThhmmssZ`.
fn parse_date(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape_is_right = bytes.len() == 16
        && bytes.iter().enumerate().all(|(index, byte)| match index {
            8 => *byte == b'T',
            15 => *byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if !shape_is_right {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<u64> { text.get(from..to)?.parse().ok() };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    let good = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !good {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days_before_1970 = 719_468;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds =
        days.checked_sub(days_before_1970)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_seconds(seconds))
}

fn incomplete(message: &str) -> ServiceError {
    ServiceError::new(ErrorCode::IncompleteSignature, message)
}

fn mismatch(message: impl Into<String>) -> ServiceError {
    ServiceError::new(ErrorCode::InvalidSignature, message)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const BODY: &str =
        r#"{"QueueUrl":"http://127.0.0.1:9911/000000000000/dock","MessageBody":"sink ✓"}"#;
    const DATE: &str = "20261130T120000Z";
    const SIGNATURE: &str = "0bc69fb44ffa528b895bd6ddf5618232aeb16965c95298d7487d66a07182e745";
    const SIGNED: &str = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode";
    const TOKEN_SIGNATURE: &str =
        "ecc1b63b387763b01dcd4f406706677252ddd359fc454cb33f8ad1fbcddc1ec9";
    const TOKEN_SIGNED: &str =
        "content-type;host;x-amz-date;x-amz-security-token;x-amz-target;x-amzn-query-mode";

    fn noon() -> Timestamp {
        parse_date(DATE).unwrap()
    }

    fn credentials() -> Credentials {
        Credentials::new(
            "AKIDSINKTESTKIT00001",
            "sinkTestSecret+NotReal/0000000000000001",
        )
    }

    fn headers(signed: &str, signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "127.0.0.1:9911"),
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-date", DATE),
            ("x-amz-target", "AmazonSQS.SendMessage"),
            ("x-amzn-query-mode", "true"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDSINKTESTKIT00001/20261130/eu-west-1/sqs/aws4_request, \
             SignedHeaders={signed}, Signature={signature}"
        );
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        headers
    }

    fn check(
        headers: &HeaderMap,
        body: &str,
        known: Credentials,
        now: Timestamp,
    ) -> Option<ErrorCode> {
        let request = SignedRequest {
            method: "POST",
            path: "/",
            headers,
            body: body.as_bytes(),
        };
        let known = HashMap::from([(known.access_key.clone(), known)]);
        verify(request, &known, "eu-west-1", now)
            .err()
            .map(|error| error.code())
    }

    #[test]
    fn the_known_answer_is_accepted_without_a_token() {
        let headers = headers(SIGNED, SIGNATURE);
        assert_eq!(check(&headers, BODY, credentials(), noon()), None);
        let request = SignedRequest {
            method: "POST",
            path: "/",
            headers: &headers,
            body: BODY.as_bytes(),
        };
        let names: Vec<&str> = SIGNED.split(';').collect();
        let hash = hex::encode(Sha256::digest(BODY));
        assert_eq!(
            hash,
            "b76fab3ea1cb289821c57237540b14940256feeaffa07fb5286f4a2cc5e29a8b"
        );
        let canonical = canonical_request(request, &names, &hash).unwrap();
        assert_eq!(
            hex::encode(Sha256::digest(canonical)),
            "96a2709efc0a4e9219da88918933cc96ac2eb426fa1595cc3416c6973de46326"
        );
    }

    #[test]
    fn the_known_answer_is_accepted_with_a_token() {
        let mut headers = headers(TOKEN_SIGNED, TOKEN_SIGNATURE);
        headers.insert(
            "x-amz-security-token",
            HeaderValue::from_static("sink-session-token-1"),
        );
        let known = credentials().with_session_token("sink-session-token-1");
        assert_eq!(check(&headers, BODY, known, noon()), None);
    }

    #[test]
    fn a_wrong_secret_and_a_tampered_body_do_not_match() {
        let headers = headers(SIGNED, SIGNATURE);
        let wrong = Credentials::new("AKIDSINKTESTKIT00001", "other");
        assert_eq!(
            check(&headers, BODY, wrong, noon()),
            Some(ErrorCode::InvalidSignature)
        );
        let tampered = BODY.replace("sink", "sunk");
        assert_eq!(
            check(&headers, &tampered, credentials(), noon()),
            Some(ErrorCode::InvalidSignature)
        );
    }

    #[test]
    fn a_date_is_good_up_to_15_minutes_off_in_both_directions() {
        let headers = headers(SIGNED, SIGNATURE);
        let seconds = noon().seconds();
        for good in [seconds - 900, seconds + 900] {
            assert_eq!(
                check(&headers, BODY, credentials(), Timestamp::from_seconds(good)),
                None
            );
        }
        for bad in [seconds - 901, seconds + 901] {
            assert_eq!(
                check(&headers, BODY, credentials(), Timestamp::from_seconds(bad)),
                Some(ErrorCode::InvalidSignature)
            );
        }
    }

    #[test]
    fn host_and_every_x_amz_header_must_be_signed() {
        for signed in [
            "content-type;x-amz-date;x-amz-target",
            "host;x-amz-target",
            "host;x-amz-date",
        ] {
            let headers = headers(signed, SIGNATURE);
            assert_eq!(
                check(&headers, BODY, credentials(), noon()),
                Some(ErrorCode::InvalidSignature),
                "{signed}"
            );
        }
    }

    #[test]
    fn a_signed_header_that_is_not_there_does_not_match() {
        let mut headers = headers(SIGNED, SIGNATURE);
        headers.remove("x-amzn-query-mode");
        assert_eq!(
            check(&headers, BODY, credentials(), noon()),
            Some(ErrorCode::InvalidSignature)
        );
    }

    #[test]
    fn an_authorization_that_cannot_be_read_is_incomplete() {
        for authorization in [
            "",
            "Basic dGVzdDp0ZXN0",
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=a/20261130/r/sqs/aws4_request, SignedHeaders=host",
            "AWS4-HMAC-SHA256 Credential=a/r/sqs/aws4_request, SignedHeaders=host, Signature=x",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=x",
            "AWS4-HMAC-SHA256 nonsense",
        ] {
            let mut headers = headers(SIGNED, SIGNATURE);
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            assert_eq!(
                check(&headers, BODY, credentials(), noon()),
                Some(ErrorCode::IncompleteSignature),
                "{authorization}"
            );
        }
    }

    #[test]
    fn a_missing_or_unreadable_date_is_incomplete() {
        let mut headers = headers(SIGNED, SIGNATURE);
        headers.insert(
            "x-amz-date",
            HeaderValue::from_static("2026-11-30T12:00:00Z"),
        );
        assert_eq!(
            check(&headers, BODY, credentials(), noon()),
            Some(ErrorCode::IncompleteSignature)
        );
        headers.remove("x-amz-date");
        assert_eq!(
            check(&headers, BODY, credentials(), noon()),
            Some(ErrorCode::IncompleteSignature)
        );
    }

    #[test]
    fn dates_are_read_across_leap_years() {
        for (text, seconds) in [
            ("19700101T000000Z", 0),
            ("20000229T000000Z", 951_782_400),
            ("20261130T120000Z", 1_796_040_000),
            ("21000301T000000Z", 4_107_542_400),
        ] {
            assert_eq!(
                parse_date(text),
                Some(Timestamp::from_seconds(seconds)),
                "{text}"
            );
        }
    }
}
