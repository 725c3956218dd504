//! FIFO queues: order, groups, receipt handles and receive attempts.

use std::time::Duration;

use serde_json::json;
use sink_testkit::sqs::SqsServer;

use crate::support::{Client, bodies, fifo, stored};

const SECOND: Duration = Duration::from_secs(1);

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
    assert_eq!(stored(&server, "q.fifo"), [] as [&str; 0]);
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
    assert_eq!(stored(&server, "q.fifo"), ["a"]);
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
