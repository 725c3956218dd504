//! ReceiveMessage, visibility and deletion on standard queues.

use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::{Operation, SqsServer, Visibility};

use crate::support::{Client, bodies, standard};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_message_shows_only_what_was_asked_for() {
    let (_server, client) = standard().await;
    let request = json!({
        "MessageBody": "sink ✓",
        "MessageAttributes": { "n": { "DataType": "String", "StringValue": "v" } },
    });
    client.on("q", "SendMessage", request).await.ok();
    let answer = client
        .on("q", "ReceiveMessage", json!({ "VisibilityTimeout": 0 }))
        .await
        .ok();
    let message = answer["Messages"][0].as_object().unwrap();
    let members: Vec<&String> = message.keys().collect();
    assert_eq!(members, ["Body", "MD5OfBody", "MessageId", "ReceiptHandle"]);
    assert_eq!(message["MD5OfBody"], "f1bf24a69327a12c85b1d286ccac80bb");
}

#[tokio::test]
async fn system_attributes_are_strings_and_may_be_asked_for_in_either_list() {
    let (server, client) = standard().await;
    let request = json!({
        "MessageBody": "a",
        "MessageGroupId": "tenant",
        "MessageSystemAttributes": {
            "AWSTraceHeader": { "DataType": "String", "StringValue": "Root=1" },
        },
    });
    client.on("q", "SendMessage", request).await.ok();
    let attributes = async |request: Value| {
        let answer = client.on("q", "ReceiveMessage", request).await.ok();
        server.clock().advance(31 * SECOND);
        answer["Messages"][0]["Attributes"].clone()
    };
    let all = attributes(json!({ "MessageSystemAttributeNames": ["All"] })).await;
    let names: Vec<&String> = all.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "AWSTraceHeader",
            "ApproximateFirstReceiveTimestamp",
            "ApproximateReceiveCount",
            "MessageGroupId",
            "SenderId",
            "SentTimestamp",
        ]
    );
    assert_eq!(all["AWSTraceHeader"], "Root=1");
    assert_eq!(all["ApproximateReceiveCount"], "1");
    assert_eq!(all["SentTimestamp"].as_str().unwrap().len(), 13);
    let both = json!({
        "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
        "AttributeNames": ["MessageGroupId", "VisibilityTimeout"],
    });
    assert_eq!(
        attributes(both).await,
        json!({ "ApproximateReceiveCount": "2", "MessageGroupId": "tenant" })
    );
}

#[tokio::test]
async fn the_digest_of_attributes_is_of_those_that_are_returned() {
    let (server, client) = standard().await;
    let request = json!({
        "MessageBody": "a",
        "MessageAttributes": {
            "color": { "DataType": "String", "StringValue": "blue" },
            "count": { "DataType": "Number", "StringValue": "3" },
            "blob": { "DataType": "Binary", "BinaryValue": "AQID" },
        },
    });
    client.on("q", "SendMessage", request).await.ok();
    let message = async |names: Value| {
        let answer = client
            .on(
                "q",
                "ReceiveMessage",
                json!({ "MessageAttributeNames": names }),
            )
            .await
            .ok();
        server.clock().advance(31 * SECOND);
        answer["Messages"][0].clone()
    };
    for all in ["All", ".*", "*"] {
        let message = message(json!([all])).await;
        assert_eq!(
            message["MD5OfMessageAttributes"],
            "d838729972a4b70e2d2acd9d59ac847c"
        );
        assert_eq!(message["MessageAttributes"]["blob"]["BinaryValue"], "AQID");
    }
    for some in [json!(["color"]), json!(["col.*"])] {
        let message = message(some).await;
        assert_eq!(
            message["MD5OfMessageAttributes"],
            "da1b33cc3cbfe8b1630921e78e6b9880"
        );
        assert_eq!(
            message["MessageAttributes"],
            json!({ "color": { "DataType": "String", "StringValue": "blue" } })
        );
    }
    let none = message(json!(["other"])).await;
    assert_eq!(
        (
            none.get("MessageAttributes"),
            none.get("MD5OfMessageAttributes")
        ),
        (None, None)
    );
}

#[tokio::test]
async fn a_number_comes_back_without_idle_zeros_and_with_its_own_digest() {
    let (_server, client) = standard().await;
    let send = |number: &str| {
        json!({
            "MessageBody": "a",
            "MessageAttributes": { "n": { "DataType": "Number", "StringValue": number } },
        })
    };
    let long = client.on("q", "SendMessage", send("007.50")).await.ok();
    let short = client.on("q", "SendMessage", send("7.5")).await.ok();
    assert_ne!(
        long["MD5OfMessageAttributes"],
        short["MD5OfMessageAttributes"]
    );
    for message in client.take("q").await {
        assert_eq!(message["MessageAttributes"]["n"]["StringValue"], "7.5");
        assert_eq!(
            message["MD5OfMessageAttributes"],
            short["MD5OfMessageAttributes"]
        );
    }
}

