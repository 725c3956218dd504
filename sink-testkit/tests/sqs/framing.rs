//! Statuses, headers and bodies, whatever the operation.

use reqwest::header::HeaderValue;
use serde_json::{Value, json};

use crate::support::standard;

#[tokio::test]
async fn a_good_answer_has_the_content_type_a_request_id_and_a_date() {
    let (_server, client) = standard().await;
    let reply = client
        .on("q", "SendMessage", json!({ "MessageBody": "hello" }))
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), "application/x-amz-json-1.0");
    assert_eq!(reply.header("x-amzn-requestid").len(), 36);
    assert!(reply.header("date").ends_with(" GMT"));
}

#[tokio::test]
async fn void_operations_answer_200_with_zero_bytes() {
    let (_server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    for reply in [
        client.hide("q", &message, 10).await,
        client.delete("q", &message).await,
        client
            .on(
                "q",
                "SetQueueAttributes",
                json!({ "Attributes": { "DelaySeconds": "0" } }),
            )
            .await,
        client.on("q", "PurgeQueue", json!({})).await,
        client.on("q", "DeleteQueue", json!({})).await,
    ] {
        assert_eq!(reply.status, 200);
        assert_eq!(reply.body, b"");
        assert_eq!(reply.header("content-length"), "0");
        assert_eq!(reply.header("content-type"), "application/x-amz-json-1.0");
    }
}

#[tokio::test]
async fn a_receive_without_messages_answers_an_empty_object() {
    let (_server, client) = standard().await;
    let reply = client.on("q", "ReceiveMessage", json!({})).await;
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, b"{}".as_slice())
    );
}

#[tokio::test]
async fn an_error_has_a_type_a_message_and_the_older_code() {
    let (_server, client) = standard().await;
    let reply = client
        .on("none", "SendMessage", json!({ "MessageBody": "a" }))
        .await;
    reply.assert_no_queue();
    assert_eq!(reply.header("content-type"), "application/x-amz-json-1.0");
    assert_eq!(reply.header("x-amzn-requestid").len(), 36);
    let members: Vec<String> = reply.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(members, ["__type", "message"]);
}

