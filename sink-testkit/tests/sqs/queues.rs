//! Queues: making, finding, listing, changing, emptying and deleting them.

use std::time::Duration;

use serde_json::{Value, json};
use sink_testkit::sqs::{ErrorCode, SqsServer};

use crate::support::{Client, Reply, standard};

async fn create(client: &Client, name: &str, attributes: Value) -> Reply {
    client
        .call(
            "CreateQueue",
            json!({ "QueueName": name, "Attributes": attributes }),
        )
        .await
}

async fn attributes(client: &Client, queue: &str, names: Value) -> Value {
    client
        .on(
            queue,
            "GetQueueAttributes",
            json!({ "AttributeNames": names }),
        )
        .await
        .ok()
}

async fn set(client: &Client, queue: &str, attributes: Value) -> Reply {
    client
        .on(
            queue,
            "SetQueueAttributes",
            json!({ "Attributes": attributes }),
        )
        .await
}

#[tokio::test]
async fn a_queue_is_made_and_found_by_its_name() {
    let (server, client) = standard().await;
    let made = create(&client, "new", json!({})).await.ok();
    assert_eq!(made, json!({ "QueueUrl": server.queue_url("new") }));
    let found = client
        .call("GetQueueUrl", json!({ "QueueName": "new" }))
        .await
        .ok();
    assert_eq!(found, made);
    let expected = format!("{}/000000000000/new", server.endpoint());
    assert_eq!(found["QueueUrl"], expected);
}

#[tokio::test]
async fn looking_for_no_name_is_invalid_and_for_an_unknown_one_or_owner_finds_no_queue() {
    let (_server, client) = standard().await;
    client
        .call("GetQueueUrl", json!({}))
        .await
        .assert_invalid_parameter();
    client
        .call("GetQueueUrl", json!({ "QueueName": "none" }))
        .await
        .assert_no_queue();
    let foreign = json!({ "QueueName": "q", "QueueOwnerAWSAccountId": "111111111111" });
    client.call("GetQueueUrl", foreign).await.assert_no_queue();
    let own = json!({ "QueueName": "q", "QueueOwnerAWSAccountId": "000000000000" });
    client.call("GetQueueUrl", own).await.ok();
}

#[tokio::test]
async fn making_a_queue_again_finds_it_unless_its_attributes_differ() {
    let (_server, client) = standard().await;
    let first = create(&client, "new", json!({ "VisibilityTimeout": "10" }))
        .await
        .ok();
    assert_eq!(
        create(&client, "new", json!({ "VisibilityTimeout": "10" }))
            .await
            .ok(),
        first
    );
    assert_eq!(create(&client, "new", json!({})).await.ok(), first);
    create(&client, "new", json!({ "VisibilityTimeout": "20" }))
        .await
        .assert_error(
            400,
            "com.amazonaws.sqs#QueueNameExists",
            "QueueAlreadyExists;Sender",
        );
}

#[tokio::test]
async fn names_and_kinds_of_queues_must_fit() {
    let (_server, client) = standard().await;
    for name in ["", "a.b", "a b", &"a".repeat(81)] {
        create(&client, name, json!({}))
            .await
            .assert_invalid_parameter();
    }
    create(&client, "x.fifo", json!({}))
        .await
        .assert_invalid_parameter();
    create(&client, "x", json!({ "FifoQueue": "true" }))
        .await
        .assert_invalid_parameter();
    create(&client, "x.fifo", json!({ "FifoQueue": "true" }))
        .await
        .ok();
}

#[tokio::test]
async fn a_name_is_free_again_60_seconds_after_a_deletion() {
    let (server, client) = standard().await;
    client.on("q", "DeleteQueue", json!({})).await;
    client
        .on("q", "ReceiveMessage", json!({}))
        .await
        .assert_no_queue();
    server.clock().advance(Duration::from_secs(59));
    create(&client, "q", json!({})).await.assert_error(
        400,
        "com.amazonaws.sqs#QueueDeletedRecently",
        "AWS.SimpleQueueService.QueueDeletedRecently;Sender",
    );
    server.clock().advance(Duration::from_secs(1));
    create(&client, "q", json!({})).await.ok();
    client
        .on("none", "DeleteQueue", json!({}))
        .await
        .assert_no_queue();
}

