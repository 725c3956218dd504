use super::*;
use crate::entry::Entry;
use crate::share::tests::nowhere;
use dispatch_api::{Clock, ErrorClass, RETRY_AFTER_CEILING};
use proptest::prelude::*;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

const QUEUE_URL: &str = "http://127.0.0.1:1/000000000000/hooks";
const MISSING_QUEUE: &str =
    r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no such queue"}"#;

fn entry() -> Entry<'static> {
    Entry {
        body: "sink ✓, a body that is long enough to be repeated by a careless server",
        quoted_body: r#""sink ✓, a body that is long enough to be repeated by a careless server""#,
        attributes: vec![(
            "zeta",
            Cow::Borrowed("river of words that could be repeated"),
        )],
        group_id: None,
        deduplication_id: None,
        size: 0,
    }
}

fn prepared() -> Prepared {
    Prepared::new(&entry(), NonZeroU32::MIN, &nowhere())
}

/// 2026-11-30T12:00:00Z, for ever.
#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_040_000)
    }
}

fn services() -> HostServices {
    HostServices::new().with_clock(Arc::new(Noon)).with_seed(1)
}

/// What a throttled first attempt waits with the seed above: a part of 500 ms.
const FIRST_DRAW: ErrorClass = ErrorClass::RetryAfter(Duration::from_nanos(328_519_756));

fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
    Answer {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect(),
        body: body.as_bytes().to_vec(),
    }
}

fn judge(answer: &Answer) -> Result<Receipt, SinkError> {
    let credentials = Credentials::new("AKIDCANARY", "secret-canary", Some("token-canary"), "test");
    sent(
        answer,
        &prepared(),
        &Asked {
            queue_url: QUEUE_URL,
            credentials: &credentials,
            services: &services(),
        },
    )
}

