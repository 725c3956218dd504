//! FIFO queues: ids, deduplication, order and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use sink_testkit::sqs::{Operation, SqsServer};

use crate::support::{Client, bodies, fifo};

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

fn stored(server: &SqsServer) -> Vec<String> {
    let messages = server.messages("q.fifo").unwrap();
    messages.into_iter().map(|message| message.body).collect()
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

// Deduplication.

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
    assert_eq!(stored(&server), ["a"]);
}

#[tokio::test]
async fn the_memory_of_an_id_lasts_five_minutes_and_survives_a_delete() {
    let (server, client) = fifo().await;
    send(&client, "g", "d", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    client.delete("q.fifo", &message).await;
    server.clock().advance(290 * SECOND);
    send(&client, "g", "d", "b").await;
    assert_eq!(stored(&server), [] as [&str; 0]);
    server.clock().advance(10 * SECOND);
    send(&client, "g", "d", "c").await;
    assert_eq!(stored(&server), ["c"]);
}

#[tokio::test]
async fn purging_a_queue_clears_its_memory() {
    let (server, client) = fifo().await;
    send(&client, "g", "d", "a").await;
    client.on("q.fifo", "PurgeQueue", json!({})).await;
    send(&client, "g", "d", "b").await;
    assert_eq!(stored(&server), ["b"]);
}

#[tokio::test]
async fn the_scope_of_an_id_is_the_queue_unless_the_queue_was_made_otherwise() {
    let (server, client) = fifo().await;
    send(&client, "g1", "d", "a").await;
    send(&client, "g2", "d", "b").await;
    assert_eq!(stored(&server), ["a"]);
    let (server, client) = server_with(&[("DeduplicationScope", "messageGroup")]).await;
    send(&client, "g1", "d", "a").await;
    send(&client, "g2", "d", "b").await;
    send(&client, "g2", "d", "c").await;
    assert_eq!(stored(&server), ["a", "b"]);
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
    assert_eq!(stored(&server), ["a"]);
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
    assert_eq!(stored(&server).len(), 1);
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
    assert_eq!(stored(&server), ["a"]);
}

// Order and groups.

#[tokio::test]
async fn a_receive_takes_all_it_can_of_one_group_and_then_of_others() {
    let (_server, client) = fifo().await;
    for (group, body) in [
        ("x", "x1"),
        ("y", "y1"),
        ("x", "x2"),
        ("y", "y2"),
        ("x", "x3"),
    ] {
        client.put_fifo("q.fifo", group, body).await;
    }
    assert_eq!(
        bodies(&client.take_some("q.fifo", 4).await),
        ["x1", "x2", "x3", "y1"]
    );
}

#[tokio::test]
async fn a_group_with_a_message_in_flight_is_locked_for_old_and_new_messages() {
    let (_server, client) = fifo().await;
    for (group, body) in [("x", "x1"), ("x", "x2"), ("y", "y1")] {
        client.put_fifo("q.fifo", group, body).await;
    }
    assert_eq!(bodies(&client.take_some("q.fifo", 1).await), ["x1"]);
    client.put_fifo("q.fifo", "x", "x3").await;
    assert_eq!(bodies(&client.take("q.fifo").await), ["y1"]);
    assert_eq!(client.take("q.fifo").await.len(), 0);
}

#[tokio::test]
async fn deleting_all_in_flight_messages_unlocks_a_group_and_deleting_some_does_not() {
    let (_server, client) = fifo().await;
    for body in ["1", "2", "3"] {
        client.put_fifo("q.fifo", "g", body).await;
    }
    let taken = client.take_some("q.fifo", 2).await;
    client.delete("q.fifo", &taken[0]).await;
    assert_eq!(client.take("q.fifo").await.len(), 0);
    client.delete("q.fifo", &taken[1]).await;
    assert_eq!(bodies(&client.take("q.fifo").await), ["3"]);
}

#[tokio::test]
async fn a_group_is_delivered_as_the_prefix_of_its_visible_messages() {
    let (server, client) = fifo().await;
    for body in ["1", "2", "3", "4"] {
        client.put_fifo("q.fifo", "g", body).await;
    }
    let taken = client.take_some("q.fifo", 3).await;
    client.hide("q.fifo", &taken[1], 0).await;
    assert_eq!(client.take("q.fifo").await.len(), 0);
    client.hide("q.fifo", &taken[0], 0).await;
    assert_eq!(bodies(&client.take("q.fifo").await), ["1", "2"]);
    server.clock().advance(30 * SECOND);
    assert_eq!(bodies(&client.take("q.fifo").await), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn extending_one_message_hides_it_and_all_behind_it() {
    let (server, client) = fifo().await;
    for body in ["1", "2", "3"] {
        client.put_fifo("q.fifo", "g", body).await;
    }
    let taken = client.take("q.fifo").await;
    client.hide("q.fifo", &taken[1], 600).await;
    server.clock().advance(30 * SECOND);
    assert_eq!(bodies(&client.take("q.fifo").await), ["1"]);
}

// The table of receipt handles.

#[tokio::test]
async fn a_delete_in_flight_removes_and_a_second_one_succeeds() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    assert_eq!(client.delete("q.fifo", &message).await.status, 200);
    assert_eq!(client.delete("q.fifo", &message).await.status, 200);
    assert_eq!(stored(&server), [] as [&str; 0]);
}

#[tokio::test]
async fn a_late_delete_and_a_late_change_are_refused_and_the_message_stays() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    server.clock().advance(30 * SECOND);
    client
        .delete("q.fifo", &message)
        .await
        .assert_invalid_parameter();
    client
        .hide("q.fifo", &message, 10)
        .await
        .assert_invalid_parameter();
    assert_eq!(stored(&server), ["a"]);
}

#[tokio::test]
async fn an_older_handle_is_refused() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let older = client.take("q.fifo").await.remove(0);
    server.clock().advance(30 * SECOND);
    let newer = client.take("q.fifo").await.remove(0);
    client
        .delete("q.fifo", &older)
        .await
        .assert_invalid_parameter();
    client
        .hide("q.fifo", &older, 10)
        .await
        .assert_invalid_parameter();
    assert_eq!(client.delete("q.fifo", &newer).await.status, 200);
}

