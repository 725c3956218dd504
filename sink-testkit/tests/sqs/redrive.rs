//! Dead-letter queues.

use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::SqsServer;

use crate::support::{Client, Reply, bodies, fifo, standard};

const SECOND: Duration = Duration::from_secs(1);

fn policy(server: &SqsServer, target: &str, count: Value) -> String {
    json!({ "deadLetterTargetArn": server.queue_arn(target), "maxReceiveCount": count }).to_string()
}

async fn set(client: &Client, queue: &str, name: &str, value: &str) -> Reply {
    client
        .on(
            queue,
            "SetQueueAttributes",
            json!({ "Attributes": { name: value } }),
        )
        .await
}

/// A standard queue `q` that gives up after `count` receives, and its dead-letter queue `dead`.
async fn standard_with(count: Value) -> (SqsServer, Client) {
    let (server, client) = standard().await;
    server.create_queue("dead", []).await.unwrap();
    let policy = policy(&server, "dead", count);
    assert_eq!(
        set(&client, "q", "RedrivePolicy", &policy).await.status,
        200
    );
    (server, client)
}

#[tokio::test]
async fn a_message_moves_on_the_receive_after_its_last_and_its_count_goes_on() {
    for count in [json!(1), json!("1")] {
        let (server, client) = standard_with(count).await;
        let sent = client
            .on(
                "q",
                "SendMessage",
                json!({
                    "MessageBody": "a",
                    "MessageAttributes": { "n": { "DataType": "String", "StringValue": "v" } },
                }),
            )
            .await
            .ok();
        let first = client.take("q").await.remove(0);
        server.clock().advance(30 * SECOND);
        // Nothing moves while nobody polls.
        assert_eq!(server.messages("dead").unwrap().len(), 0);
        assert_eq!(client.take("q").await.len(), 0);
        assert_eq!(server.messages("q").unwrap(), []);
        let dead = client.take("dead").await.remove(0);
        assert_eq!(dead["MessageId"], sent["MessageId"]);
        assert_eq!(dead["Body"], "a");
        assert_eq!(dead["MessageAttributes"], first["MessageAttributes"]);
        assert_eq!(dead["Attributes"]["ApproximateReceiveCount"], "2");
        assert_eq!(
            dead["Attributes"]["SentTimestamp"],
            first["Attributes"]["SentTimestamp"]
        );
        assert_eq!(
            dead["Attributes"]["DeadLetterQueueSourceArn"],
            "arn:aws:sqs:us-east-1:000000000000:q"
        );
    }
}

#[tokio::test]
async fn a_receive_that_moves_one_message_returns_the_others() {
    let (server, client) = standard_with(json!(1)).await;
    client.put("q", "old").await;
    client.take("q").await;
    server.clock().advance(30 * SECOND);
    client.put("q", "new").await;
    assert_eq!(bodies(&client.take("q").await), ["new"]);
    assert_eq!(bodies(&client.take("dead").await), ["old"]);
}

#[tokio::test]
async fn a_message_given_back_counts_as_received() {
    let (_server, client) = standard_with(json!(3)).await;
    client.put("q", "a").await;
    for _ in 0..3 {
        let message = client.take("q").await.remove(0);
        client.hide("q", &message, 0).await;
    }
    assert_eq!(client.take("q").await.len(), 0);
    assert_eq!(client.take("dead").await.len(), 1);
}

#[tokio::test]
async fn a_handle_from_before_the_move_says_the_message_is_gone() {
    let (server, client) = standard_with(json!(1)).await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    server.clock().advance(30 * SECOND);
    client.take("q").await;
    assert_eq!(client.delete("q", &message).await.status, 200);
    client
        .hide("q", &message, 10)
        .await
        .assert_invalid_parameter();
    assert_eq!(server.messages("dead").unwrap().len(), 1);
}

#[tokio::test]
async fn retention_in_the_target_counts_from_the_first_send_on_a_standard_queue() {
    let (server, client) = standard_with(json!(1)).await;
    set(&client, "dead", "MessageRetentionPeriod", "60").await;
    client.put("q", "a").await;
    client.take("q").await;
    server.clock().advance(50 * SECOND);
    client.take("q").await;
    assert_eq!(server.messages("dead").unwrap().len(), 1);
    server.clock().advance(10 * SECOND);
    assert_eq!(server.messages("dead").unwrap().len(), 0);
}

