//! Clocks that differ.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dispatch_api::{Clock, HostServices, Outcome, Sink as _};
use sink_sqs::SqsSink;
use sink_testkit::sqs::{DateHeader, Fault, FaultRule, Operation, SqsServer};

use crate::bench::{Bench, QUEUE, config, ctx, envelope, parts, sink_of};
use crate::raw::{RawServer, Then, answer};

/// More than the service tolerates.
const OFF: Duration = Duration::from_secs(1_200);

/// The host's clock, which is behind the server's.
struct Behind(sink_testkit::sqs::Clock, Duration);

impl Clock for Behind {
    fn now(&self) -> SystemTime {
        self.0.now() - self.1
    }
}

async fn behind(by: Duration) -> (SqsServer, SqsSink) {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let clock = Behind(server.clock().clone(), by);
    let services = HostServices::new().with_clock(Arc::new(clock));
    (server, sink_of(config(&queue_url), &services))
}

#[tokio::test]
async fn a_clock_that_is_off_is_corrected_and_remembered() {
    let (server, sink) = behind(OFF).await;
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(server.requests_of(Operation::SendMessage).len(), 2);
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(server.requests_of(Operation::SendMessage).len(), 3);
    assert_eq!(server.messages(QUEUE).unwrap().len(), 2);
}

#[tokio::test]
async fn a_clock_that_is_corrected_meanwhile_is_measured_again() {
    let bench = Bench::standard().await;
    bench.deliver().await.unwrap();
    bench.server.clock().advance(OFF);
    bench.deliver().await.unwrap();
    let ahead = bench.server.clock().now() - 3 * OFF;
    bench.server.clock().set(ahead);
    bench.deliver().await.unwrap();
    assert_eq!(bench.sends().len(), 5);
}

#[tokio::test]
async fn ten_that_are_refused_together_all_succeed() {
    let (server, sink) = behind(OFF).await;
    let sink = Arc::new(sink);
    // On one thread all are signed before the first is answered.
    let sends: Vec<_> = (0..10)
        .map(|_| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { sink.deliver(&envelope(), &ctx()).await })
        })
        .collect();
    for send in sends {
        send.await.unwrap().unwrap();
    }
    assert_eq!(server.requests_of(Operation::SendMessage).len(), 20);
    assert_eq!(server.messages(QUEUE).unwrap().len(), 10);
}

#[tokio::test]
async fn a_wrong_secret_with_a_right_clock_is_told_after_one_request() {
    let bench = Bench::with(QUEUE, |config| config.credentials("test", "wrong")).await;
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "InvalidSignature")
    );
    assert_eq!(bench.sends().len(), 1);
}

#[tokio::test]
async fn a_wrong_secret_with_a_wrong_clock_is_told_after_two() {
    let bench = Bench::with(QUEUE, |config| config.credentials("test", "wrong")).await;
    bench.server.clock().advance(OFF);
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "InvalidSignature")
    );
    assert_eq!(bench.sends().len(), 2);
    bench.deliver().await.unwrap_err();
    assert_eq!(bench.sends().len(), 3);
}

#[tokio::test]
async fn an_expired_signature_without_a_measure_is_transient() {
    let (server, sink) = behind(OFF).await;
    server.set_date_header(DateHeader::Absent);
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "RequestExpired")
    );
    assert_eq!(server.requests_of(Operation::SendMessage).len(), 1);
}

#[tokio::test]
async fn the_second_attempt_has_the_deadline_of_the_first() {
    let (server, sink) = behind(OFF).await;
    let silent = FaultRule::on(Operation::SendMessage, Fault::silence()).always();
    server.add_fault(silent);
    let started = tokio::time::Instant::now();
    let deadline = started + Duration::from_millis(300);
    let error = sink
        .deliver(&envelope(), &ctx().with_deadline(deadline))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "Timeout");
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn whatever_is_answered_there_are_two_attempts_at_most() {
    let refusal = r#"{"__type":"InvalidSignatureException","message":"no"}"#;
    let date = "date: Sun, 01 Jan 2017 00:00:00 GMT\r\n";
    let server = RawServer::start(Then::Answer(answer("403 Forbidden", date, refusal))).await;
    let sink = sink_of(config(&server.queue_url()), &HostServices::new());
    for requests in [2, 3] {
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(error.code(), "InvalidSignature");
        assert_eq!(server.requests().len(), requests);
    }
}