#[tokio::test]
async fn a_handle_expires_when_its_visibility_is_set_to_0_and_lives_on_when_it_is_extended() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    client.hide("q.fifo", &message, 600).await;
    server.clock().advance(500 * SECOND);
    assert_eq!(client.hide("q.fifo", &message, 0).await.status, 200);
    client
        .hide("q.fifo", &message, 10)
        .await
        .assert_invalid_parameter();
    client
        .delete("q.fifo", &message)
        .await
        .assert_invalid_parameter();
}

#[tokio::test]
async fn the_visibility_of_a_deleted_message_is_an_invalid_parameter() {
    let (_server, client) = fifo().await;
    client.put_fifo("q.fifo", "g", "a").await;
    let message = client.take("q.fifo").await.remove(0);
    client.delete("q.fifo", &message).await;
    client
        .hide("q.fifo", &message, 10)
        .await
        .assert_invalid_parameter();
}

#[tokio::test]
async fn a_garbage_handle_is_invalid() {
    let (_server, client) = fifo().await;
    client
        .delete("q.fifo", &json!({ "ReceiptHandle": "garbage" }))
        .await
        .assert_error(
            404,
            "com.amazonaws.sqs#ReceiptHandleIsInvalid",
            "ReceiptHandleIsInvalid;Sender",
        );
}

#[tokio::test]
async fn at_the_in_flight_limit_a_fifo_queue_delivers_nothing_and_says_nothing() {
    let server = SqsServer::builder()
        .in_flight_limit(1)
        .start()
        .await
        .unwrap();
    server
        .create_queue("q.fifo", [("FifoQueue", "true")])
        .await
        .unwrap();
    let client = Client::of(&server);
    client.put_fifo("q.fifo", "x", "a").await;
    client.put_fifo("q.fifo", "y", "b").await;
    assert_eq!(bodies(&client.take("q.fifo").await), ["a"]);
    assert_eq!(
        client.on("q.fifo", "ReceiveMessage", json!({})).await.ok(),
        json!({})
    );
}

// Receive attempts.