#[tokio::test]
async fn an_unknown_target_is_an_unknown_operation() {
    let (_server, client) = standard().await;
    for target in ["AmazonSQS.Frobnicate", "AmazonSNS.Publish", "SendMessage"] {
        let mut request = client.signed("SendMessage", "{}");
        request
            .headers_mut()
            .insert("x-amz-target", HeaderValue::from_static(target));
        client.send(request).await.unwrap().assert_error(
            400,
            "com.amazon.coral.service#UnknownOperationException",
            "InvalidAction;Sender",
        );
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_object_or_has_members_of_a_wrong_type_is_malformed() {
    let (_server, client) = standard().await;
    for body in [
        "",
        "not json",
        "[]",
        "\"text\"",
        "null",
        "{\"QueueUrl\":\"q\",\"MessageBody\":7}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"a\",\"DelaySeconds\":\"1\"}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"a\",\"DelaySeconds\":1.5}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"a\",\"MessageAttributes\":[]}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"a\",\"MessageAttributes\":{\"n\":[\"String\",\"v\"]}}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"a\",\"MessageAttributes\":{\"n\":{\"DataType\":\"Binary\",\"BinaryValue\":\"%\"}}}",
        "{\"QueueUrl\":\"q\",\"MessageBody\":\"\\ud800\"}",
    ] {
        let reply = client
            .send(client.signed("SendMessage", body))
            .await
            .unwrap();
        assert_eq!(
            reply.error(),
            (
                400,
                "com.amazon.coral.service#SerializationException".into(),
                "MalformedInput;Sender".into()
            ),
            "{body}"
        );
    }
}

#[tokio::test]
async fn unknown_members_and_nulls_in_a_request_are_ignored() {
    let (server, client) = standard().await;
    let request = json!({ "MessageBody": "a", "NewMember": {}, "DelaySeconds": null });
    client.on("q", "SendMessage", request).await.ok();
    assert_eq!(server.messages("q").unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_may_be_posted_to_the_root_or_to_the_queues_own_path_and_nowhere_else() {
    let (server, mut client) = standard().await;
    let body = json!({ "QueueUrl": server.queue_url("q"), "MessageBody": "a" });
    for (path, status) in [
        ("/", 200),
        ("/000000000000/q", 200),
        ("/000000000000/none", 404),
        ("/111111111111/q", 404),
        ("/q", 404),
        ("/?Action=SendMessage", 404),
    ] {
        client.path = path.into();
        assert_eq!(
            client.call("SendMessage", body.clone()).await.status,
            status,
            "{path}"
        );
    }
    let got = reqwest::get(server.endpoint()).await.unwrap();
    assert_eq!(got.status().as_u16(), 404);
}

#[tokio::test]
async fn a_queue_is_named_by_its_url_on_any_loopback_name_or_by_its_bare_name() {
    let (server, client) = standard().await;
    let port = server.address().port();
    for url in [
        format!("http://127.0.0.1:{port}/000000000000/q"),
        format!("http://localhost:{port}/000000000000/q"),
        "q".to_owned(),
    ] {
        client
            .on(&url, "SendMessage", json!({ "MessageBody": "a" }))
            .await
            .ok();
    }
}

#[tokio::test]
async fn a_missing_queue_url_is_a_queue_that_does_not_exist() {
    let (_server, client) = standard().await;
    for operation in [
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "SendMessageBatch",
        "GetQueueAttributes",
    ] {
        client.call(operation, json!({})).await.assert_no_queue();
    }
}

#[tokio::test]
async fn a_queue_url_of_another_host_is_an_invalid_address() {
    let (_server, client) = standard().await;
    for url in [
        "https://sqs.eu-west-1.amazonaws.com/000000000000/q",
        "http://127.0.0.1:1/000000000000/q",
    ] {
        client
            .on(url, "SendMessage", json!({ "MessageBody": "a" }))
            .await
            .assert_error(
                404,
                "com.amazonaws.sqs#InvalidAddress",
                "InvalidAddress;Sender",
            );
    }
}

#[tokio::test]
async fn a_request_of_more_than_16_mib_is_too_large() {
    let (_server, client) = standard().await;
    let body = json!({ "QueueUrl": "q", "MessageBody": "a".repeat(16 * 1_048_576) });
    let reply = client.call("SendMessage", body).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn the_date_follows_the_servers_clock_or_stands_still_or_is_absent() {
    use sink_testkit::sqs::DateHeader;
    use std::time::{Duration, UNIX_EPOCH};
    let (server, client) = standard().await;
    let date = async || {
        client
            .on("q", "ReceiveMessage", json!({}))
            .await
            .header("date")
            .to_owned()
    };
    server
        .clock()
        .set(UNIX_EPOCH + Duration::from_secs(86_400 * 365));
    assert!(date().await.starts_with("Fri, 01 Jan 1971 00:00:0"));
    server.set_date_header(DateHeader::Fixed(UNIX_EPOCH));
    assert_eq!(date().await, "Thu, 01 Jan 1970 00:00:00 GMT");
    server.set_date_header(DateHeader::Absent);
    assert_eq!(date().await, "");
}

#[tokio::test]
async fn nothing_that_comes_in_makes_the_server_panic() {
    let (_server, client) = standard().await;
    let strange = [
        json!({ "QueueUrl": "http:///", "MessageBody": "a" }),
        json!({ "QueueUrl": "q", "MessageBody": "a", "DelaySeconds": i64::MIN }),
        json!({ "QueueUrl": "q", "MaxNumberOfMessages": i64::MIN, "WaitTimeSeconds": i64::MAX }),
        json!({ "QueueUrl": "q", "ReceiptHandle": "AAAA", "VisibilityTimeout": i64::MIN }),
        json!({ "QueueUrl": "q", "Entries": [{}] }),
        json!({ "QueueUrl": "q", "Entries": [{ "Id": "a" }] }),
        json!({ "QueueUrl": "q", "Attributes": { "RedrivePolicy": "{}" } }),
        json!({ "QueueName": "", "Attributes": { "": "" } }),
        json!({ "MaxResults": i64::MIN, "NextToken": "%" }),
        Value::Null,
    ];
    for operation in sink_testkit::sqs::Operation::ALL {
        for body in &strange {
            let reply = client.call(operation.name(), body.clone()).await;
            assert!((200..500).contains(&reply.status), "{operation} {body}");
        }
    }
}