#[tokio::test]
async fn a_receive_takes_one_message_unless_told_otherwise_and_ten_at_most() {
    let (_server, client) = standard().await;
    for n in 0..12 {
        client.put("q", &n.to_string()).await;
    }
    let answer = client.on("q", "ReceiveMessage", json!({})).await.ok();
    assert_eq!(answer["Messages"].as_array().unwrap().len(), 1);
    assert_eq!(client.take("q").await.len(), 10);
    assert_eq!(client.take("q").await.len(), 1);
    assert_eq!(client.take("q").await.len(), 0);
}

#[tokio::test]
async fn numbers_out_of_their_range_and_unknown_attributes_are_invalid() {
    let (_server, client) = standard().await;
    for request in [
        json!({ "MaxNumberOfMessages": 0 }),
        json!({ "MaxNumberOfMessages": 11 }),
        json!({ "WaitTimeSeconds": -1 }),
        json!({ "WaitTimeSeconds": 21 }),
        json!({ "VisibilityTimeout": -1 }),
        json!({ "VisibilityTimeout": 43_201 }),
        json!({ "MessageSystemAttributeNames": ["Nonsense"] }),
        json!({ "MessageSystemAttributeNames": ["VisibilityTimeout"] }),
        json!({ "AttributeNames": ["Nonsense"] }),
        json!({ "ReceiveRequestAttemptId": "a" }),
    ] {
        client
            .on("q", "ReceiveMessage", request)
            .await
            .assert_invalid_parameter();
    }
}

