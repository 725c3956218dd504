//! SendMessage, and what its messages may hold.

use serde_json::{Value, json};

use crate::support::{fifo, standard};

#[tokio::test]
async fn an_answer_has_an_id_and_the_digests_of_what_was_sent() {
    let (server, client) = standard().await;
    let request = json!({
        "MessageBody": "sink ✓",
        "MessageAttributes": {
            "zeta": { "DataType": "String", "StringValue": "river" },
            "Alpha": { "DataType": "Number", "StringValue": "42" },
        },
        "MessageSystemAttributes": {
            "AWSTraceHeader": {
                "DataType": "String",
                "StringValue": "Root=1-67891233-abcdef012345678912345678",
            },
        },
    });
    let answer = client.on("q", "SendMessage", request).await.ok();
    let id = server.messages("q").unwrap()[0].message_id.clone();
    assert_eq!(
        answer,
        json!({
            "MessageId": id,
            "MD5OfMessageBody": "f1bf24a69327a12c85b1d286ccac80bb",
            "MD5OfMessageAttributes": "16d7c2ecb0e1978d3e6ff2e489793e15",
            "MD5OfMessageSystemAttributes": "0b3c1006aaf3b70d8d2fea201f88f760",
        })
    );
}

#[tokio::test]
async fn without_attributes_there_is_no_digest_of_them() {
    let (_server, client) = standard().await;
    for attributes in [Value::Null, json!({})] {
        let request = json!({ "MessageBody": "a", "MessageAttributes": attributes });
        let answer = client.on("q", "SendMessage", request).await.ok();
        let members: Vec<String> = answer.as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["MD5OfMessageBody", "MessageId"]);
    }
}

#[tokio::test]
async fn a_body_that_is_missing_or_empty_is_a_missing_parameter() {
    let (_server, client) = standard().await;
    for body in [
        json!({}),
        json!({ "MessageBody": null }),
        json!({ "MessageBody": "" }),
    ] {
        client
            .on("q", "SendMessage", body)
            .await
            .assert_missing_parameter();
    }
}

#[tokio::test]
async fn a_message_of_exactly_the_maximum_is_taken_and_one_byte_more_is_not() {
    let (_server, client) = standard().await;
    let send = async |bytes: usize| {
        client
            .on(
                "q",
                "SendMessage",
                json!({ "MessageBody": "a".repeat(bytes) }),
            )
            .await
    };
    send(1_048_576).await.ok();
    send(1_048_577).await.assert_invalid_parameter();
}

#[tokio::test]
async fn size_is_counted_in_bytes_of_utf8_with_names_types_and_decoded_values_of_attributes() {
    let (server, client) = standard().await;
    server
        .create_queue("small", [("MaximumMessageSize", "1024")])
        .await
        .unwrap();
    // 1 + 6 + 4 bytes of attribute, and 3 bytes for each sign of the body.
    let send = async |body: String| {
        let request = json!({
            "MessageBody": body,
            "MessageAttributes": { "b": { "DataType": "Binary", "BinaryValue": "AQIDBA==" } },
        });
        client.on("small", "SendMessage", request).await
    };
    let euros = "€".repeat(337);
    send(format!("{euros}aa")).await.ok();
    send(format!("{euros}aaa")).await.assert_invalid_parameter();
}

#[tokio::test]
async fn escapes_in_json_and_system_attributes_do_not_count() {
    let (server, client) = standard().await;
    server
        .create_queue("small", [("MaximumMessageSize", "1024")])
        .await
        .unwrap();
    let request = json!({
        "MessageBody": "\n".repeat(1_024),
        "MessageSystemAttributes": {
            "AWSTraceHeader": { "DataType": "String", "StringValue": "Root=1" },
        },
    });
    client.on("small", "SendMessage", request).await.ok();
}

#[tokio::test]
async fn a_refused_character_in_a_body_is_invalid_contents_and_in_an_attribute_an_invalid_parameter()
 {
    let (_server, client) = standard().await;
    for c in ['\0', '\u{7}', '\u{b}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
        let text = format!("a{c}b");
        client
            .on("q", "SendMessage", json!({ "MessageBody": text }))
            .await
            .assert_error(
                400,
                "com.amazonaws.sqs#InvalidMessageContents",
                "InvalidMessageContents;Sender",
            );
        let request = json!({
            "MessageBody": "a",
            "MessageAttributes": { "n": { "DataType": "String", "StringValue": text } },
        });
        client
            .on("q", "SendMessage", request)
            .await
            .assert_invalid_parameter();
    }
}

