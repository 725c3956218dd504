//! Each fault, played.

use std::error::Error as _;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use sink_testkit::sqs::{Answer, Damage, ErrorCode, Fault, FaultRule, Hold, Operation, Spelling};

use crate::support::{Client, Reply, standard, stored};

const MD5_OF_A: &str = "0cc175b9c0f1b6a831c399e269772661";
const WRONG: &str = "00000000000000000000000000000000";

async fn send(client: &Client) -> Result<Reply, reqwest::Error> {
    client
        .try_call(
            "SendMessage",
            json!({ "QueueUrl": "q", "MessageBody": "a" }),
        )
        .await
}

/// The kind of the I/O error at the bottom of a failed request.
fn io_kind(error: &reqwest::Error) -> Option<std::io::ErrorKind> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = inner.source();
    }
    None
}

#[tokio::test]
async fn a_scripted_error_replaces_the_answer_once_and_nothing_is_stored() {
    let (server, client) = standard().await;
    server.fault(
        Operation::SendMessage,
        Fault::answer(Answer::error(ErrorCode::KmsThrottled)),
    );
    send(&client).await.unwrap().assert_error(
        400,
        "com.amazonaws.sqs#KmsThrottled",
        "KMS.ThrottlingException;Sender",
    );
    assert_eq!(stored(&server, "q"), [] as [&str; 0]);
    send(&client).await.unwrap().ok();
    assert_eq!(stored(&server, "q"), ["a"]);
    assert_eq!(server.pending_faults(), 0);
}

#[tokio::test]
async fn a_scripted_error_can_come_after_the_message_was_stored() {
    let (server, client) = standard().await;
    let fault = Fault::answer(Answer::error(ErrorCode::InternalFailure)).after_storing();
    server.fault(Operation::SendMessage, fault);
    send(&client).await.unwrap().assert_error(
        500,
        "com.amazon.coral.service#InternalFailure",
        "InternalFailure;Receiver",
    );
    assert_eq!(stored(&server, "q"), ["a"]);
    let request = &server.requests_of(Operation::SendMessage)[0];
    assert_eq!(
        (request.status, request.carried_out, request.faulted),
        (Some(500), true, true)
    );
}

#[tokio::test]
async fn one_error_has_four_spellings() {
    let (server, client) = standard().await;
    let code = ErrorCode::QueueDoesNotExist;
    for (spelling, type_name, error_type, query_error) in [
        (
            Spelling::Aws,
            "com.amazonaws.sqs#QueueDoesNotExist",
            "",
            "AWS.SimpleQueueService.NonExistentQueue;Sender",
        ),
        (
            Spelling::Legacy,
            "AWS.SimpleQueueService.NonExistentQueue",
            "",
            "",
        ),
        (
            Spelling::Moto,
            "com.amazonaws.sqs#QueueDoesNotExist",
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue;Sender",
        ),
        (
            Spelling::ErrorTypeHeader,
            "",
            "com.amazonaws.sqs#QueueDoesNotExist:http://internal.amazon.com/coral/",
            "",
        ),
    ] {
        server.fault(
            Operation::SendMessage,
            Fault::answer(Answer::error_spelled(code, spelling)),
        );
        let reply = send(&client).await.unwrap();
        assert_eq!(reply.status, 400);
        assert_eq!(reply.error().1, type_name);
        assert_eq!(reply.header("x-amzn-errortype"), error_type);
        assert_eq!(reply.header("x-amzn-query-error"), query_error);
    }
}

#[tokio::test]
async fn throttles_come_with_any_status_and_say_sender() {
    let (server, client) = standard().await;
    for (status, type_name, query_error) in [
        (
            400,
            "com.amazon.coral.availability#ThrottlingException",
            "ThrottlingException;Sender",
        ),
        (
            403,
            "com.amazonaws.sqs#RequestThrottled",
            "RequestThrottled;Sender",
        ),
        (
            429,
            "com.amazon.coral.availability#ThrottlingException",
            "ThrottlingException;Sender",
        ),
        (
            503,
            "com.amazon.coral.availability#ThrottlingException",
            "ThrottlingException;Sender",
        ),
    ] {
        let answer = Answer::throttled(StatusCode::from_u16(status).unwrap())
            .with_retry_after(Duration::from_secs(7));
        server.fault(Operation::SendMessage, Fault::answer(answer));
        let reply = send(&client).await.unwrap();
        reply.assert_error(status, type_name, query_error);
        assert_eq!(reply.header("retry-after"), "7");
    }
}