#[tokio::test]
async fn on_a_fifo_queue_a_move_unlocks_the_group_and_retention_starts_afresh() {
    let (server, client) = fifo().await;
    let fifo = [("FifoQueue", "true"), ("MessageRetentionPeriod", "60")];
    server.create_queue("dead.fifo", fifo).await.unwrap();
    let policy = policy(&server, "dead.fifo", json!(1));
    set(&client, "q.fifo", "RedrivePolicy", &policy).await.ok();
    client.put_fifo("q.fifo", "g", "1").await;
    client.put_fifo("q.fifo", "g", "2").await;
    assert_eq!(bodies(&client.take_some("q.fifo", 1).await), ["1"]);
    server.clock().advance(50 * SECOND);
    assert_eq!(bodies(&client.take("q.fifo").await), ["2"]);
    server.clock().advance(50 * SECOND);
    let dead = client.take("dead.fifo").await.remove(0);
    assert_eq!(dead["Body"], "1");
    assert_eq!(dead["Attributes"]["MessageGroupId"], "g");
    assert_eq!(dead["Attributes"]["MessageDeduplicationId"], "1");
    assert_eq!(dead["Attributes"]["ApproximateReceiveCount"], "2");
    server.clock().advance(10 * SECOND);
    assert_eq!(server.messages("dead.fifo").unwrap().len(), 0);
}

#[tokio::test]
async fn a_policy_is_read_back_as_it_was_set_and_cleared_by_an_empty_text() {
    let (server, client) = standard_with(json!("3")).await;
    let shown = async || {
        let request = json!({ "AttributeNames": ["RedrivePolicy"] });
        client.on("q", "GetQueueAttributes", request).await.ok()
    };
    assert_eq!(
        shown().await["Attributes"]["RedrivePolicy"],
        policy(&server, "dead", json!("3"))
    );
    assert_eq!(set(&client, "q", "RedrivePolicy", "").await.status, 200);
    assert_eq!(shown().await, json!({}));
}

#[tokio::test]
async fn a_bad_count_or_target_or_kind_of_target_is_an_invalid_parameter() {
    let (server, client) = standard().await;
    server
        .create_queue("dead.fifo", [("FifoQueue", "true")])
        .await
        .unwrap();
    server.create_queue("dead", []).await.unwrap();
    for bad in [
        "{}".to_owned(),
        "not json".to_owned(),
        policy(&server, "dead", json!(0)),
        policy(&server, "dead", json!(1_001)),
        policy(&server, "dead", json!("many")),
        policy(&server, "dead.fifo", json!(3)),
        policy(&server, "none", json!(3)),
        json!({ "deadLetterTargetArn": server.queue_arn("dead") }).to_string(),
        json!({ "maxReceiveCount": 3 }).to_string(),
        json!({ "deadLetterTargetArn": "dead", "maxReceiveCount": 3 }).to_string(),
        json!({
            "deadLetterTargetArn": "arn:aws:sqs:eu-west-1:000000000000:dead",
            "maxReceiveCount": 3,
        })
        .to_string(),
    ] {
        set(&client, "q", "RedrivePolicy", &bad)
            .await
            .assert_invalid_parameter();
    }
    set(
        &client,
        "q",
        "RedrivePolicy",
        &policy(&server, "dead", json!(1_000)),
    )
    .await
    .ok();
}

#[tokio::test]
async fn a_queue_may_be_its_own_target_and_a_receive_still_ends() {
    let (server, client) = standard().await;
    assert_eq!(
        set(
            &client,
            "q",
            "RedrivePolicy",
            &policy(&server, "q", json!(1))
        )
        .await
        .status,
        200
    );
    client.put("q", "a").await;
    client.take("q").await;
    server.clock().advance(30 * SECOND);
    assert_eq!(client.take("q").await.len(), 0);
    assert_eq!(server.messages("q").unwrap().len(), 1);
}

#[tokio::test]
async fn a_target_says_whose_messages_it_takes() {
    let (server, client) = standard().await;
    server.create_queue("dead", []).await.unwrap();
    server.create_queue("other", []).await.unwrap();
    let redrive = policy(&server, "dead", json!(3));
    let allow = json!({
        "redrivePermission": "byQueue",
        "sourceQueueArns": [server.queue_arn("q")],
    });
    set(&client, "dead", "RedriveAllowPolicy", &allow.to_string())
        .await
        .ok();
    set(&client, "q", "RedrivePolicy", &redrive).await.ok();
    set(&client, "other", "RedrivePolicy", &redrive)
        .await
        .assert_invalid_parameter();
    set(
        &client,
        "dead",
        "RedriveAllowPolicy",
        r#"{"redrivePermission":"denyAll"}"#,
    )
    .await
    .ok();
    set(&client, "q", "RedrivePolicy", &redrive)
        .await
        .assert_invalid_parameter();
    for bad in [
        r#"{"redrivePermission":"byQueue"}"#,
        r#"{"redrivePermission":"denyAll","sourceQueueArns":["arn"]}"#,
        r#"{"redrivePermission":"nobody"}"#,
    ] {
        set(&client, "dead", "RedriveAllowPolicy", bad)
            .await
            .assert_invalid_parameter();
    }
}