#[tokio::test]
async fn tabs_line_ends_c1_controls_and_signs_beyond_the_basic_plane_are_kept_as_they_are() {
    let (server, client) = standard().await;
    let text = "\t\n\r \u{7f}\u{9f}\u{d7ff}\u{e000}\u{fffd}🌊";
    client.put("q", text).await;
    assert_eq!(server.messages("q").unwrap()[0].body, text);
    assert_eq!(client.take("q").await[0]["Body"], text);
}

#[tokio::test]
async fn a_bad_attribute_is_an_invalid_parameter_and_a_list_an_unsupported_operation() {
    let (server, client) = standard().await;
    let send = async |attributes: Value| {
        let request = json!({ "MessageBody": "a", "MessageAttributes": attributes });
        client.on("q", "SendMessage", request).await
    };
    let eleven: Value = (0..11)
        .map(|n| {
            (
                format!("a{n}"),
                json!({ "DataType": "String", "StringValue": "v" }),
            )
        })
        .collect();
    for attributes in [
        json!({ "AWS.x": { "DataType": "String", "StringValue": "v" } }),
        json!({ "n": { "DataType": "Text", "StringValue": "v" } }),
        json!({ "n": { "DataType": "String", "StringValue": "" } }),
        json!({ "n": { "DataType": "Number", "StringValue": "x" } }),
        eleven,
    ] {
        send(attributes).await.assert_invalid_parameter();
    }
    send(json!({ "n": { "DataType": "String", "StringListValues": ["v"] } }))
        .await
        .assert_error(
            400,
            "com.amazonaws.sqs#UnsupportedOperation",
            "AWS.SimpleQueueService.UnsupportedOperation;Sender",
        );
    assert_eq!(server.messages("q").unwrap(), []);
}

#[tokio::test]
async fn the_trace_header_is_the_only_system_attribute_and_is_a_string() {
    let (_server, client) = standard().await;
    for attributes in [
        json!({ "Other": { "DataType": "String", "StringValue": "v" } }),
        json!({ "AWSTraceHeader": { "DataType": "Number", "StringValue": "1" } }),
        json!({ "AWSTraceHeader": { "DataType": "String", "StringValue": "" } }),
    ] {
        let request = json!({ "MessageBody": "a", "MessageSystemAttributes": attributes });
        client
            .on("q", "SendMessage", request)
            .await
            .assert_invalid_parameter();
    }
}

#[tokio::test]
async fn a_delay_is_0_to_900_seconds() {
    let (_server, client) = standard().await;
    for (delay, good) in [(0, true), (900, true), (901, false), (-1, false)] {
        let reply = client
            .on(
                "q",
                "SendMessage",
                json!({ "MessageBody": "a", "DelaySeconds": delay }),
            )
            .await;
        if good {
            reply.ok();
        } else {
            reply.assert_invalid_parameter();
        }
    }
}

#[tokio::test]
async fn a_standard_queue_takes_a_group_id_and_refuses_a_deduplication_id() {
    let (server, client) = standard().await;
    client
        .on(
            "q",
            "SendMessage",
            json!({ "MessageBody": "a", "MessageGroupId": "tenant-1" }),
        )
        .await
        .ok();
    assert_eq!(
        server.messages("q").unwrap()[0].group_id.as_deref(),
        Some("tenant-1")
    );
    client
        .on(
            "q",
            "SendMessage",
            json!({ "MessageBody": "a", "MessageDeduplicationId": "d" }),
        )
        .await
        .assert_invalid_parameter();
}

#[tokio::test]
async fn a_bad_group_id_is_refused_on_both_kinds_of_queue() {
    for id in ["", "a b", "é", &"a".repeat(129)] {
        let (_server, client) = standard().await;
        client
            .on(
                "q",
                "SendMessage",
                json!({ "MessageBody": "a", "MessageGroupId": id }),
            )
            .await
            .assert_invalid_parameter();
        let (_server, client) = fifo().await;
        for (group, deduplication) in [(id, "d"), ("g", id)] {
            let request = json!({
                "MessageBody": "a",
                "MessageGroupId": group,
                "MessageDeduplicationId": deduplication,
            });
            client
                .on("q.fifo", "SendMessage", request)
                .await
                .assert_invalid_parameter();
        }
    }
}
