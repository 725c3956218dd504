//! FIFO queues: ids and deduplication.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::SqsServer;

use crate::support::{Client, fifo, stored};

const SECOND: Duration = Duration::from_secs(1);

async fn server_with(attributes: &[(&str, &str)]) -> (SqsServer, Client) {
    let server = SqsServer::start().await.unwrap();
    let attributes = attributes.iter().copied().chain([("FifoQueue", "true")]);
    server.create_queue("q.fifo", attributes).await.unwrap();
    let client = Client::of(&server);
    (server, client)
}

async fn send(client: &Client, group: &str, id: &str, body: &str) -> Value {
    let request = json!({
        "MessageBody": body,
        "MessageGroupId": group,
        "MessageDeduplicationId": id,
    });
    client.on("q.fifo", "SendMessage", request).await.ok()
}

#[tokio::test]
async fn a_message_without_a_group_is_a_missing_parameter() {
    let (_server, client) = fifo().await;
    for request in [
        json!({ "MessageBody": "a" }),
        json!({ "MessageBody": "a", "MessageDeduplicationId": "d" }),
    ] {
        client
            .on("q.fifo", "SendMessage", request)
            .await
            .assert_missing_parameter();
    }
}

#[tokio::test]
async fn a_message_without_a_deduplication_id_is_an_invalid_parameter() {
    let (_server, client) = fifo().await;
    let request = json!({ "MessageBody": "a", "MessageGroupId": "g" });
    client
        .on("q.fifo", "SendMessage", request)
        .await
        .assert_invalid_parameter();
}

#[tokio::test]
async fn a_delay_of_its_own_is_refused_but_an_explicit_0_is_not() {
    let (server, client) = server_with(&[("DelaySeconds", "60")]).await;
    let request = |id: &str, delay: u32| {
        json!({
            "MessageBody": "a",
            "MessageGroupId": "g",
            "MessageDeduplicationId": id,
            "DelaySeconds": delay,
        })
    };
    client
        .on("q.fifo", "SendMessage", request("1", 5))
        .await
        .assert_invalid_parameter();
    client
        .on("q.fifo", "SendMessage", request("2", 0))
        .await
        .ok();
    assert_eq!(client.take("q.fifo").await.len(), 0);
    server.clock().advance(60 * SECOND);
    assert_eq!(client.take("q.fifo").await.len(), 1);
}

#[tokio::test]
async fn a_changed_delay_reaches_back() {
    let (_server, client) = server_with(&[("DelaySeconds", "60")]).await;
    client.put_fifo("q.fifo", "g", "a").await;
    let request = json!({ "Attributes": { "DelaySeconds": "0" } });
    client
        .on("q.fifo", "SetQueueAttributes", request)
        .await
        .ok();
    assert_eq!(client.take("q.fifo").await.len(), 1);
}

#[tokio::test]
async fn sequence_numbers_have_20_digits_and_grow() {
    let (_server, client) = fifo().await;
    let mut numbers = Vec::new();
    for n in 0..5 {
        let answer = client
            .put_fifo("q.fifo", &format!("g{}", n % 2), &n.to_string())
            .await;
        numbers.push(answer["SequenceNumber"].as_str().unwrap().to_owned());
    }
    assert!(numbers.iter().all(|number| number.len() == 20));
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    let received = client.take("q.fifo").await;
    let shown: BTreeSet<&str> = received
        .iter()
        .map(|message| message["Attributes"]["SequenceNumber"].as_str().unwrap())
        .collect();
    assert_eq!(shown, numbers.iter().map(String::as_str).collect());
}

#[tokio::test]
async fn a_duplicate_is_answered_like_the_first_and_not_stored() {
    let (server, client) = fifo().await;
    let first = send(&client, "g", "d", "a").await;
    let second = send(&client, "g", "d", "b").await;
    assert_eq!(first["MessageId"], second["MessageId"]);
    assert_eq!(first["SequenceNumber"], second["SequenceNumber"]);
    assert_eq!(
        second["MD5OfMessageBody"],
        "92eb5ffee6ae2fec3ad71c777531578f"
    );
    assert_eq!(stored(&server, "q.fifo"), ["a"]);
}

