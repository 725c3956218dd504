//! Signature version 4 of one request.

use std::time::SystemTime;

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use dispatch_api::SinkError;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::credentials::Credentials;

const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
const SERVICE: &str = "sqs";

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

/// The headers of the request, signature included. Those that grant access are
/// marked as sensitive.
///
/// # Errors
///
/// `Config`, code `SigningFailed`. With a checked configuration it does not happen.
pub(super) fn signed_headers(
    request: &Unsigned<'_>,
    credentials: &Credentials,
) -> Result<HeaderMap, SinkError> {
    let own = [
        (header::CONTENT_TYPE.as_str(), CONTENT_TYPE),
        ("x-amz-target", request.target),
        // Asks for the code of the older protocol beside the newer one.
        ("x-amzn-query-mode", "true"),
    ];
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

    let mut headers = HeaderMap::with_capacity(8);
    for (name, value) in own {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    let (signature, _query) = instructions.into_parts();
    for line in signature {
        let mut value = HeaderValue::from_str(line.value()).map_err(failed)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(line.name()), value);
    }
    Ok(headers)
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
        signed_headers(&request, &credentials).unwrap()
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
