//! What the server hands out: messages that lie ready as they stand in an answer, with
//! their digests.

use bytes::Bytes;
use dispatch_api::Message;
use md5::{Digest as _, Md5};
use memchr::memmem;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::workload::{Workload, context, message};

/// The size of the hooks that are received, in bytes.
pub(crate) const HOOK_BYTES: usize = 1_024;

/// The most messages of an answer.
const MOST: usize = 10;

/// The answers to every receive.
#[derive(Debug)]
pub(crate) struct Stored {
    /// By the number of messages, from one on.
    complete: Vec<Bytes>,
    /// Without attributes, for a client that asks for none.
    bare: Vec<Bytes>,
}

impl Stored {
    pub(crate) fn new() -> Result<Self, Failure> {
        let workload = Workload::new(HOOK_BYTES, MOST);
        let ctx = context();
        let (mut complete, mut bare) = (Vec::new(), Vec::new());
        while let Some(hook) = workload.take() {
            let message = message(hook, &ctx)?;
            let mut value = shown(&message, complete.len());
            complete.push(value.clone());
            for name in ["Attributes", "MessageAttributes", "MD5OfMessageAttributes"] {
                value.remove(name);
            }
            bare.push(value);
        }
        Ok(Self {
            complete: answers(&complete),
            bare: answers(&bare),
        })
    }

    /// The answer to this request.
    pub(crate) fn answer(&self, request: &[u8]) -> Option<Bytes> {
        let answers = match memmem::find(request, b"\"MessageAttributeNames\"") {
            Some(_) => &self.complete,
            None => &self.bare,
        };
        answers.get(most_of(request)?.checked_sub(1)?).cloned()
    }
}

/// How many messages a request asks for. Its other members are not looked at.
fn most_of(request: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\"MaxNumberOfMessages\":";
    let Some(at) = memmem::find(request, NAME) else {
        return Some(1);
    };
    let digits = request[at + NAME.len()..].iter();
    let digits: Vec<u8> = digits.copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

fn answers(messages: &[Map<String, Value>]) -> Vec<Bytes> {
    (1..=messages.len())
        .map(|count| json!({ "Messages": &messages[..count] }).to_string().into())
        .collect()
}

fn shown(message: &Message<'_>, number: usize) -> Map<String, Value> {
    let body = message.encode();
    let attributes = message.attributes();
    let mut attributes: Vec<_> = attributes
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    attributes.sort_unstable_by_key(|(name, _)| *name);
    let mut digest = AttributesDigest::default();
    let mut values = Map::new();
    for (name, value) in attributes {
        digest.update(name, "String", value);
        let value = json!({ "DataType": "String", "StringValue": value });
        values.insert((*name).to_owned(), value);
    }
    let shown = json!({
        "MessageId": format!("b81f4f5c-0000-4000-8000-{number:012x}"),
        // As long as those of the service.
        "ReceiptHandle": format!("AQEB{}{number:02}==", "q7Zt0x+/".repeat(22)),
        "MD5OfBody": hex::encode(Md5::digest(&body)),
        "Body": body,
        "Attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1767225600000",
        },
        "MD5OfMessageAttributes": digest.finish(),
        "MessageAttributes": values,
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

/// The digest of attributes, which are given in the order of their names.
#[derive(Default)]
pub(crate) struct AttributesDigest(Md5);

impl AttributesDigest {
    /// Takes one attribute of a type of text.
    pub(crate) fn update(&mut self, name: &str, data_type: &str, value: &str) {
        self.update_with_length(name);
        self.update_with_length(data_type);
        self.0.update([1]);
        self.update_with_length(value);
    }

    fn update_with_length(&mut self, text: &str) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.0.update(length.to_be_bytes());
        self.0.update(text);
    }

    /// The digest as hex.
    pub(crate) fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(answer: Option<Bytes>) -> Vec<Value> {
        let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        answer["Messages"].as_array().unwrap().clone()
    }

    #[test]
    fn a_receive_brings_as_many_as_are_asked_for_and_one_where_nothing_is_said() {
        let stored = Stored::new().unwrap();
        let count = |request: &[u8]| messages(stored.answer(request)).len();
        assert_eq!(count(br#"{"MaxNumberOfMessages":10}"#), 10);
        assert_eq!(
            count(br#"{"MaxNumberOfMessages":3,"WaitTimeSeconds":20}"#),
            3
        );
        assert_eq!(count(b"{}"), 1);
        for refused in ["0", "11", "x"] {
            let request = format!(r#"{{"MaxNumberOfMessages":{refused}}}"#);
            assert_eq!(stored.answer(request.as_bytes()), None, "{refused}");
        }
    }

    #[test]
    fn attributes_come_where_they_are_asked_for() {
        let stored = Stored::new().unwrap();
        let asked = messages(stored.answer(br#"{"MessageAttributeNames":["All"]}"#));
        assert_eq!(asked[0]["MessageAttributes"].as_object().unwrap().len(), 7);
        assert!(asked[0]["MD5OfMessageAttributes"].is_string());
        let bare = messages(stored.answer(b"{}"));
        assert_eq!(bare[0]["MessageAttributes"], Value::Null);
        assert_eq!(bare[0]["Body"], asked[0]["Body"]);
    }
}