#[tokio::test]
async fn a_purge_empties_a_queue_and_the_next_must_wait_60_seconds() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    assert_eq!(client.on("q", "PurgeQueue", json!({})).await.status, 200);
    assert_eq!(server.messages("q").unwrap(), []);
    assert_eq!(client.delete("q", &message).await.status, 200);
    server.clock().advance(Duration::from_secs(59));
    client.on("q", "PurgeQueue", json!({})).await.assert_error(
        403,
        "com.amazonaws.sqs#PurgeQueueInProgress",
        "AWS.SimpleQueueService.PurgeQueueInProgress;Sender",
    );
    server.clock().advance(Duration::from_secs(1));
    assert_eq!(client.on("q", "PurgeQueue", json!({})).await.status, 200);
}

#[tokio::test]
async fn queues_are_listed_by_prefix_and_in_pages() {
    let server = SqsServer::start().await.unwrap();
    let client = Client::of(&server);
    assert_eq!(client.call("ListQueues", json!({})).await.ok(), json!({}));
    for name in ["a1", "a2", "a3", "b1"] {
        create(&client, name, json!({})).await.ok();
    }
    let list = async |request: Value| client.call("ListQueues", request).await.ok();
    let urls =
        |names: &[&str]| -> Value { names.iter().map(|name| server.queue_url(name)).collect() };
    assert_eq!(
        list(json!({})).await["QueueUrls"],
        urls(&["a1", "a2", "a3", "b1"])
    );
    assert_eq!(
        list(json!({ "QueueNamePrefix": "a" })).await,
        json!({ "QueueUrls": urls(&["a1", "a2", "a3"]) })
    );
    let first = list(json!({ "QueueNamePrefix": "a", "MaxResults": 2 })).await;
    assert_eq!(first["QueueUrls"], urls(&["a1", "a2"]));
    let token = first["NextToken"].as_str().unwrap();
    assert_eq!(
        list(json!({ "QueueNamePrefix": "a", "MaxResults": 2, "NextToken": token })).await,
        json!({ "QueueUrls": urls(&["a3"]) })
    );
    for bad in [
        json!({ "MaxResults": 0 }),
        json!({ "MaxResults": 1_001 }),
        json!({ "MaxResults": 2, "NextToken": "%" }),
        json!({ "NextToken": token }),
    ] {
        client
            .call("ListQueues", bad)
            .await
            .assert_invalid_parameter();
    }
}

#[tokio::test]
async fn attributes_are_shown_by_name_or_all_and_none_without_names() {
    let (server, client) = standard().await;
    assert_eq!(attributes(&client, "q", Value::Null).await, json!({}));
    assert_eq!(
        attributes(&client, "q", json!(["VisibilityTimeout", "QueueArn"])).await,
        json!({ "Attributes": {
            "VisibilityTimeout": "30",
            "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q",
        } })
    );
    assert_eq!(
        server.queue_arn("q"),
        "arn:aws:sqs:us-east-1:000000000000:q"
    );
    let all = attributes(&client, "q", json!(["All"])).await;
    let mut all = all["Attributes"].as_object().unwrap().clone();
    let created = all.remove("CreatedTimestamp").unwrap();
    assert_eq!(all.remove("LastModifiedTimestamp"), Some(created.clone()));
    assert_eq!(created.as_str().unwrap().len(), 10);
    assert_eq!(
        Value::Object(all),
        json!({
            "ApproximateNumberOfMessages": "0",
            "ApproximateNumberOfMessagesDelayed": "0",
            "ApproximateNumberOfMessagesNotVisible": "0",
            "DelaySeconds": "0",
            "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600",
            "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q",
            "ReceiveMessageWaitTimeSeconds": "0",
            "SqsManagedSseEnabled": "true",
            "VisibilityTimeout": "30",
        })
    );
    client
        .on(
            "q",
            "GetQueueAttributes",
            json!({ "AttributeNames": ["Nonsense"] }),
        )
        .await
        .assert_error(
            400,
            "com.amazonaws.sqs#InvalidAttributeName",
            "InvalidAttributeName;Sender",
        );
}

