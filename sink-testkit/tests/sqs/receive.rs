//! ReceiveMessage, visibility and deletion on standard queues.

use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::Visibility;

use crate::support::{bodies, standard};

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
