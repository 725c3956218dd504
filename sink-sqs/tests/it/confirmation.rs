//! Answers that say yes, more or less.

use dispatch_api::Outcome;
use http::StatusCode;
use serde_json::json;
use sink_testkit::sqs::{Answer, Damage, Fault};

use crate::bench::{Bench, parts};

#[tokio::test]
async fn a_wrong_digest_of_the_body_or_the_attributes_is_never_ok() {
    for damage in [Damage::BodyDigestWrong, Damage::AttributeDigestWrong] {
        let bench = Bench::faulty(Fault::damaged(damage)).await;
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("transient", Outcome::Unknown, "Md5Mismatch"),
            "{damage:?}"
        );
        assert_eq!(error.status(), Some(200));
        assert!(error.request_id().is_some());
    }
}

#[tokio::test]
async fn a_missing_digest_of_the_body_is_never_ok() {
    let bench = Bench::faulty(Fault::damaged(Damage::BodyDigestMissing)).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "UnexpectedReply")
    );
}

#[tokio::test]
async fn a_missing_digest_of_the_attributes_is_accepted() {
    let bench = Bench::faulty(Fault::damaged(Damage::AttributeDigestMissing)).await;
    bench.deliver().await.unwrap();
}

#[tokio::test]
async fn a_reply_without_any_digest_is_never_ok() {
    let bench = Bench::faulty(Fault::damaged(Damage::DigestsMissing)).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "UnexpectedReply")
    );
}

#[tokio::test]
async fn a_missing_message_id_leaves_the_receipt_without_one() {
    let bench = Bench::faulty(Fault::damaged(Damage::MessageIdMissing)).await;
    assert_eq!(bench.deliver().await.unwrap().provider_id, None);
}

#[tokio::test]
async fn members_that_nobody_knows_are_ignored() {
    let bench = Bench::faulty(Fault::damaged(Damage::UnknownMembers)).await;
    bench.deliver().await.unwrap();
}

#[tokio::test]
async fn a_200_that_is_not_the_services_is_never_ok() {
    for answer in [
        Answer::new(StatusCode::OK),
        Answer::html(StatusCode::OK),
        Answer::json(StatusCode::OK, &json!({})),
        Answer::json(StatusCode::OK, &json!([])),
        Answer::json(StatusCode::OK, &json!({"MD5OfMessageBody": 7})),
        Answer::new(StatusCode::NO_CONTENT),
        Answer::error_named("com.amazonaws.sqs#QueueDoesNotExist", StatusCode::OK),
    ] {
        let bench = Bench::faulty(Fault::answer(answer)).await;
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("transient", Outcome::Unknown, "UnexpectedReply")
        );
    }
}

#[tokio::test]
async fn a_truncated_200_is_a_lost_connection_although_the_message_is_stored() {
    for fault in [Fault::truncated(), Fault::truncated_chunks()] {
        let bench = Bench::faulty(fault).await;
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("transient", Outcome::Unknown, "ConnectionLost")
        );
        assert_eq!(error.status(), Some(200));
        assert_eq!(bench.stored().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_over_one_mebibyte_is_not_read_to_its_end() {
    let bench = Bench::faulty(Fault::padded(1_024 * 1_024)).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "UnexpectedReply")
    );
    assert!(error.text().contains("1048576"), "{error}");
    // One that is long and not too long is an answer like any other.
    let bench = Bench::faulty(Fault::padded(1_000_000)).await;
    bench.deliver().await.unwrap();
}