#[tokio::test]
async fn a_received_message_is_hidden_for_the_time_of_the_queue_or_of_the_request() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let first = client.take("q").await.remove(0);
    assert_eq!(
        server.messages("q").unwrap()[0].visibility,
        Visibility::InFlight
    );
    server.clock().advance(29 * SECOND);
    assert_eq!(client.take("q").await.len(), 0);
    server.clock().advance(SECOND);
    let second = client.take("q").await.remove(0);
    assert_eq!(second["Attributes"]["ApproximateReceiveCount"], "2");
    assert_eq!(first["MessageId"], second["MessageId"]);
    assert_ne!(first["ReceiptHandle"], second["ReceiptHandle"]);
    assert_eq!(
        first["Attributes"]["ApproximateFirstReceiveTimestamp"],
        second["Attributes"]["ApproximateFirstReceiveTimestamp"]
    );
    server.clock().advance(30 * SECOND);
    let shown = json!({ "VisibilityTimeout": 0 });
    for _ in 0..2 {
        let answer = client.on("q", "ReceiveMessage", shown.clone()).await.ok();
        assert_eq!(answer["Messages"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_delay_hides_a_message_at_first_and_the_messages_own_beats_the_queues() {
    let (server, client) = standard().await;
    server
        .create_queue("slow", [("DelaySeconds", "60")])
        .await
        .unwrap();
    client.put("slow", "queue").await;
    let own = json!({ "MessageBody": "own", "DelaySeconds": 0 });
    client.on("slow", "SendMessage", own).await.ok();
    assert_eq!(
        server.messages("slow").unwrap()[0].visibility,
        Visibility::Delayed
    );
    let own = client.take("slow").await;
    assert_eq!(bodies(&own), ["own"]);
    client.delete("slow", &own[0]).await;
    server.clock().advance(60 * SECOND);
    assert_eq!(bodies(&client.take("slow").await), ["queue"]);
}

#[tokio::test]
async fn a_changed_delay_does_not_reach_back_on_a_standard_queue() {
    let (server, client) = standard().await;
    server
        .create_queue("slow", [("DelaySeconds", "60")])
        .await
        .unwrap();
    client.put("slow", "a").await;
    let request = json!({ "Attributes": { "DelaySeconds": "0" } });
    client.on("slow", "SetQueueAttributes", request).await.ok();
    assert_eq!(client.take("slow").await.len(), 0);
}

#[tokio::test]
async fn a_message_is_gone_at_the_end_of_the_retention_period_even_in_flight() {
    let (server, client) = standard().await;
    server
        .create_queue("short", [("MessageRetentionPeriod", "60")])
        .await
        .unwrap();
    client.put("short", "a").await;
    let message = client.take("short").await.remove(0);
    server.clock().advance(59 * SECOND);
    assert_eq!(server.messages("short").unwrap().len(), 1);
    server.clock().advance(SECOND);
    assert_eq!(server.messages("short").unwrap(), []);
    assert_eq!(client.delete("short", &message).await.status, 200);
}

// The table of receipt handles.

#[tokio::test]
async fn a_delete_in_flight_removes_the_message_and_a_second_one_succeeds() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    assert_eq!(client.delete("q", &message).await.status, 200);
    assert_eq!(server.messages("q").unwrap(), []);
    assert_eq!(client.delete("q", &message).await.status, 200);
}

#[tokio::test]
async fn a_late_delete_removes_the_message() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    server.clock().advance(31 * SECOND);
    assert_eq!(client.delete("q", &message).await.status, 200);
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn a_delete_with_an_older_handle_succeeds_but_the_message_stays() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let older = client.take("q").await.remove(0);
    server.clock().advance(31 * SECOND);
    let newer = client.take("q").await.remove(0);
    assert_eq!(client.delete("q", &older).await.status, 200);
    assert_eq!(server.messages("q").unwrap().len(), 1);
    assert_eq!(client.delete("q", &newer).await.status, 200);
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn visibility_can_be_changed_late_and_after_it_was_set_to_0() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    server.clock().advance(31 * SECOND);
    assert_eq!(client.hide("q", &message, 10).await.status, 200);
    assert_eq!(client.take("q").await.len(), 0);
    assert_eq!(client.hide("q", &message, 0).await.status, 200);
    assert_eq!(client.hide("q", &message, 10).await.status, 200);
    assert_eq!(client.take("q").await.len(), 0);
    server.clock().advance(10 * SECOND);
    assert_eq!(client.take("q").await.len(), 1);
}

#[tokio::test]
async fn the_visibility_of_a_deleted_message_cannot_be_changed() {
    let (_server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    client.delete("q", &message).await;
    client
        .hide("q", &message, 10)
        .await
        .assert_invalid_parameter();
}

#[tokio::test]
async fn a_garbage_handle_and_one_of_another_queue_are_invalid() {
    let (server, client) = standard().await;
    server.create_queue("other", []).await.unwrap();
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    let mut cut = message.clone();
    let handle = message["ReceiptHandle"].as_str().unwrap();
    cut["ReceiptHandle"] = handle[..handle.len() - 4].into();
    for (queue, message) in [
        ("q", &json!({ "ReceiptHandle": "garbage" })),
        ("q", &cut),
        ("other", &message),
    ] {
        for reply in [
            client.delete(queue, message).await,
            client.hide(queue, message, 0).await,
        ] {
            reply.assert_error(
                404,
                "com.amazonaws.sqs#ReceiptHandleIsInvalid",
                "ReceiptHandleIsInvalid;Sender",
            );
        }
    }
}

#[tokio::test]
async fn a_missing_handle_or_visibility_is_a_missing_parameter() {
    let (_server, client) = standard().await;
    client.put("q", "a").await;
    let handle = client.take("q").await.remove(0)["ReceiptHandle"].clone();
    for (operation, request) in [
        ("DeleteMessage", json!({})),
        ("ChangeMessageVisibility", json!({ "VisibilityTimeout": 1 })),
        (
            "ChangeMessageVisibility",
            json!({ "ReceiptHandle": handle }),
        ),
    ] {
        client
            .on("q", operation, request)
            .await
            .assert_missing_parameter();
    }
}

#[tokio::test]
async fn visibility_is_0_to_43200_seconds_from_the_change_and_12_hours_from_the_receive() {
    let (server, client) = standard().await;
    // On a clock that stands still until it is moved, "straight after" can be told from "later".
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    client
        .hide("q", &message, -1)
        .await
        .assert_invalid_parameter();
    client
        .hide("q", &message, 43_201)
        .await
        .assert_invalid_parameter();
    assert_eq!(client.hide("q", &message, 43_190).await.status, 200);
    server.clock().advance(3_600 * SECOND);
    client
        .hide("q", &message, 39_600)
        .await
        .assert_invalid_parameter();
    assert_eq!(client.hide("q", &message, 39_590).await.status, 200);
    server.clock().advance(39_590 * SECOND);
    assert_eq!(client.take("q").await.len(), 1);
}

#[tokio::test]
async fn the_12_hours_count_from_the_receive_and_not_from_the_send() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    server.clock().advance(40_000 * SECOND);
    let message = client.take("q").await.remove(0);
    assert_eq!(client.hide("q", &message, 43_000).await.status, 200);
}

#[tokio::test]
async fn a_receive_after_an_extension_starts_with_the_queues_time_again() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    client.hide("q", &message, 600).await;
    server.clock().advance(600 * SECOND);
    assert_eq!(client.take("q").await.len(), 1);
    server.clock().advance(30 * SECOND);
    assert_eq!(client.take("q").await.len(), 1);
}

