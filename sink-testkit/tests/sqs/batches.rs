//! The batch operations: what fails them whole and what fails one entry.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, Reply, fifo, standard};

const BATCHES: [&str; 3] = [
    "SendMessageBatch",
    "DeleteMessageBatch",
    "ChangeMessageVisibilityBatch",
];

/// Entries that are good for any of the batch operations but for their ids.
fn with_ids(ids: &[&str]) -> Value {
    ids.iter()
        .map(|id| json!({ "Id": id, "MessageBody": "a", "ReceiptHandle": "x", "VisibilityTimeout": 0 }))
        .collect()
}

async fn send(client: &Client, queue: &str, entries: Value) -> Reply {
    client
        .on(queue, "SendMessageBatch", json!({ "Entries": entries }))
        .await
}

fn failures(answer: &Value) -> Vec<(&str, &str, bool)> {
    answer["Failed"]
        .as_array()
        .map(|entries| {
            entries
                .iter()
                .map(|entry| {
                    (
                        entry["Id"].as_str().unwrap(),
                        entry["Code"].as_str().unwrap(),
                        entry["SenderFault"].as_bool().unwrap(),
                    )
                })
                .collect()
        })
        .unwrap_or_default()
}

#[tokio::test]
async fn a_good_batch_lists_its_entries_with_ids_and_digests_and_has_no_list_of_failures() {
    let (server, client) = standard().await;
    let entries = json!([
        { "Id": "one", "MessageBody": "sink ✓" },
        {
            "Id": "two",
            "MessageBody": "b",
            "MessageAttributes": { "zeta": { "DataType": "String", "StringValue": "river" } },
        },
    ]);
    let answer = send(&client, "q", entries).await.ok();
    let stored = server.messages("q").unwrap();
    assert_eq!(
        answer,
        json!({
            "Successful": [
                {
                    "Id": "one",
                    "MessageId": stored[0].message_id,
                    "MD5OfMessageBody": "f1bf24a69327a12c85b1d286ccac80bb",
                },
                {
                    "Id": "two",
                    "MessageId": stored[1].message_id,
                    "MD5OfMessageBody": "92eb5ffee6ae2fec3ad71c777531578f",
                    "MD5OfMessageAttributes": "33c01b0763d9729d61e3f491117036aa",
                },
            ],
        })
    );
}

#[tokio::test]
async fn a_batch_without_entries_is_empty() {
    let (_server, client) = standard().await;
    for operation in BATCHES {
        for request in [json!({}), json!({ "Entries": [] })] {
            client.on("q", operation, request).await.assert_error(
                400,
                "com.amazonaws.sqs#EmptyBatchRequest",
                "AWS.SimpleQueueService.EmptyBatchRequest;Sender",
            );
        }
    }
}

#[tokio::test]
async fn a_batch_has_at_most_ten_entries() {
    let (server, client) = standard().await;
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    for operation in BATCHES {
        let request = json!({ "Entries": with_ids(&ids) });
        client.on("q", operation, request).await.assert_error(
            400,
            "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest;Sender",
        );
    }
    assert_eq!(server.messages("q").unwrap(), []);
    send(&client, "q", with_ids(&ids[..10])).await.ok();
}

