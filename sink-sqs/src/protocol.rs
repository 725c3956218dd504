//! The operations that this sink uses, as they stand on the wire (AWS JSON 1.0).

use std::fmt::Write as _;

use dispatch_api::push_json_string;
use serde::Deserialize;
use serde_json::Value;

use crate::entry::{DATA_TYPE, Entry};

/// The `x-amz-target` of a send.
pub(crate) const SEND_MESSAGE: &str = "AmazonSQS.SendMessage";

/// The `x-amz-target` of a send of several messages.
pub(crate) const SEND_MESSAGE_BATCH: &str = "AmazonSQS.SendMessageBatch";

/// Writes the request of one message, given its [`members`].
pub(crate) fn send_message(queue_url: &str, members: &str) -> Vec<u8> {
    let mut out = String::with_capacity(queue_url.len() + members.len() + 32);
    out.push_str("{\"QueueUrl\":");
    push_json_string(&mut out, queue_url);
    out.push(',');
    out.push_str(members);
    out.push('}');
    out.into_bytes()
}

/// Writes the request of several messages, given the [`members`] of each. An entry's id is
/// its position: unique and of the service's alphabet, whatever the message's own id is.
pub(crate) fn send_message_batch<'a>(
    queue_url: &str,
    entries: impl Iterator<Item = &'a str> + Clone,
) -> Vec<u8> {
    let members: usize = entries.clone().map(|members| members.len() + 16).sum();
    let mut out = String::with_capacity(queue_url.len() + members + 48);
    out.push_str("{\"QueueUrl\":");
    push_json_string(&mut out, queue_url);
    out.push_str(",\"Entries\":[");
    for (index, members) in entries.enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"Id\":\"{index}\",");
        out.push_str(members);
        out.push('}');
    }
    out.push_str("]}");
    out.into_bytes()
}

/// The position that an entry's id stands for.
pub(crate) fn position(id: &str) -> Option<usize> {
    // `+1` and `01` are nobody's ids.
    let is_written_so = id == "0" || !id.starts_with(['0', '+']);
    id.parse().ok().filter(|_| is_written_so)
}

/// The members of one message, without braces.
pub(crate) fn members(entry: &Entry<'_>) -> String {
    // Many messages wait at once, so the room is what is usual and not what is possible.
    const IDS_AND_FRAME: usize = 192;
    let attributes: usize = entry
        .attributes
        .iter()
        .map(|(name, value)| name.len() + value.len() + 44)
        .sum();
    let mut out = String::with_capacity(entry.quoted_body.len() + attributes + IDS_AND_FRAME);
    push_members(&mut out, entry);
    out
}

fn push_members(out: &mut String, entry: &Entry<'_>) {
    out.push_str("\"MessageBody\":");
    out.push_str(entry.quoted_body);
    // An empty object is not the same as none: the service refuses it.
    if !entry.attributes.is_empty() {
        out.push_str(",\"MessageAttributes\":{");
        for (index, (name, value)) in entry.attributes.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            // Names are this workspace's own, of letters and underscores.
            out.push('"');
            out.push_str(name);
            out.push_str("\":{\"DataType\":\"");
            out.push_str(DATA_TYPE);
            out.push_str("\",\"StringValue\":");
            push_json_string(out, value);
            out.push('}');
        }
        out.push('}');
    }
    if let Some(id) = &entry.deduplication_id {
        out.push_str(",\"MessageDeduplicationId\":");
        push_json_string(out, id);
    }
    if let Some(id) = &entry.group_id {
        out.push_str(",\"MessageGroupId\":");
        push_json_string(out, id);
    }
}

/// What the service answers to a send. Members it adds later are ignored.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SendMessageReply {
    #[serde(rename = "MessageId")]
    pub(crate) message_id: Option<String>,
    #[serde(rename = "MD5OfMessageBody")]
    pub(crate) body_md5: Option<String>,
    #[serde(rename = "MD5OfMessageAttributes")]
    pub(crate) attributes_md5: Option<String>,
    #[serde(rename = "SequenceNumber")]
    pub(crate) sequence_number: Option<String>,
}

impl SendMessageReply {
    /// Reads an answer; one without a body reads as `{}`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(body)
    }
}

