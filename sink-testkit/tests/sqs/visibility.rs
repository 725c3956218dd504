//! Receipt handles and visibility on standard queues.

use std::time::Duration;

use serde_json::json;

use crate::support::standard;

const SECOND: Duration = Duration::from_secs(1);

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

#[tokio::test]
async fn holds_that_are_ended_from_outside_let_a_waiting_receive_have_the_messages() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    assert_eq!(client.take("q").await.len(), 1);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .on("q", "ReceiveMessage", json!({ "WaitTimeSeconds": 20 }))
                .await
        }
    });
    while server.requests().len() < 3 {
        tokio::task::yield_now().await;
    }
    server.end_holds("q").unwrap();
    let answer = waiting.await.unwrap().ok();
    assert_eq!(answer["Messages"][0]["Body"], "a");
    assert!(server.end_holds("no-queue").is_err());
}
