use std::time::Duration;

use aws_sigv4::http_request::{
    SignableBody, SignableRequest, SigningSettings, sign as sign_request,
};
use aws_sigv4::sign::v4;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const BODY: &str =
    r#"{"QueueUrl":"http://127.0.0.1:9911/000000000000/dock","MessageBody":"sink ✓"}"#;
const DATE: &str = "20261130T120000Z";
const SIGNATURE: &str = "0bc69fb44ffa528b895bd6ddf5618232aeb16965c95298d7487d66a07182e745";
const SIGNED: &str = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode";
const TOKEN_SIGNATURE: &str = "ecc1b63b387763b01dcd4f406706677252ddd359fc454cb33f8ad1fbcddc1ec9";
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

fn check(headers: &HeaderMap, body: &str, known: Credentials, now: Timestamp) -> Option<ErrorCode> {
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

/// A signature that is right for what it covers.
fn right_signature(headers: &HeaderMap, signed: &str) -> String {
    let request = SignedRequest {
        method: "POST",
        path: "/",
        headers,
        body: BODY.as_bytes(),
    };
    let names: Vec<&str> = signed.split(';').collect();
    let hash = hex::encode(Sha256::digest(BODY));
    let canonical = canonical_request(request, &names, &hash).unwrap();
    sign(
        &credentials().secret,
        "20261130/eu-west-1/sqs/aws4_request",
        DATE,
        &hex::encode(Sha256::digest(canonical)),
    )
}

#[test]
fn host_and_every_x_amz_header_must_be_signed() {
    for (signed, refused) in [
        ("host;x-amz-date;x-amz-target", None),
        ("x-amz-date;x-amz-target", Some(ErrorCode::InvalidSignature)),
        ("host;x-amz-target", Some(ErrorCode::InvalidSignature)),
        ("host;x-amz-date", Some(ErrorCode::InvalidSignature)),
    ] {
        let signature = right_signature(&headers(signed, ""), signed);
        let headers = headers(signed, &signature);
        assert_eq!(
            check(&headers, BODY, credentials(), noon()),
            refused,
            "{signed}"
        );
    }
}

#[test]
fn a_hash_of_the_body_in_a_header_must_be_right() {
    let signed = "host;x-amz-content-sha256;x-amz-date;x-amz-target";
    for (hash, refused) in [
        (
            "b76fab3ea1cb289821c57237540b14940256feeaffa07fb5286f4a2cc5e29a8b",
            None,
        ),
        ("UNSIGNED-PAYLOAD", Some(ErrorCode::InvalidSignature)),
    ] {
        let with_hash = |signature: &str| {
            let mut headers = headers(signed, signature);
            headers.insert("x-amz-content-sha256", HeaderValue::from_static(hash));
            headers
        };
        let signature = right_signature(&with_hash(""), signed);
        assert_eq!(
            check(&with_hash(&signature), BODY, credentials(), noon()),
            refused,
            "{hash}"
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

/// The headers of a request as aws-sigv4 signs it.
fn signed_elsewhere(
    credentials: &Credentials,
    extra: &[(String, String)],
    path: &str,
    body: &[u8],
    at: Timestamp,
) -> HeaderMap {
    let identity = aws_credential_types::Credentials::new(
        &credentials.access_key,
        &credentials.secret,
        credentials.session_token.clone(),
        None,
        "test",
    )
    .into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region("eu-west-1")
        .name("sqs")
        .time(at.to_system())
        .settings(SigningSettings::default())
        .build()
        .unwrap()
        .into();
    let url = format!("http://127.0.0.1:9911{path}");
    let extra = || {
        extra
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    };
    let request = SignableRequest::new("POST", &url, extra(), SignableBody::Bytes(body)).unwrap();
    let (instructions, _) = sign_request(request, &parameters).unwrap().into_parts();
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("127.0.0.1:9911"));
    for (name, value) in instructions.headers().chain(extra()) {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

proptest! {
    #[test]
    fn what_aws_sigv4_signs_is_accepted_and_a_change_of_any_byte_of_the_body_is_not(
        secret in "[ -~]{1,40}",
        token in proptest::option::of("[!-~]{1,40}"),
        // Inner spaces are folded by both sides.
        extra in proptest::collection::btree_map("x-amz-[a-z]{1,8}q", "[!-~]{1,8}( {1,3}[!-~]{1,8}){0,2}", 0..4),
        path in "(/[A-Za-z0-9_.-]{1,8}){0,2}",
        body in proptest::collection::vec(any::<u8>(), 1..200),
        seconds in 0..4_000_000_000u64,
        place in any::<prop::sample::Index>(),
    ) {
        let mut known = Credentials::new("AKIDSINKTESTKIT00001", secret);
        known.session_token = token;
        let path = if path.is_empty() { "/".to_owned() } else { path };
        prop_assume!(!path.split('/').any(|segment| segment == "." || segment == ".."));
        let at = Timestamp::from_seconds(seconds);
        let extra: Vec<_> = extra.into_iter().collect();
        let headers = signed_elsewhere(&known, &extra, &path, &body, at);
        let known = HashMap::from([(known.access_key.clone(), known)]);
        let check = |body: &[u8]| {
            let request = SignedRequest { method: "POST", path: &path, headers: &headers, body };
            verify(request, &known, "eu-west-1", at.plus(Duration::from_secs(1)))
        };
        prop_assert_eq!(check(&body), Ok(()));
        let mut tampered = body;
        let place = place.index(tampered.len());
        tampered[place] ^= 1;
        prop_assert_eq!(check(&tampered).map_err(|error| error.code()), Err(ErrorCode::InvalidSignature));
    }
}
