//! Answers that say no, and messages that are not even sent.

use std::time::Duration;

use dispatch_api::{ErrorClass, HostServices, Outcome, Sink as _};
use http::{HeaderValue, StatusCode};
use sink_testkit::sqs::{
    Answer, Credentials, ErrorCode, Fault, FaultRule, Operation, Spelling, SqsServer,
};

use crate::bench::{
    Bench, FIFO_QUEUE, QUEUE, config, ctx, envelope, is_pause, parts, sink, sink_of,
};

#[tokio::test]
async fn without_credentials_no_request_goes_out() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let services = HostServices::new()
        .with_environment(|name| (name == "AWS_EC2_METADATA_DISABLED").then(|| "true".to_owned()));
    let sink = sink_of(
        sink_sqs::SqsSinkConfig::builder(&queue_url, "us-east-1"),
        &services,
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "NoCredentials")
    );
    assert!(error.text().contains("AWS_ACCESS_KEY_ID"), "{error}");
    assert_eq!(server.requests().len(), 0);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn credentials_of_the_environment_are_used_when_the_options_have_none() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let services = HostServices::new().with_environment(|name| {
        matches!(name, "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY").then(|| "test".to_owned())
    });
    let sink = sink_of(
        sink_sqs::SqsSinkConfig::builder(&queue_url, "us-east-1"),
        &services,
    );
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_wrong_secret_is_a_fault_of_the_configuration_after_one_request() {
    let bench = Bench::with(QUEUE, |config| config.credentials("test", "wrong")).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "InvalidSignature")
    );
    assert_eq!(error.status(), Some(403));
    assert!(error.request_id().is_some());
    assert_eq!(bench.server.requests().len(), 1);
}

#[tokio::test]
async fn an_unknown_key_is_a_fault_of_the_configuration() {
    let bench = Bench::with(QUEUE, |config| config.credentials("other", "test")).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "UnrecognizedClient")
    );
}

#[tokio::test]
async fn an_expired_token_is_transient() {
    let server = SqsServer::start().await.unwrap();
    let end = server.clock().now() + Duration::from_secs(60);
    server.set_credentials([Credentials::new("AKID", "secret")
        .with_session_token("token")
        .expiring_at(end)]);
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let sink = sink(
        config(&queue_url)
            .credentials("AKID", "secret")
            .session_token("token"),
    );
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    server.clock().advance(Duration::from_secs(61));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ExpiredToken")
    );
}

#[tokio::test]
async fn a_missing_queue_is_a_fault_of_the_configuration_and_is_not_created() {
    for queue in [QUEUE, FIFO_QUEUE] {
        let server = SqsServer::start().await.unwrap();
        let queue_url = server.queue_url(queue);
        let sink = sink(config(&queue_url));
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("config", Outcome::NotStored, "QueueDoesNotExist")
        );
        assert!(error.text().contains(&queue_url), "{error}");
        assert!(error.text().contains("create the queue"), "{error}");
        assert_eq!(server.requests().len(), 1);
        assert!(server.messages(queue).is_err());
    }
}

#[tokio::test]
async fn a_missing_queue_is_known_in_every_spelling() {
    for spelling in [
        Spelling::Aws,
        Spelling::ErrorTypeHeader,
        Spelling::Legacy,
        Spelling::Moto,
    ] {
        let answer = Answer::error_spelled(ErrorCode::QueueDoesNotExist, spelling);
        let bench = Bench::faulty(Fault::answer(answer)).await;
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("config", Outcome::NotStored, "QueueDoesNotExist"),
            "{spelling:?}"
        );
    }
}

#[tokio::test]
async fn throttles_are_pauses_at_every_status() {
    for status in [
        StatusCode::FORBIDDEN,
        StatusCode::BAD_REQUEST,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let bench = Bench::faulty(Fault::answer(Answer::throttled(status))).await;
        let error = bench.deliver().await.unwrap_err();
        assert!(is_pause(&error), "{status}: {error}");
        assert_eq!(bench.server.requests().len(), 1);
        // The next delivery is not held against the last.
        bench.deliver().await.unwrap();
    }
}

#[tokio::test]
async fn a_pause_is_the_servers_own_where_it_names_one() {
    let asked = Duration::from_secs(120);
    let answer = Answer::throttled(StatusCode::BAD_REQUEST).with_retry_after(asked);
    let bench = Bench::faulty(Fault::answer(answer)).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::RetryAfter(asked));
}

