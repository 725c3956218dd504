//! Receives that wait.

use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::{Operation, SqsServer};

use crate::support::{Client, bodies, standard};

const SECOND: Duration = Duration::from_secs(1);

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
async fn a_long_poll_whose_client_went_away_takes_no_message() {
    let (server, client) = standard().await;
    let polling = polling(&client, 20).await;
    until_received(&server, 1).await;
    polling.abort();
    server.all_connections_closed().await;
    client.put("q", "a").await;
    assert_eq!(bodies(&client.take("q").await), ["a"]);
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