#[tokio::test]
async fn a_repeated_attempt_gives_the_same_messages_with_the_same_handles_hidden_afresh() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "x", "a").await;
    let attempt = async |id: &str| {
        client
            .on(
                "q.fifo",
                "ReceiveMessage",
                json!({ "ReceiveRequestAttemptId": id }),
            )
            .await
    };
    let first = attempt("one").await.ok();
    server.clock().advance(20 * SECOND);
    assert_eq!(attempt("one").await.ok(), first);
    assert_eq!(attempt("two").await.ok(), json!({}));
    server.clock().advance(20 * SECOND);
    assert_eq!(
        client
            .hide("q.fifo", &first["Messages"][0], 60)
            .await
            .status,
        200
    );
    attempt("one").await.assert_invalid_parameter();
    for bad in ["", "a b"] {
        attempt(bad).await.assert_invalid_parameter();
    }
}

#[tokio::test]
async fn an_attempt_fails_once_a_message_of_it_is_deleted_and_is_forgotten_after_five_minutes() {
    let (server, client) = fifo().await;
    client.put_fifo("q.fifo", "x", "a").await;
    client.put_fifo("q.fifo", "y", "b").await;
    let request = json!({ "ReceiveRequestAttemptId": "one" });
    let first = client
        .on("q.fifo", "ReceiveMessage", request.clone())
        .await
        .ok();
    client.delete("q.fifo", &first["Messages"][0]).await;
    client
        .on("q.fifo", "ReceiveMessage", request.clone())
        .await
        .assert_invalid_parameter();
    server.clock().advance(300 * SECOND);
    let later = client.on("q.fifo", "ReceiveMessage", request).await.ok();
    assert_eq!(later["Messages"][0]["Body"], "b");
}

// Order under everything at once.

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive(usize),
    Delete(usize),
    Hide(usize, u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize).prop_map(Step::Send),
        3 => (1..4usize).prop_map(Step::Receive),
        3 => (0..8usize).prop_map(Step::Delete),
        1 => (0..8usize, 0..60u32).prop_map(|(which, seconds)| Step::Hide(which, seconds)),
        1 => (1..40u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A message is never delivered while one before it in its group is stored and was not delivered in the
    /// same answer before it.
    #[test]
    fn no_message_overtakes_another_of_its_group(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let outcome: Result<(), TestCaseError> = runtime.block_on(async {
            let (server, _) = fifo().await;
            let call = async |operation: Operation, mut request: Value| {
                request["QueueUrl"] = "q.fifo".into();
                server.call(operation, request).await
            };
            let mut count = 0;
            let mut handles: Vec<Value> = Vec::new();
            for step in steps {
                match step {
                    Step::Send(group) => {
                        count += 1;
                        let request = json!({
                            "MessageBody": format!("{count:04}"),
                            "MessageGroupId": format!("g{group}"),
                            "MessageDeduplicationId": count.to_string(),
                        });
                        call(Operation::SendMessage, request).await.unwrap();
                    }
                    Step::Receive(maximum) => {
                        let before = server.messages("q.fifo").unwrap();
                        let request = json!({ "MaxNumberOfMessages": maximum });
                        let answer = call(Operation::ReceiveMessage, request).await.unwrap();
                        let mut by_group: BTreeMap<String, Vec<String>> = BTreeMap::new();
                        for message in answer["Messages"].as_array().into_iter().flatten() {
                            let body = message["Body"].as_str().unwrap();
                            let stored = before.iter().find(|stored| stored.body == body).unwrap();
                            by_group
                                .entry(stored.group_id.clone().unwrap())
                                .or_default()
                                .push(body.to_owned());
                            handles.push(message["ReceiptHandle"].clone());
                        }
                        for (group, delivered) in by_group {
                            let in_order: Vec<String> = before
                                .iter()
                                .filter(|stored| stored.group_id.as_ref() == Some(&group))
                                .map(|stored| stored.body.clone())
                                .take(delivered.len())
                                .collect();
                            prop_assert_eq!(delivered, in_order);
                        }
                    }
                    Step::Delete(which) => {
                        if let Some(handle) = handles.get(which) {
                            let _ = call(Operation::DeleteMessage, json!({ "ReceiptHandle": handle })).await;
                        }
                    }
                    Step::Hide(which, seconds) => {
                        if let Some(handle) = handles.get(which) {
                            let request = json!({ "ReceiptHandle": handle, "VisibilityTimeout": seconds });
                            let _ = call(Operation::ChangeMessageVisibility, request).await;
                        }
                    }
                    Step::Wait(seconds) => server.clock().advance(Duration::from_secs(seconds)),
                }
                let now = handles.len();
                if now > 8 {
                    handles.drain(..now - 8);
                }
            }
            Ok(())
        });
        outcome?;
    }
}
