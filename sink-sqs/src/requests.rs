//! The operations of the consuming side, as they stand on the wire (AWS JSON 1.0).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use dispatch_api::push_json_string;
use serde::{Deserialize, Deserializer, de};

use crate::protocol::FailedEntry;

/// One operation, as the service and as telemetry names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The `x-amz-target`.
    pub(crate) target: &'static str,
    pub(crate) name: &'static str,
    /// The kind of operation that OpenTelemetry knows.
    pub(crate) kind: &'static str,
}

const fn operation(target: &'static str, name: &'static str, kind: &'static str) -> Operation {
    Operation { target, name, kind }
}

pub(crate) const RECEIVE: Operation = operation("AmazonSQS.ReceiveMessage", "receive", "receive");
pub(crate) const DELETE: Operation = operation("AmazonSQS.DeleteMessage", "delete", "settle");
pub(crate) const DELETE_BATCH: Operation =
    operation("AmazonSQS.DeleteMessageBatch", "delete_batch", "settle");
pub(crate) const CHANGE_VISIBILITY: Operation = operation(
    "AmazonSQS.ChangeMessageVisibility",
    "change_visibility",
    "settle",
);
pub(crate) const CHANGE_VISIBILITY_BATCH: Operation = operation(
    "AmazonSQS.ChangeMessageVisibilityBatch",
    "change_visibility_batch",
    "settle",
);
pub(crate) const GET_QUEUE_URL: Operation =
    operation("AmazonSQS.GetQueueUrl", "get_queue_url", "create");
pub(crate) const GET_QUEUE_ATTRIBUTES: Operation = operation(
    "AmazonSQS.GetQueueAttributes",
    "get_queue_attributes",
    "create",
);
pub(crate) const SET_QUEUE_ATTRIBUTES: Operation = operation(
    "AmazonSQS.SetQueueAttributes",
    "set_queue_attributes",
    "create",
);

/// The system attributes that a delivery is made of, under both names that servers know the
/// list by.
const SYSTEM_ATTRIBUTES: &str =
    r#"["ApproximateReceiveCount","MessageGroupId","MessageDeduplicationId","SentTimestamp"]"#;

fn about(queue_url: &str) -> String {
    let mut out = String::with_capacity(queue_url.len() + 512);
    out.push_str("{\"QueueUrl\":");
    push_json_string(&mut out, queue_url);
    out
}

/// `attempt` is the id of a receive that can be asked for again, on a FIFO queue.
pub(crate) fn receive(
    queue_url: &str,
    max: usize,
    wait: u64,
    visibility: u64,
    attempt: Option<&str>,
) -> Vec<u8> {
    let mut out = about(queue_url);
    if let Some(attempt) = attempt {
        out.push_str(",\"ReceiveRequestAttemptId\":");
        push_json_string(&mut out, attempt);
    }
    let _ = write!(
        out,
        ",\"MaxNumberOfMessages\":{max},\"WaitTimeSeconds\":{wait},\"VisibilityTimeout\":\
         {visibility},\"MessageAttributeNames\":[\"All\"],\"AttributeNames\":{SYSTEM_ATTRIBUTES},\
         \"MessageSystemAttributeNames\":{SYSTEM_ATTRIBUTES}}}"
    );
    out.into_bytes()
}

/// What is changed about one held message: nothing but its hold, or its being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Delete,
    /// In seconds.
    Visibility(u64),
}

fn push_change(out: &mut String, handle: &str, change: Change) {
    out.push_str("\"ReceiptHandle\":");
    push_json_string(out, handle);
    if let Change::Visibility(seconds) = change {
        let _ = write!(out, ",\"VisibilityTimeout\":{seconds}");
    }
}

pub(crate) fn change(queue_url: &str, handle: &str, change: Change) -> Vec<u8> {
    let mut out = about(queue_url);
    out.push(',');
    push_change(&mut out, handle, change);
    out.push('}');
    out.into_bytes()
}

/// Several changes. An entry's id is its position: one message can be held twice.
pub(crate) fn change_batch<'a>(
    queue_url: &str,
    changes: impl Iterator<Item = (&'a str, Change)>,
) -> Vec<u8> {
    let mut out = about(queue_url);
    out.push_str(",\"Entries\":[");
    for (index, (handle, change)) in changes.enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"Id\":\"{index}\",");
        push_change(&mut out, handle, change);
        out.push('}');
    }
    out.push_str("]}");
    out.into_bytes()
}

pub(crate) fn get_queue_url(name: &str, account: Option<&str>) -> Vec<u8> {
    let mut out = String::from("{\"QueueName\":");
    push_json_string(&mut out, name);
    if let Some(account) = account {
        out.push_str(",\"QueueOwnerAWSAccountId\":");
        push_json_string(&mut out, account);
    }
    out.push('}');
    out.into_bytes()
}

pub(crate) fn get_queue_attributes(queue_url: &str) -> Vec<u8> {
    let mut out = about(queue_url);
    out.push_str(",\"AttributeNames\":[\"QueueArn\",\"RedrivePolicy\",\"VisibilityTimeout\"]}");
    out.into_bytes()
}

pub(crate) fn set_redrive_policy(queue_url: &str, policy: &str) -> Vec<u8> {
    let mut out = about(queue_url);
    out.push_str(",\"Attributes\":{\"RedrivePolicy\":");
    push_json_string(&mut out, policy);
    out.push_str("}}");
    out.into_bytes()
}

/// Reads an answer; one without a body reads as `{}`.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, serde_json::Error> {
    let body = match body.trim_ascii().is_empty() {
        true => b"{}",
        false => body,
    };
    serde_json::from_slice(body)
}