#[tokio::test]
async fn ids_are_distinct() {
    let (server, client) = standard().await;
    for operation in BATCHES {
        let request = json!({ "Entries": with_ids(&["a", "b", "a"]) });
        client.on("q", operation, request).await.assert_error(
            400,
            "com.amazonaws.sqs#BatchEntryIdsNotDistinct",
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct;Sender",
        );
    }
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn ids_are_1_to_80_letters_digits_hyphens_and_underscores() {
    let (_server, client) = standard().await;
    for operation in BATCHES {
        for id in ["", "a/b", "a b", "é", &"a".repeat(81)] {
            let request = json!({ "Entries": with_ids(&["good", id]) });
            client.on("q", operation, request).await.assert_error(
                400,
                "com.amazonaws.sqs#InvalidBatchEntryId",
                "AWS.SimpleQueueService.InvalidBatchEntryId;Sender",
            );
        }
    }
    send(&client, "q", with_ids(&["aB-_9", &"a".repeat(80)]))
        .await
        .ok();
}

#[tokio::test]
async fn a_batch_of_exactly_1_mib_is_taken_and_one_byte_more_fails_it_whole() {
    let (server, client) = standard().await;
    // Beside the bodies, 4 + 6 + 5 bytes of an attribute.
    let batch = |last: usize| {
        json!([
            { "Id": "0", "MessageBody": "a".repeat(600_000) },
            {
                "Id": "1",
                "MessageBody": "a".repeat(last),
                "MessageAttributes": { "zeta": { "DataType": "String", "StringValue": "river" } },
            },
        ])
    };
    send(&client, "q", batch(448_562)).await.assert_error(
        400,
        "com.amazonaws.sqs#BatchRequestTooLong",
        "AWS.SimpleQueueService.BatchRequestTooLong;Sender",
    );
    assert_eq!(server.messages("q").unwrap(), []);
    send(&client, "q", batch(448_561)).await.ok();
    assert_eq!(server.messages("q").unwrap().len(), 2);
}

#[tokio::test]
async fn a_queues_own_maximum_is_for_each_entry_and_not_for_their_sum() {
    let (server, client) = standard().await;
    server
        .create_queue("small", [("MaximumMessageSize", "1024")])
        .await
        .unwrap();
    let entry = |id: &str, bytes: usize| json!({ "Id": id, "MessageBody": "a".repeat(bytes) });
    let entries = json!([entry("0", 1_024), entry("1", 1_025), entry("2", 1_024)]);
    let answer = send(&client, "small", entries).await.ok();
    assert_eq!(failures(&answer), [("1", "InvalidParameterValue", true)]);
    assert_eq!(server.messages("small").unwrap().len(), 2);
}

#[tokio::test]
async fn a_refused_character_fails_its_entry_and_the_others_go_through() {
    let (server, client) = standard().await;
    let entries = json!([
        { "Id": "0", "MessageBody": "good" },
        { "Id": "1", "MessageBody": "bad \u{ffff}" },
        {
            "Id": "2",
            "MessageBody": "good",
            "MessageAttributes": { "n": { "DataType": "String", "StringValue": "\u{7}" } },
        },
    ]);
    let answer = send(&client, "q", entries).await.ok();
    assert_eq!(
        failures(&answer),
        [
            ("1", "InvalidMessageContents", true),
            ("2", "InvalidParameterValue", true)
        ]
    );
    assert_eq!(server.messages("q").unwrap().len(), 1);
}

#[tokio::test]
async fn when_every_entry_fails_there_is_no_list_of_successes() {
    let (_server, client) = standard().await;
    let answer = send(&client, "q", json!([{ "Id": "0", "MessageBody": "\0" }]))
        .await
        .ok();
    assert_eq!(answer.get("Successful"), None);
    assert_eq!(failures(&answer).len(), 1);
}

#[tokio::test]
async fn an_empty_body_fails_a_batch_whole() {
    let (server, client) = standard().await;
    for entry in [
        json!({ "Id": "1" }),
        json!({ "Id": "1", "MessageBody": "" }),
    ] {
        let entries = json!([{ "Id": "0", "MessageBody": "a" }, entry]);
        send(&client, "q", entries).await.assert_missing_parameter();
    }
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn a_fifo_entry_without_group_or_deduplication_id_fails_a_batch_whole() {
    let (server, client) = fifo().await;
    let good = json!({
        "Id": "0",
        "MessageBody": "a",
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
    });
    for bad in [
        json!({ "Id": "1", "MessageBody": "b", "MessageDeduplicationId": "e" }),
        json!({ "Id": "1", "MessageBody": "b", "MessageGroupId": "g" }),
    ] {
        send(&client, "q.fifo", json!([good, bad]))
            .await
            .assert_invalid_parameter();
    }
    assert_eq!(server.messages("q.fifo").unwrap(), []);
}

#[tokio::test]
async fn entries_are_queued_in_the_order_of_their_list() {
    let (server, client) = fifo().await;
    let entries: Value = (0..10)
        .map(|n| {
            json!({
                "Id": n.to_string(),
                "MessageBody": n.to_string(),
                "MessageGroupId": "g",
                "MessageDeduplicationId": n.to_string(),
            })
        })
        .collect();
    let answer = send(&client, "q.fifo", entries).await.ok();
    let stored = server.messages("q.fifo").unwrap();
    let bodies: Vec<&str> = stored.iter().map(|message| message.body.as_str()).collect();
    assert_eq!(bodies, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    for (entry, message) in answer["Successful"].as_array().unwrap().iter().zip(&stored) {
        assert_eq!(
            entry["SequenceNumber"].as_str(),
            message.sequence_number.as_deref()
        );
    }
}

#[tokio::test]
async fn a_delete_batch_lists_each_entry_by_its_own_outcome() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    let request = json!({ "Entries": [
        { "Id": "good", "ReceiptHandle": message["ReceiptHandle"] },
        { "Id": "bad", "ReceiptHandle": "garbage" },
        { "Id": "again", "ReceiptHandle": message["ReceiptHandle"] },
    ] });
    let answer = client.on("q", "DeleteMessageBatch", request).await.ok();
    assert_eq!(
        answer["Successful"],
        json!([{ "Id": "good" }, { "Id": "again" }])
    );
    assert_eq!(failures(&answer), [("bad", "ReceiptHandleIsInvalid", true)]);
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn a_visibility_batch_lists_each_entry_by_its_own_outcome() {
    let (_server, client) = standard().await;
    client.put("q", "a").await;
    let handle = client.take("q").await.remove(0)["ReceiptHandle"].clone();
    let request = json!({ "Entries": [
        { "Id": "out-of-range", "ReceiptHandle": handle, "VisibilityTimeout": 43_201 },
        { "Id": "garbage", "ReceiptHandle": "garbage", "VisibilityTimeout": 0 },
        { "Id": "good", "ReceiptHandle": handle, "VisibilityTimeout": 0 },
    ] });
    let answer = client
        .on("q", "ChangeMessageVisibilityBatch", request)
        .await
        .ok();
    assert_eq!(answer["Successful"], json!([{ "Id": "good" }]));
    assert_eq!(
        failures(&answer),
        [
            ("out-of-range", "InvalidParameterValue", true),
            ("garbage", "ReceiptHandleIsInvalid", true),
        ]
    );
    assert_eq!(client.take("q").await.len(), 1);
}

#[tokio::test]
async fn an_expired_fifo_handle_fails_its_entry() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let handle = client.take("q.fifo").await.remove(0)["ReceiptHandle"].clone();
    server.clock().advance(Duration::from_secs(30));
    for operation in ["DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        let request = json!({ "Entries": [
            { "Id": "late", "ReceiptHandle": handle, "VisibilityTimeout": 0 },
        ] });
        let answer = client.on("q.fifo", operation, request).await.ok();
        assert_eq!(failures(&answer), [("late", "InvalidParameterValue", true)]);
    }
}