#[tokio::test]
async fn the_memory_of_an_id_lasts_five_minutes_and_survives_a_delete() {
    let (server, client) = fifo().await;
    send(&client, "g", "d", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    client.delete("q.fifo", &message).await;
    server.clock().advance(290 * SECOND);
    send(&client, "g", "d", "b").await;
    assert_eq!(stored(&server, "q.fifo"), [] as [&str; 0]);
    server.clock().advance(10 * SECOND);
    send(&client, "g", "d", "c").await;
    assert_eq!(stored(&server, "q.fifo"), ["c"]);
}

#[tokio::test]
async fn purging_a_queue_clears_its_memory() {
    let (server, client) = fifo().await;
    send(&client, "g", "d", "a").await;
    client.on("q.fifo", "PurgeQueue", json!({})).await;
    send(&client, "g", "d", "b").await;
    assert_eq!(stored(&server, "q.fifo"), ["b"]);
}

#[tokio::test]
async fn the_scope_of_an_id_is_the_queue_unless_the_queue_was_made_otherwise() {
    let (server, client) = fifo().await;
    send(&client, "g1", "d", "a").await;
    send(&client, "g2", "d", "b").await;
    assert_eq!(stored(&server, "q.fifo"), ["a"]);
    let (server, client) = server_with(&[("DeduplicationScope", "messageGroup")]).await;
    send(&client, "g1", "d", "a").await;
    send(&client, "g2", "d", "b").await;
    send(&client, "g2", "d", "c").await;
    assert_eq!(stored(&server, "q.fifo"), ["a", "b"]);
}

#[tokio::test]
async fn a_scope_that_is_changed_later_has_no_effect() {
    let (server, client) = fifo().await;
    let request = json!({ "Attributes": { "DeduplicationScope": "messageGroup" } });
    client
        .on("q.fifo", "SetQueueAttributes", request)
        .await
        .ok();
    send(&client, "g1", "d", "a").await;
    send(&client, "g2", "d", "b").await;
    assert_eq!(stored(&server, "q.fifo"), ["a"]);
}

#[tokio::test]
async fn content_makes_the_id_from_the_body_alone_and_an_explicit_id_beats_it() {
    let (server, client) = server_with(&[("ContentBasedDeduplication", "true")]).await;
    let plain = json!({ "MessageBody": "sink ✓", "MessageGroupId": "g" });
    client.on("q.fifo", "SendMessage", plain.clone()).await.ok();
    let mut with_attribute = plain.clone();
    with_attribute["MessageAttributes"] =
        json!({ "n": { "DataType": "String", "StringValue": "v" } });
    client
        .on("q.fifo", "SendMessage", with_attribute)
        .await
        .ok();
    assert_eq!(
        server.messages("q.fifo").unwrap()[0]
            .deduplication_id
            .as_deref(),
        Some("258d168888502c4bae18956622e0116c8c73008759ce8bfb04de7b3bb484301a")
    );
    assert_eq!(stored(&server, "q.fifo").len(), 1);
    send(&client, "g", "explicit", "sink ✓").await;
    let ids: Vec<_> = server
        .messages("q.fifo")
        .unwrap()
        .into_iter()
        .map(|message| message.deduplication_id.unwrap())
        .collect();
    assert_eq!(ids[1], "explicit");
    let shown = client.take("q.fifo").await;
    assert_eq!(
        shown[0]["Attributes"]["MessageDeduplicationId"],
        ids[0].as_str()
    );
    assert_eq!(shown[0]["Attributes"]["MessageGroupId"], "g");
}

#[tokio::test]
async fn the_later_of_two_duplicates_in_one_batch_is_listed_as_successful() {
    let (server, client) = fifo().await;
    let entry = |id: &str, body: &str| {
        json!({
            "Id": id,
            "MessageBody": body,
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        })
    };
    let request = json!({ "Entries": [entry("0", "a"), entry("1", "b")] });
    let answer = client.on("q.fifo", "SendMessageBatch", request).await.ok();
    assert_eq!(answer["Successful"].as_array().unwrap().len(), 2);
    assert_eq!(stored(&server, "q.fifo"), ["a"]);
}