/// An answer of which nothing is read but that it is one.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct EmptyReply {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReceiveReply {
    #[serde(rename = "Messages")]
    pub(crate) messages: Option<Vec<WireMessage>>,
}

/// One received message, as far as it is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireMessage {
    #[serde(rename = "MessageId")]
    pub(crate) id: Option<String>,
    #[serde(rename = "ReceiptHandle")]
    pub(crate) handle: Option<String>,
    #[serde(rename = "Body")]
    pub(crate) body: Option<String>,
    #[serde(rename = "MD5OfBody")]
    pub(crate) body_md5: Option<String>,
    #[serde(rename = "MD5OfMessageAttributes")]
    pub(crate) attributes_md5: Option<String>,
    #[serde(rename = "Attributes")]
    pub(crate) system: Option<SystemAttributes>,
    #[serde(rename = "MessageAttributes")]
    pub(crate) attributes: Option<BTreeMap<String, WireAttribute>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SystemAttributes {
    #[serde(rename = "ApproximateReceiveCount", deserialize_with = "number")]
    pub(crate) receive_count: Option<u64>,
    #[serde(rename = "SentTimestamp", deserialize_with = "number")]
    pub(crate) sent_timestamp: Option<u64>,
    #[serde(rename = "MessageGroupId")]
    pub(crate) group_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireAttribute {
    #[serde(rename = "DataType", deserialize_with = "data_type")]
    pub(crate) data_type: Cow<'static, str>,
    #[serde(rename = "StringValue")]
    pub(crate) text: Option<String>,
    /// In base64.
    #[serde(rename = "BinaryValue")]
    pub(crate) binary: Option<String>,
}

/// The type of an attribute, which nearly always is the one that needs no string of its own.
fn data_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = Cow<'static, str>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(match text {
                "String" => Cow::Borrowed("String"),
                other => Cow::Owned(other.to_owned()),
            })
        }
    }
    deserializer.deserialize_str(Visitor)
}

/// A number, written as the service writes them, as text, or as a number. What is neither
/// counts as unknown.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number or its text")
        }

        fn visit_str<E>(self, text: &str) -> Result<Option<u64>, E> {
            Ok(text.parse().ok())
        }

        fn visit_u64<E>(self, number: u64) -> Result<Option<u64>, E> {
            Ok(Some(number))
        }

        fn visit_i64<E>(self, number: i64) -> Result<Option<u64>, E> {
            Ok(u64::try_from(number).ok())
        }

        fn visit_unit<E>(self) -> Result<Option<u64>, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(Visitor)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChangeBatchReply {
    #[serde(rename = "Successful")]
    pub(crate) successful: Vec<ChangedEntry>,
    #[serde(rename = "Failed")]
    pub(crate) failed: Vec<FailedEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChangedEntry {
    #[serde(rename = "Id")]
    pub(crate) id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueueUrlReply {
    #[serde(rename = "QueueUrl")]
    pub(crate) queue_url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueueAttributesReply {
    #[serde(rename = "Attributes")]
    pub(crate) attributes: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(request: Vec<u8>) -> Value {
        serde_json::from_slice(&request).unwrap()
    }

    #[test]
    fn a_receive_asks_for_everything_a_delivery_is_made_of_under_both_names() {
        let names = json!([
            "ApproximateReceiveCount",
            "MessageGroupId",
            "MessageDeduplicationId",
            "SentTimestamp"
        ]);
        assert_eq!(
            read(receive("http://h/0/q", 7, 20, 30, None)),
            json!({
                "QueueUrl": "http://h/0/q",
                "MaxNumberOfMessages": 7,
                "WaitTimeSeconds": 20,
                "VisibilityTimeout": 30,
                "MessageAttributeNames": ["All"],
                "AttributeNames": names,
                "MessageSystemAttributeNames": names,
            })
        );
    }

    #[test]
    fn changes_are_written_member_by_member_and_numbered_by_position() {
        assert_eq!(
            read(change("u", "h\"1", Change::Delete)),
            json!({"QueueUrl": "u", "ReceiptHandle": "h\"1"})
        );
        let changes = [("h", Change::Visibility(0)), ("h", Change::Delete)];
        assert_eq!(
            read(change_batch("u", changes.into_iter())),
            json!({"QueueUrl": "u", "Entries": [
                {"Id": "0", "ReceiptHandle": "h", "VisibilityTimeout": 0},
                {"Id": "1", "ReceiptHandle": "h"},
            ]})
        );
    }

    #[test]
    fn a_reply_without_messages_holds_none() {
        for body in ["", "{}", r#"{"Messages":null}"#, r#"{"Messages":[]}"#] {
            let reply: ReceiveReply = parse(body.as_bytes()).unwrap();
            assert!(reply.messages.unwrap_or_default().is_empty(), "{body}");
        }
        assert!(parse::<ReceiveReply>(b"<html>").is_err());
    }

    #[test]
    fn a_count_is_read_as_text_or_number_and_is_unknown_otherwise() {
        let count = |text: &str| {
            let body = format!(r#"{{"Messages":[{{"Attributes":{text}}}]}}"#);
            let reply: ReceiveReply = parse(body.as_bytes()).unwrap();
            let message = reply.messages.unwrap().remove(0);
            message.system.unwrap_or_default().receive_count
        };
        assert_eq!(count(r#"{"ApproximateReceiveCount":"3"}"#), Some(3));
        assert_eq!(count(r#"{"ApproximateReceiveCount":3}"#), Some(3));
        for unknown in [
            "{}",
            "null",
            r#"{"ApproximateReceiveCount":""}"#,
            r#"{"ApproximateReceiveCount":null}"#,
            r#"{"ApproximateReceiveCount":"-1"}"#,
        ] {
            assert_eq!(count(unknown), None, "{unknown}");
        }
    }
}