#[tokio::test]
async fn every_code_of_the_service_is_judged_alike_in_every_spelling() {
    let bench = Bench::standard().await;
    for (code, class) in [
        (ErrorCode::AccessDenied, "config"),
        (ErrorCode::ExpiredToken, "transient"),
        (ErrorCode::InternalFailure, "transient"),
        (ErrorCode::InvalidAddress, "transient"),
        (ErrorCode::InvalidMessageContents, "permanent"),
        (ErrorCode::InvalidParameterValue, "permanent"),
        (ErrorCode::InvalidSignature, "config"),
        (ErrorCode::KmsAccessDenied, "transient"),
        (ErrorCode::KmsThrottled, "retry_after"),
        (ErrorCode::MissingRequiredParameter, "permanent"),
        (ErrorCode::OverLimit, "transient"),
        (ErrorCode::RequestThrottled, "retry_after"),
        (ErrorCode::Throttling, "retry_after"),
    ] {
        for spelling in [
            Spelling::Aws,
            Spelling::ErrorTypeHeader,
            Spelling::Legacy,
            Spelling::Moto,
        ] {
            let answer = Answer::error_spelled(code, spelling);
            bench
                .server
                .fault(Operation::SendMessage, Fault::answer(answer));
            let error = bench.deliver().await.unwrap_err();
            assert_eq!(error.class().as_str(), class, "{code:?} {spelling:?}");
        }
    }
    assert_eq!(bench.stored().len(), 0);
}

#[tokio::test]
async fn a_page_of_a_proxy_is_an_http_status_and_nothing_of_it_is_shown() {
    let bench = Bench::faulty(Fault::answer(Answer::html(StatusCode::BAD_GATEWAY))).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "HttpStatus"));
    assert_eq!(error.status(), Some(502));
    assert!(!error.to_string().contains("<h1>"), "{error}");
}

#[tokio::test]
async fn an_empty_503_is_a_pause_whose_outcome_is_unknown() {
    let empty = Answer::new(StatusCode::SERVICE_UNAVAILABLE);
    let bench = Bench::faulty(Fault::answer(empty)).await;
    let error = bench.deliver().await.unwrap_err();
    assert!(is_pause(&error));
    assert_eq!(error.code(), "HttpStatus");
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = SqsServer::start().await.unwrap();
    let location = HeaderValue::from_str(&elsewhere.endpoint()).unwrap();
    for status in [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ] {
        let redirect = Answer::redirect(location.clone()).with_status(status);
        let bench = Bench::faulty(Fault::answer(redirect)).await;
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(parts(&error), ("transient", Outcome::Unknown, "HttpStatus"));
        assert_eq!(error.status(), Some(status.as_u16()));
        assert_eq!(bench.server.requests().len(), 1);
        assert_eq!(bench.stored().len(), 0);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn characters_outside_the_basic_plane_pass() {
    let bench = Bench::standard().await;
    let envelope = envelope().with_dedupe_key("🌊\u{10ffff}\u{fffd}");
    bench.sink.deliver(&envelope, &ctx()).await.unwrap();
    let stored = bench.stored();
    let key = stored[0].attributes["ankusa_dedupe_key"].as_str();
    assert_eq!(key, Some("🌊\u{10ffff}\u{fffd}"));
}

#[tokio::test]
async fn a_refused_character_in_the_dedupe_key_is_refused_unsent() {
    let bench = Bench::standard().await;
    for key in ["canary\u{ffff}", "canary\u{fffe}", "canary\u{7}"] {
        let envelope = envelope().with_dedupe_key(key);
        let error = bench.sink.deliver(&envelope, &ctx()).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("permanent", Outcome::NotStored, "InvalidCharacters")
        );
        assert!(!error.to_string().contains("canary"));
    }
    assert_eq!(bench.server.requests().len(), 0);
}

#[tokio::test]
async fn ids_that_the_service_would_refuse_are_refused_unsent() {
    let bench = Bench::with(FIFO_QUEUE, |config| {
        config.message_group_id_with(|_| "two words".to_owned())
    })
    .await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "InvalidGroupId")
    );
    let bench = Bench::fifo().await;
    let replay = ctx().with_replay_id("two words");
    let error = bench.sink.deliver(&envelope(), &replay).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "InvalidDeduplicationId")
    );
    assert_eq!(bench.server.requests().len(), 0);
}

#[tokio::test]
async fn nothing_is_repeated_whatever_the_service_answers() {
    let bench = Bench::standard().await;
    for answer in [
        Answer::error(ErrorCode::InternalFailure),
        Answer::error(ErrorCode::RequestThrottled),
        Answer::error(ErrorCode::ExpiredToken),
        Answer::html(StatusCode::GATEWAY_TIMEOUT),
    ] {
        bench.server.clear_requests();
        bench
            .server
            .add_fault(FaultRule::on(Operation::SendMessage, Fault::answer(answer)).always());
        bench.deliver().await.unwrap_err();
        assert_eq!(bench.server.requests().len(), 1);
        bench.server.clear_faults();
    }
}