fn error(status: u16, headers: &[(&'static str, &str)], body: &str) -> SinkError {
    judge(&answer(status, headers, body)).unwrap_err()
}

fn reply(body_md5: &str, more: &str) -> String {
    format!(r#"{{"MessageId":"m-1","MD5OfMessageBody":"{body_md5}"{more}}}"#)
}

#[test]
fn a_200_with_both_digests_is_a_receipt() {
    let attributes = entry().attributes_md5().unwrap();
    let more = format!(r#","MD5OfMessageAttributes":"{attributes}","SequenceNumber":"18""#);
    let receipt = judge(&answer(
        200,
        &[],
        &reply(&entry().body_md5().to_string(), &more),
    ))
    .unwrap();
    assert_eq!(receipt.provider_id.as_deref(), Some("m-1"));
    assert_eq!(receipt.sequence.as_deref(), Some("18"));
}

#[test]
fn a_digest_is_compared_without_regard_to_case() {
    let upper = entry().body_md5().to_string().to_uppercase();
    judge(&answer(200, &[], &reply(&upper, ""))).unwrap();
}

#[test]
fn a_wrong_digest_is_an_error_whose_outcome_is_unknown() {
    let other = "0".repeat(32);
    let attributes = format!(r#","MD5OfMessageAttributes":"{other}""#);
    for body in [
        reply(&other, ""),
        reply(&entry().body_md5().to_string(), &attributes),
    ] {
        let error = error(200, &[], &body);
        assert_eq!(error.code(), "Md5Mismatch");
        assert_eq!(error.class(), ErrorClass::Transient);
        assert_eq!(error.outcome(), Outcome::Unknown);
    }
}

#[test]
fn a_missing_digest_of_the_attributes_is_accepted() {
    judge(&answer(
        200,
        &[],
        &reply(&entry().body_md5().to_string(), ""),
    ))
    .unwrap();
}

#[test]
fn a_message_without_attributes_needs_no_digest_of_them() {
    let bare = Entry {
        attributes: Vec::new(),
        ..entry()
    };
    assert_eq!(bare.attributes_md5(), None);
}

#[test]
fn a_missing_message_id_is_accepted_because_the_digest_proves_the_message() {
    let body = format!(r#"{{"MD5OfMessageBody":"{}"}}"#, entry().body_md5());
    assert_eq!(judge(&answer(200, &[], &body)).unwrap(), Receipt::new());
}

#[test]
fn every_other_success_is_unexpected() {
    for (status, body) in [
        (200, ""),
        (200, "{}"),
        (200, "<html>"),
        (200, "{\"MD5OfMessageBody\":"),
        (200, MISSING_QUEUE),
        (202, ""),
        (204, ""),
    ] {
        let error = error(status, &[], body);
        assert_eq!(error.code(), "UnexpectedReply", "{status} {body}");
        assert_eq!(error.class(), ErrorClass::Transient);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(error.status(), Some(status));
    }
}

#[test]
fn one_missing_queue_in_every_spelling_is_one_error() {
    let legacy = "AWS.SimpleQueueService.NonExistentQueue;Sender";
    let document = |code: &str| format!(r#"{{"__type":"{code}","message":"m"}}"#);
    let link = "QueueDoesNotExist:http://internal.example/";
    for (headers, body) in [
        (vec![("x-amzn-query-error", legacy)], document("Sender")),
        (vec![("x-amzn-errortype", link)], document("com.x#Other")),
        (vec![], document("com.amazonaws.sqs#QueueDoesNotExist")),
        (vec![], document("AWS.SimpleQueueService.NonExistentQueue")),
        (vec![], r#"{"code":"QueueDoesNotExist"}"#.to_owned()),
        (vec![("x-amzn-query-error", legacy)], String::new()),
    ] {
        let error = error(400, &headers, &body);
        assert_eq!(error.code(), "QueueDoesNotExist", "{headers:?} {body}");
        assert_eq!(error.class(), ErrorClass::Config);
        assert!(
            error
                .text()
                .contains("create the queue or correct queue_url")
        );
        assert!(error.text().contains(QUEUE_URL));
    }
}

#[test]
fn the_bodys_code_decides_before_the_older_protocols_name() {
    let headers = [("x-amzn-query-error", "AccessDenied;Sender")];
    let error = error(400, &headers, MISSING_QUEUE);
    assert_eq!(error.code(), "QueueDoesNotExist");
}

#[test]
fn throttling_is_a_pause_at_any_status_and_whoever_is_to_blame() {
    for (status, code) in [
        (403, "com.amazonaws.sqs#RequestThrottled"),
        (400, "com.amazon.coral.availability#ThrottlingException"),
        (400, "KMS.ThrottlingException"),
        (503, "ServiceUnavailable"),
    ] {
        let headers = [("x-amzn-query-error", "x;Sender")];
        let error = error(status, &headers, &format!(r#"{{"__type":"{code}"}}"#));
        assert_eq!(error.class(), FIRST_DRAW, "of the first window");
    }
}

#[test]
fn the_servers_own_pause_wins_and_is_bounded() {
    let class = |value: &str| {
        error(
            400,
            &[("retry-after", value)],
            r#"{"__type":"ThrottlingException"}"#,
        )
        .class()
    };
    assert_eq!(
        class("120"),
        ErrorClass::RetryAfter(Duration::from_secs(120))
    );
    assert_eq!(class("1e30"), ErrorClass::RetryAfter(RETRY_AFTER_CEILING));
    for nonsense in ["-5", "NaN", "later"] {
        assert_eq!(class(nonsense), FIRST_DRAW, "{nonsense}");
    }
}

#[test]
fn an_error_of_the_service_is_not_stored_below_500_and_unknown_above() {
    for (status, outcome) in [
        (400, Outcome::NotStored),
        (403, Outcome::NotStored),
        (500, Outcome::Unknown),
        (503, Outcome::Unknown),
    ] {
        let error = error(status, &[], r#"{"__type":"OverLimit"}"#);
        assert_eq!(error.outcome(), outcome, "{status}");
    }
}

#[test]
fn an_internal_failure_leaves_it_open_what_was_stored_whatever_the_status() {
    for status in [400, 500] {
        let error = error(status, &[], r#"{"__type":"InternalFailure"}"#);
        assert_eq!(error.outcome(), Outcome::Unknown, "{status}");
    }
}

#[test]
fn the_code_of_a_document_in_another_dialect_decides_and_its_words_stay_behind() {
    for body in [
        r#"{"Code":"AccessDenied"}"#,
        "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
         <Message>canary</Message></Error></ErrorResponse>",
    ] {
        let error = error(403, &[], body);
        assert_eq!(error.code(), "AccessDenied");
        assert_eq!(error.class(), ErrorClass::Config);
        assert!(!error.to_string().contains("canary"));
    }
}

#[test]
fn an_expired_token_is_transient() {
    let error = error(403, &[], r#"{"__type":"ExpiredTokenException"}"#);
    assert_eq!(error.class(), ErrorClass::Transient);
    assert_eq!(error.code(), "ExpiredToken");
}

#[test]
fn an_answer_that_is_not_the_services_is_judged_by_its_status_and_never_shown() {
    for (status, body) in [
        (502, "<html>canary</html>"),
        (500, ""),
        (302, "canary"),
        (403, r#"{"message":"canary"}"#),
        (404, r#"["canary"]"#),
        (418, "\"canary\""),
    ] {
        let error = error(status, &[], body);
        assert_eq!(error.code(), "HttpStatus", "{status}");
        assert_eq!(error.class(), ErrorClass::Transient);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(error.status(), Some(status));
        assert!(!error.to_string().contains("canary"));
    }
    for status in [429, 503] {
        let class = error(status, &[("retry-after", "3")], "").class();
        assert_eq!(class, ErrorClass::RetryAfter(Duration::from_secs(3)));
    }
}

#[test]
fn an_unknown_code_is_one_stable_code_and_its_name_is_in_the_text() {
    let error = error(400, &[], r#"{"__type":"com.x#BrandNewException"}"#);
    assert_eq!(error.code(), "ServiceError");
    assert!(error.text().contains("`BrandNew`"), "{error}");
}

#[test]
fn the_services_words_are_quoted_on_one_short_line() {
    let document = |message: &str| {
        serde_json::json!({"__type": "InvalidParameterValue", "message": message}).to_string()
    };
    let quoted = error(
        400,
        &[],
        &document("Reason: must be shorter\nthan 1024 bytes."),
    );
    assert!(
        quoted
            .text()
            .ends_with("the service says: Reason: must be shorter than 1024 bytes.")
    );
    let long = error(400, &[], &document(&"x".repeat(10_000)));
    assert!(long.text().len() < 600);
}

#[test]
fn words_that_repeat_a_secret_or_the_message_are_withheld() {
    for message in [
        "the canonical string has x-amz-security-token:token-canary".to_owned(),
        "AKIDCANARY is not known".to_owned(),
        "it is secret-canary".to_owned(),
        format!("value {} is refused", entry().body),
        format!("value {} is refused", entry().attributes[0].1),
    ] {
        let body = serde_json::json!({"__type": "AccessDenied", "message": message}).to_string();
        let error = error(403, &[], &body);
        for forbidden in ["canary", "CANARY", "careless", "river"] {
            assert!(!format!("{error} {error:?}").contains(forbidden), "{error}");
        }
    }
}

#[test]
fn a_refused_signature_shows_how_far_the_clocks_are_apart() {
    let text = |date: &str| {
        error(
            403,
            &[("date", date)],
            r#"{"__type":"com.amazon.coral.service#InvalidSignatureException"}"#,
        )
        .text()
        .to_owned()
    };
    assert!(text("Mon, 30 Nov 2026 12:20:00 GMT").contains("1200 s behind"));
    assert!(text("Mon, 30 Nov 2026 11:50:00 GMT").contains("600 s ahead of"));
    assert!(!text("Mon, 30 Nov 2026 12:01:00 GMT").contains(" s "));
}

#[test]
fn the_request_id_is_kept_where_it_can_be_one() {
    let with_id = |id: &str| error(400, &[("x-amzn-requestid", id)], MISSING_QUEUE);
    assert_eq!(with_id("r-1").request_id(), Some("r-1"));
    assert_eq!(with_id(&"r".repeat(129)).request_id(), None);
    assert_eq!(with_id("two words").request_id(), None);
}

proptest! {
    #[test]
    fn any_answer_gives_an_answer_and_ok_only_with_the_digest(
        status in 200_u16..600,
        names in proptest::collection::vec(
            prop::sample::select(vec![
                "x-amzn-errortype", "x-amzn-query-error", "x-amzn-requestid", "retry-after", "date",
            ]),
            0..4,
        ),
        value in "[ -~]{0,40}",
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            "\\{\"(__type|[cC]ode|message|MD5OfMessageBody)\":\"[ -~]{0,40}\"\\}".prop_map(String::into_bytes),
            "(<Error>|<Code>|</Code>|</Error>|[ -~é]){0,12}".prop_map(String::into_bytes),
        ],
    ) {
        let headers = names
            .into_iter()
            .map(|name| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let answer = Answer { status, headers, body };
        let error = judge(&answer).unwrap_err();
        prop_assert_eq!(error.status(), Some(status));
        prop_assert!(error.text().len() < 1_000);
        if let ErrorClass::RetryAfter(pause) = error.class() {
            prop_assert!(pause <= RETRY_AFTER_CEILING);
        }
    }
}