/// What the service answers to a send of several messages.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SendMessageBatchReply {
    #[serde(rename = "Successful")]
    pub(crate) successful: Vec<SuccessfulEntry>,
    #[serde(rename = "Failed")]
    pub(crate) failed: Vec<FailedEntry>,
}

/// One message that was stored. It repeats the members of [`SendMessageReply`], because
/// flattening reads every member into a tree first.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SuccessfulEntry {
    #[serde(rename = "Id")]
    pub(crate) id: String,
    #[serde(rename = "MessageId")]
    message_id: Option<String>,
    #[serde(rename = "MD5OfMessageBody")]
    body_md5: Option<String>,
    #[serde(rename = "MD5OfMessageAttributes")]
    attributes_md5: Option<String>,
    #[serde(rename = "SequenceNumber")]
    sequence_number: Option<String>,
}

impl SuccessfulEntry {
    /// What a send of this message alone would have been answered.
    pub(crate) fn into_reply(self) -> SendMessageReply {
        SendMessageReply {
            message_id: self.message_id,
            body_md5: self.body_md5,
            attributes_md5: self.attributes_md5,
            sequence_number: self.sequence_number,
        }
    }
}

/// One message that was not.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FailedEntry {
    #[serde(rename = "Id")]
    pub(crate) id: String,
    #[serde(rename = "Code")]
    pub(crate) code: String,
    #[serde(rename = "Message")]
    pub(crate) message: Option<String>,
    #[serde(rename = "SenderFault")]
    pub(crate) sender_fault: bool,
}

impl SendMessageBatchReply {
    /// Reads an answer; one without a body reads as `{}`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(body)
    }
}

/// What the service, or something that imitates it, says about a refused request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorDocument {
    /// The member `code`.
    pub(crate) code: Option<String>,
    /// The member `__type`.
    pub(crate) kind: Option<String>,
    pub(crate) message: Option<String>,
}