#[tokio::test]
async fn answers_need_not_be_the_services() {
    let (server, client) = standard().await;
    let play = async |answer: Answer| {
        server.fault(Operation::SendMessage, Fault::answer(answer));
        send(&client).await.unwrap()
    };
    let page = play(Answer::html(StatusCode::BAD_GATEWAY)).await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (502, "text/html")
    );
    assert!(page.body.starts_with(b"<html>"));
    assert_eq!(page.header("x-amzn-requestid"), "");
    let empty = play(Answer::new(StatusCode::SERVICE_UNAVAILABLE)).await;
    assert_eq!((empty.status, empty.body.len()), (503, 0));
    let elsewhere = play(Answer::redirect(HeaderValue::from_static(
        "http://192.0.2.1/",
    )))
    .await;
    assert_eq!(
        (elsewhere.status, elsewhere.header("location")),
        (307, "http://192.0.2.1/")
    );
    let odd = play(Answer::error_named(
        "SlowDown",
        StatusCode::TOO_MANY_REQUESTS,
    ))
    .await;
    assert_eq!((odd.status, odd.error().1), (429, "SlowDown".to_owned()));
    let text = play(Answer::new(StatusCode::OK).with_body("not json")).await;
    assert_eq!(
        (text.status, text.body.as_slice()),
        (200, b"not json".as_slice())
    );
}

#[tokio::test]
async fn a_reset_comes_before_or_after_storing() {
    let (server, client) = standard().await;
    for (fault, expected) in [
        (Fault::reset(), vec![]),
        (Fault::reset().after_storing(), vec!["a".to_owned()]),
    ] {
        server.fault(Operation::SendMessage, fault);
        let error = send(&client).await.unwrap_err();
        assert_eq!(
            io_kind(&error),
            Some(std::io::ErrorKind::ConnectionReset),
            "{error:?}"
        );
        assert_eq!(stored(&server, "q"), expected);
        assert_eq!(server.requests().last().unwrap().status, None);
    }
}

#[tokio::test]
async fn silence_lasts_until_the_client_goes_away() {
    let (server, client) = standard().await;
    server.fault(Operation::SendMessage, Fault::silence().after_storing());
    let asking = tokio::spawn({
        let client = client.clone();
        async move { send(&client).await }
    });
    while !server.requests().iter().any(|request| request.carried_out) {
        tokio::task::yield_now().await;
    }
    assert!(!asking.is_finished());
    asking.abort();
    server.all_connections_closed().await;
    assert_eq!(stored(&server, "q"), ["a"]);
}

#[tokio::test]
async fn a_truncated_answer_is_of_an_operation_that_was_carried_out() {
    let (server, client) = standard().await;
    for fault in [Fault::truncated(), Fault::truncated_chunks()] {
        server.fault(Operation::SendMessage, fault);
        let error = send(&client).await.unwrap_err();
        assert!(error.is_body() || error.is_decode(), "{error:?}");
    }
    assert_eq!(stored(&server, "q"), ["a", "a"]);
    let statuses: Vec<Option<u16>> = server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [Some(200), Some(200)]);
}

#[tokio::test]
async fn a_huge_answer_is_a_good_one() {
    let (server, client) = standard().await;
    server.fault(Operation::SendMessage, Fault::padded(2 * 1_048_576));
    let reply = send(&client).await.unwrap();
    assert!(reply.body.len() > 2 * 1_048_576);
    assert_eq!(reply.ok()["MD5OfMessageBody"], MD5_OF_A);
}

#[tokio::test]
async fn a_hold_stops_a_request_before_or_after_storing_until_it_is_released() {
    let (server, client) = standard().await;
    for (hold, expected) in [
        (server.hold(Operation::SendMessage), vec![]),
        (
            server.hold_answer(Operation::SendMessage),
            vec!["a".to_owned(), "a".to_owned()],
        ),
    ] {
        let asking = tokio::spawn({
            let client = client.clone();
            async move { send(&client).await.unwrap() }
        });
        hold.arrived().await;
        assert_eq!(stored(&server, "q"), expected);
        assert!(!asking.is_finished());
        hold.release();
        asking.await.unwrap().ok();
    }
    assert_eq!(stored(&server, "q").len(), 2);
}