// Long polling.

async fn polling(client: &Client, seconds: u32) -> tokio::task::JoinHandle<Value> {
    let client = client.clone();
    tokio::spawn(async move {
        client
            .on("q", "ReceiveMessage", json!({ "WaitTimeSeconds": seconds }))
            .await
            .ok()
    })
}

/// Waits until the server has the request. What it does with it takes no waiting of its own.
async fn until_received(server: &SqsServer, count: usize) {
    while server.requests_of(Operation::ReceiveMessage).len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_long_poll_wakes_when_a_message_is_sent() {
    let (server, client) = standard().await;
    let polling = polling(&client, 20).await;
    until_received(&server, 1).await;
    client.put("q", "a").await;
    assert_eq!(polling.await.unwrap()["Messages"][0]["Body"], "a");
}

#[tokio::test]
async fn a_long_poll_wakes_when_a_message_becomes_visible() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    let first = polling(&client, 20).await;
    until_received(&server, 2).await;
    client.hide("q", &message, 0).await;
    assert_eq!(first.await.unwrap()["Messages"][0]["Body"], "a");
    let second = polling(&client, 20).await;
    until_received(&server, 3).await;
    // Past the visibility timeout, which is long before the poll's own end on this clock.
    client.on("q", "ReceiveMessage", json!({})).await.ok();
    server.clock().advance(30 * SECOND);
    assert_eq!(second.await.unwrap()["Messages"][0]["Body"], "a");
}

#[tokio::test]
async fn a_long_poll_ends_empty_after_its_time() {
    let (server, client) = standard().await;
    let polling = polling(&client, 20).await;
    until_received(&server, 1).await;
    server.clock().advance(19 * SECOND);
    client.on("q", "ReceiveMessage", json!({})).await.ok();
    assert!(!polling.is_finished());
    server.clock().advance(SECOND);
    assert_eq!(polling.await.unwrap(), json!({}));
}

#[tokio::test]
async fn the_queue_says_how_long_to_poll_when_the_request_does_not() {
    let (server, client) = standard().await;
    let request = json!({ "Attributes": { "ReceiveMessageWaitTimeSeconds": "20" } });
    client.on("q", "SetQueueAttributes", request).await.ok();
    let polling = tokio::spawn({
        let client = client.clone();
        async move { client.on("q", "ReceiveMessage", json!({})).await.ok() }
    });
    until_received(&server, 1).await;
    client.put("q", "a").await;
    assert_eq!(polling.await.unwrap()["Messages"][0]["Body"], "a");
    let now = json!({ "WaitTimeSeconds": 0 });
    assert_eq!(client.on("q", "ReceiveMessage", now).await.ok(), json!({}));
}

#[tokio::test]
async fn a_long_poll_ends_when_its_queue_is_deleted() {
    let (server, client) = standard().await;
    let polling = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .on("q", "ReceiveMessage", json!({ "WaitTimeSeconds": 20 }))
                .await
        }
    });
    until_received(&server, 1).await;
    client.on("q", "DeleteQueue", json!({})).await;
    polling.await.unwrap().assert_no_queue();
}

// The limit on messages in flight.

#[tokio::test]
async fn at_the_in_flight_limit_a_short_poll_is_over_limit_and_a_long_poll_finds_nothing() {
    let server = SqsServer::builder()
        .in_flight_limit(2)
        .start()
        .await
        .unwrap();
    server.create_queue("q", []).await.unwrap();
    let client = Client::of(&server);
    for body in ["a", "b", "c"] {
        client.put("q", body).await;
    }
    let messages = client.take("q").await;
    assert_eq!(bodies(&messages), ["a", "b"]);
    client
        .on("q", "ReceiveMessage", json!({}))
        .await
        .assert_error(403, "com.amazonaws.sqs#OverLimit", "OverLimit;Sender");
    let polling = polling(&client, 20).await;
    until_received(&server, 3).await;
    server.clock().advance(20 * SECOND);
    assert_eq!(polling.await.unwrap(), json!({}));
    client.delete("q", &messages[0]).await;
    assert_eq!(bodies(&client.take("q").await), ["c"]);
}

#[tokio::test]
async fn looking_at_messages_changes_nothing() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    for _ in 0..3 {
        let messages = server.messages("q").unwrap();
        assert_eq!(messages[0].receive_count, 0);
        assert_eq!(messages[0].visibility, Visibility::Visible);
    }
    let by_url = server.messages(&server.queue_url("q")).unwrap();
    assert_eq!(by_url, server.messages("q").unwrap());
    assert!(server.messages("none").is_err());
    assert_eq!(
        client.take("q").await[0]["Attributes"]["ApproximateReceiveCount"],
        "1"
    );
}