impl ErrorDocument {
    /// Reads the members that are there and are text; anything else has none. Of a document
    /// of the older protocol it reads the code alone: what is escaped in XML could repeat
    /// the message unrecognised.
    pub(crate) fn parse(body: &[u8]) -> Self {
        if body.trim_ascii_start().starts_with(b"<") {
            return Self {
                code: code_of_xml(body),
                ..Self::default()
            };
        }
        let Ok(Value::Object(mut members)) = serde_json::from_slice(body) else {
            return Self::default();
        };
        let mut text = |name: &str| match members.remove(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        Self {
            code: text("code").or_else(|| text("Code")),
            kind: text("__type"),
            message: text("message")
                .or_else(|| text("Message"))
                .or_else(|| text("errorMessage")),
        }
    }
}

/// The code of `<ErrorResponse><Error><Code>…</Code>`, or of the bare `<Error>`.
fn code_of_xml(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, error) = text.split_once("<Error>")?;
    let (error, _) = error.split_once("</Error>")?;
    let (_, code) = error.split_once("<Code>")?;
    let (code, _) = code.split_once("</Code>")?;
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_graphic());
    (is_code && !code.contains(['<', '&'])).then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn entry() -> Entry<'static> {
        Entry {
            body: r#"{"v":1,"x":"✓"}"#,
            quoted_body: r#""{\"v\":1,\"x\":\"✓\"}""#,
            attributes: vec![
                ("ankusa_id", Cow::Borrowed("i-1")),
                ("ankusa_dedupe_key", Cow::Borrowed("a\"b")),
            ],
            group_id: Some("quay-7/harbor".to_owned()),
            deduplication_id: Some("i-1".to_owned()),
            size: 0,
        }
    }

    #[test]
    fn a_batch_numbers_its_entries_by_position() {
        let members = members(&entry());
        let batch = [members.as_str(), members.as_str()];
        let request: Value =
            serde_json::from_slice(&send_message_batch("http://h/0/q.fifo", batch.into_iter()))
                .unwrap();
        assert_eq!(request["QueueUrl"], "http://h/0/q.fifo");
        let entries = request["Entries"].as_array().unwrap();
        let ids: Vec<_> = entries.iter().map(|entry| &entry["Id"]).collect();
        assert_eq!(ids, ["0", "1"]);
        assert_eq!(entries[1]["MessageBody"], r#"{"v":1,"x":"✓"}"#);
        assert_eq!(entries[1]["MessageGroupId"], "quay-7/harbor");
    }

    #[test]
    fn only_the_id_that_was_written_stands_for_a_position() {
        assert_eq!(position("0"), Some(0));
        assert_eq!(position("10"), Some(10));
        for foreign in [
            "",
            "00",
            "+1",
            "-1",
            " 1",
            "1.0",
            "a",
            "99999999999999999999",
        ] {
            assert_eq!(position(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_request_is_written_member_by_member() {
        let request =
            String::from_utf8(send_message("http://h/0/q.fifo", &members(&entry()))).unwrap();
        assert_eq!(
            request,
            concat!(
                r#"{"QueueUrl":"http://h/0/q.fifo","MessageBody":"{\"v\":1,\"x\":\"✓\"}","#,
                r#""MessageAttributes":{"ankusa_id":{"DataType":"String","StringValue":"i-1"},"#,
                r#""ankusa_dedupe_key":{"DataType":"String","StringValue":"a\"b"}},"#,
                r#""MessageDeduplicationId":"i-1","MessageGroupId":"quay-7/harbor"}"#,
            )
        );
    }

    #[test]
    fn absent_members_are_left_out() {
        let bare = Entry {
            attributes: Vec::new(),
            group_id: None,
            deduplication_id: None,
            ..entry()
        };
        let request: Value = serde_json::from_slice(&send_message("u", &members(&bare))).unwrap();
        let names: Vec<_> = request.as_object().unwrap().keys().collect();
        assert_eq!(names, ["MessageBody", "QueueUrl"]);
    }

    #[test]
    fn a_reply_is_read_whatever_else_it_holds() {
        let reply = SendMessageReply::parse(
            br#"{"MessageId":"m","MD5OfMessageBody":"b","MD5OfMessageAttributes":null,"New":[1]}"#,
        )
        .unwrap();
        assert_eq!(reply.message_id.as_deref(), Some("m"));
        assert_eq!(reply.body_md5.as_deref(), Some("b"));
        assert_eq!(reply.attributes_md5, None);
    }

    #[test]
    fn an_empty_answer_reads_as_an_empty_object() {
        for body in ["", " \r\n", "{}"] {
            let reply = SendMessageReply::parse(body.as_bytes()).unwrap();
            assert_eq!(reply, SendMessageReply::default());
        }
        for body in ["<html>", "{\"MessageId\":", "{\"MessageId\":7}"] {
            assert!(SendMessageReply::parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn an_error_document_is_read_in_every_dialect() {
        let read = |body: &str| {
            let document = ErrorDocument::parse(body.as_bytes());
            (document.code, document.kind, document.message)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            read(r#"{"__type":"com.amazonaws.sqs#X","message":"m"}"#),
            (None, some("com.amazonaws.sqs#X"), some("m"))
        );
        assert_eq!(
            read(r#"{"code":"X","Message":"m"}"#),
            (some("X"), None, some("m"))
        );
        assert_eq!(
            read(r#"{"code":403,"errorMessage":"m","__type":""}"#),
            (None, None, some("m"))
        );
        assert_eq!(
            read(r#"{"Code":"X","Message":"m"}"#),
            (some("X"), None, some("m"))
        );
        let response = "<?xml version=\"1.0\"?>\n<ErrorResponse xmlns=\"http://x/\"><Error>\
                        <Type>Sender</Type><Code>AWS.X</Code><Message>m</Message></Error>\
                        <RequestId>r</RequestId></ErrorResponse>";
        assert_eq!(read(response), (some("AWS.X"), None, None));
        let bare = " <Error><Code>X</Code></Error>";
        assert_eq!(read(bare), (some("X"), None, None));
        for body in [
            "",
            "<html></html>",
            "<Code>X</Code>",
            "<Error><Code></Code></Error>",
            "<Error><Code>X</Error></Code>",
            "<Error><Code>a <b>word</b></Code></Error>",
            "<Error><Code>&lt;</Code></Error>",
            "[1]",
            "\"text\"",
            "{\"__type\"",
        ] {
            assert_eq!(read(body), (None, None, None), "{body}");
        }
    }
}