#[tokio::test]
async fn what_has_reached_the_service_is_done_though_its_client_went_away() {
    let (server, client) = standard().await;
    let hold = server.hold(Operation::SendMessage);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { send(&client).await }
    });
    hold.arrived().await;
    asking.abort();
    server.all_connections_closed().await;
    assert_eq!(stored(&server, "q"), [] as [&str; 0]);
    hold.release();
    while !server.requests()[0].carried_out {
        tokio::task::yield_now().await;
    }
    assert_eq!(stored(&server, "q"), ["a"]);
}

#[tokio::test]
async fn one_gate_holds_many_requests_and_dropping_it_lets_them_go() {
    let (server, client) = standard().await;
    let hold = Hold::new();
    server.add_fault(FaultRule::on_any(Fault::hold_before_storing(&hold)).always());
    let asking: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { send(&client).await.unwrap().ok() })
        })
        .collect();
    hold.arrivals(3).await;
    assert_eq!(stored(&server, "q"), [] as [&str; 0]);
    drop(hold);
    for asking in asking {
        asking.await.unwrap();
    }
    assert_eq!(stored(&server, "q").len(), 3);
}

#[tokio::test]
async fn a_delay_comes_before_or_after_storing() {
    let (server, client) = standard().await;
    let long = Duration::from_secs(3_600);
    for (fault, expected) in [
        (Fault::delay_before_storing(long), 0),
        (Fault::delay_after_storing(long), 1),
    ] {
        server.fault(Operation::SendMessage, fault);
        let arrived = server.requests().len() + 1;
        let asking = tokio::spawn({
            let client = client.clone();
            async move { send(&client).await }
        });
        while server.requests().len() < arrived
            || (expected == 1 && !server.requests().last().unwrap().carried_out)
        {
            tokio::task::yield_now().await;
        }
        assert_eq!(stored(&server, "q").len(), expected);
        asking.abort();
        server.all_connections_closed().await;
    }
    server.fault(
        Operation::SendMessage,
        Fault::delay_before_storing(Duration::from_millis(1)),
    );
    send(&client).await.unwrap().ok();
}

#[tokio::test]
async fn a_connection_is_closed_without_notice_right_after_an_answer() {
    let (server, client) = standard().await;
    send(&client).await.unwrap().ok();
    server.fault(Operation::SendMessage, Fault::close_after_answer());
    let reply = send(&client).await.unwrap();
    assert_eq!(reply.ok()["MD5OfMessageBody"], MD5_OF_A);
    assert_eq!(reply.header("connection"), "");
    server.all_connections_closed().await;
    send(&client).await.unwrap().ok();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let (server, client) = standard().await;
    send(&client).await.unwrap().ok();
    assert_eq!(server.open_connections(), 1);
    server.close_idle_after(Some(Duration::from_millis(5)));
    server.all_connections_closed().await;
    server.close_idle_after(None);
    send(&client).await.unwrap().ok();
    let connections: Vec<u64> = server
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(connections, [1, 2]);
}

#[tokio::test]
async fn digests_and_ids_can_be_wrong_missing_or_joined_by_members_nobody_knows() {
    let (server, client) = standard().await;
    let request = json!({
        "QueueUrl": "q",
        "MessageBody": "a",
        "MessageAttributes": { "n": { "DataType": "String", "StringValue": "v" } },
    });
    let play = async |damage: Damage| {
        server.fault(Operation::SendMessage, Fault::damaged(damage));
        client.call("SendMessage", request.clone()).await.ok()
    };
    assert_eq!(
        play(Damage::BodyDigestWrong).await["MD5OfMessageBody"],
        WRONG
    );
    assert_eq!(
        play(Damage::BodyDigestMissing).await["MD5OfMessageBody"],
        Value::Null
    );
    assert_eq!(
        play(Damage::AttributeDigestWrong).await["MD5OfMessageAttributes"],
        WRONG
    );
    assert_eq!(
        play(Damage::AttributeDigestMissing).await["MD5OfMessageAttributes"],
        Value::Null
    );
    let without = play(Damage::DigestsMissing).await;
    let members: Vec<&String> = without.as_object().unwrap().keys().collect();
    assert_eq!(members, ["MessageId"]);
    assert_eq!(
        play(Damage::MessageIdMissing).await["MessageId"],
        Value::Null
    );
    let unknown = play(Damage::UnknownMembers).await;
    assert_eq!(unknown["NewMember"], json!({ "Inner": [1, null, "x"] }));
    assert_eq!(unknown["MD5OfMessageBody"], MD5_OF_A);
}