#[tokio::test]
async fn a_fifo_queue_shows_its_own_attributes_too() {
    let (server, client) = standard().await;
    server
        .create_queue("x.fifo", [("FifoQueue", "true")])
        .await
        .unwrap();
    let names = [
        "FifoQueue",
        "ContentBasedDeduplication",
        "DeduplicationScope",
        "FifoThroughputLimit",
    ];
    assert_eq!(
        attributes(&client, "x.fifo", json!(names)).await,
        json!({ "Attributes": {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        } })
    );
    assert_eq!(attributes(&client, "q", json!(names)).await, json!({}));
}

#[tokio::test]
async fn messages_are_counted_as_visible_in_flight_or_delayed() {
    let (_server, client) = standard().await;
    for body in ["a", "b", "c"] {
        client.put("q", body).await;
    }
    client
        .on(
            "q",
            "SendMessage",
            json!({ "MessageBody": "d", "DelaySeconds": 60 }),
        )
        .await
        .ok();
    client.take_some("q", 1).await;
    let names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ];
    assert_eq!(
        attributes(&client, "q", json!(names)).await["Attributes"],
        json!({
            "ApproximateNumberOfMessages": "2",
            "ApproximateNumberOfMessagesNotVisible": "1",
            "ApproximateNumberOfMessagesDelayed": "1",
        })
    );
}

#[tokio::test]
async fn attributes_are_set_all_or_none() {
    let (server, client) = standard().await;
    server.clock().advance(Duration::from_secs(100));
    assert_eq!(
        set(&client, "q", json!({ "VisibilityTimeout": "60" }))
            .await
            .status,
        200
    );
    set(
        &client,
        "q",
        json!({ "VisibilityTimeout": "90", "DelaySeconds": "901" }),
    )
    .await
    .assert_error(
        400,
        "com.amazonaws.sqs#InvalidAttributeValue",
        "InvalidAttributeValue;Sender",
    );
    let shown = attributes(&client, "q", json!(["All"])).await["Attributes"].clone();
    assert_eq!(shown["VisibilityTimeout"], "60");
    assert_eq!(shown["DelaySeconds"], "0");
    assert_ne!(shown["CreatedTimestamp"], shown["LastModifiedTimestamp"]);
}

#[tokio::test]
async fn attributes_that_cannot_be_set_have_invalid_names_and_a_fifo_queue_cannot_stop_being_one() {
    let (server, client) = standard().await;
    server
        .create_queue("x.fifo", [("FifoQueue", "true")])
        .await
        .unwrap();
    for name in [
        "QueueArn",
        "Nonsense",
        "FifoQueue",
        "ContentBasedDeduplication",
    ] {
        set(&client, "q", json!({ name: "true" }))
            .await
            .assert_error(
                400,
                "com.amazonaws.sqs#InvalidAttributeName",
                "InvalidAttributeName;Sender",
            );
    }
    set(&client, "x.fifo", json!({ "FifoQueue": "false" }))
        .await
        .assert_error(
            400,
            "com.amazonaws.sqs#InvalidAttributeValue",
            "InvalidAttributeValue;Sender",
        );
    client
        .on("q", "SetQueueAttributes", json!({}))
        .await
        .assert_missing_parameter();
}

#[tokio::test]
async fn a_shorter_retention_period_drops_what_is_older() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    server.clock().advance(Duration::from_secs(100));
    client.put("q", "b").await;
    set(&client, "q", json!({ "MessageRetentionPeriod": "60" })).await;
    let left: Vec<String> = server
        .messages("q")
        .unwrap()
        .into_iter()
        .map(|m| m.body)
        .collect();
    assert_eq!(left, ["b"]);
}

#[tokio::test]
async fn the_direct_api_refuses_what_the_service_refuses() {
    let server = SqsServer::start().await.unwrap();
    let error = server.create_queue("a b", []).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidParameterValue);
    let error = server
        .create_queue("a", [("DelaySeconds", "x")])
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidAttributeValue);
    assert_eq!(
        server.messages("a").unwrap_err().code(),
        ErrorCode::QueueDoesNotExist
    );
}