#[tokio::test]
async fn received_messages_can_be_damaged_too() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    server.fault(
        Operation::ReceiveMessage,
        Fault::damaged(Damage::BodyDigestWrong)
            .and_damaged(Damage::ReceiptHandleMissing)
            .and_damaged(Damage::SystemAttributesMissing),
    );
    let message = client.take("q").await.remove(0);
    assert_eq!(message["MD5OfBody"], WRONG);
    assert_eq!(message["ReceiptHandle"], Value::Null);
    assert_eq!(message["Attributes"], Value::Null);
}

#[tokio::test]
async fn a_rule_can_play_later_several_times_or_always_until_it_is_cleared() {
    let (server, client) = standard().await;
    let fault = || Fault::answer(Answer::new(StatusCode::SERVICE_UNAVAILABLE));
    let statuses = async |count: usize| {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(send(&client).await.unwrap().status);
        }
        statuses
    };
    server.add_fault(
        FaultRule::on(Operation::SendMessage, fault())
            .after(1)
            .times(2),
    );
    assert_eq!(statuses(4).await, [200, 503, 503, 200]);
    server.add_fault(FaultRule::on_any(fault()).always());
    assert_eq!(statuses(3).await, [503, 503, 503]);
    server.clear_faults();
    assert_eq!(statuses(1).await, [200]);
}

#[tokio::test]
async fn requests_are_recorded_with_all_that_is_known_of_them() {
    let (server, client) = standard().await;
    send(&client).await.unwrap().ok();
    client
        .on("none", "ReceiveMessage", json!({}))
        .await
        .assert_no_queue();
    let requests = server.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| {
            (
                request.operation,
                request.status,
                request.carried_out,
                request.connection,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some(Operation::SendMessage), Some(200), true, 1),
            (Some(Operation::ReceiveMessage), Some(400), false, 1),
        ]
    );
    let first = &requests[0];
    assert_eq!(first.line, "POST /");
    assert_eq!(first.json()["MessageBody"], "a");
    assert_eq!(first.header("x-amz-target"), Some("AmazonSQS.SendMessage"));
    assert_eq!(server.requests_of(Operation::ReceiveMessage).len(), 1);
    server.clear_requests();
    assert_eq!(server.requests().len(), 0);
    assert_eq!(server.dropped_requests(), 0);
}

#[tokio::test]
async fn shutting_down_closes_connections_and_the_port() {
    let (server, client) = standard().await;
    send(&client).await.unwrap().ok();
    let address = server.address();
    server.shutdown().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert!(send(&client).await.is_err());
}

#[tokio::test]
async fn connections_that_are_cut_take_what_waits_on_them_along_and_new_ones_are_good() {
    let (server, client) = standard().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        let receive = json!({ "QueueUrl": "q", "WaitTimeSeconds": 20 });
        async move { client.try_call("ReceiveMessage", receive).await }
    });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    server.cut_connections();
    assert!(waiting.await.unwrap().is_err());
    send(&client).await.unwrap().ok();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_fault_can_wait_for_a_request_of_which_something_is_true() {
    let (server, client) = standard().await;
    server.add_fault(
        FaultRule::on(Operation::ReceiveMessage, Fault::reset())
            .when(|request| request["VisibilityTimeout"] == 7),
    );
    for (visibility, succeeds) in [(6, true), (7, false), (7, true)] {
        let receive = json!({ "QueueUrl": "q", "VisibilityTimeout": visibility });
        let answered = client.try_call("ReceiveMessage", receive).await;
        assert_eq!(answered.is_ok(), succeeds);
    }
}
