//! The digests that answers carry. MD5 is what the service uses to detect damage; it secures nothing.

use md5::{Digest, Md5};
use sha2::Sha256;

use super::message_attributes::{AttributeValue, Transport};

/// `MD5OfMessageBody`, `MD5OfBody`.
pub(crate) fn body_md5(body: &str) -> String {
    hex::encode(Md5::digest(body.as_bytes()))
}

/// `MD5OfMessageAttributes` and `MD5OfMessageSystemAttributes`; nothing without attributes.
///
/// The caller hands the attributes over in the order of their names.
pub(crate) fn attributes_md5<'a>(
    attributes: impl Iterator<Item = (&'a str, &'a AttributeValue)>,
) -> Option<String> {
    let mut hash = Md5::new();
    let mut any = false;
    for (name, value) in attributes {
        any = true;
        part(&mut hash, name.as_bytes());
        part(&mut hash, value.data_type().as_bytes());
        hash.update([match value.transport() {
            Transport::Text => 1,
            Transport::Bytes => 2,
        }]);
        part(&mut hash, value.bytes());
    }
    any.then(|| hex::encode(hash.finalize()))
}

/// The deduplication id that a queue with content-based deduplication makes.
pub(crate) fn content_id(body: &str) -> String {
    hex::encode(Sha256::digest(body.as_bytes()))
}

fn part(hash: &mut Md5, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a part of a message is at most 1 MiB");
    hash.update(length.to_be_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sqs::message_attributes::{self, MessageAttributes};

    #[track_caller]
    fn check(list: &[(&str, &str, &str)], size: usize, md5: &str) {
        let wire = || {
            let attributes: Value = list
                .iter()
                .map(|(name, data_type, value)| {
                    let member = if data_type.starts_with("Binary") {
                        "BinaryValue"
                    } else {
                        "StringValue"
                    };
                    (
                        (*name).to_owned(),
                        json!({ "DataType": data_type, member: value }),
                    )
                })
                .collect();
            serde_json::from_value(attributes).unwrap()
        };
        assert_eq!(message_attributes::size(&wire()), size);
        let attributes = MessageAttributes::parse(wire()).unwrap();
        assert_eq!(attributes.md5().as_deref(), Some(md5));
    }

    #[test]
    fn attribute_digests_agree_with_the_known_answers() {
        check(
            &[("zeta", "String", "river")],
            15,
            "33c01b0763d9729d61e3f491117036aa",
        );
        check(
            &[("zeta", "String", "river"), ("Alpha", "Number", "42")],
            28,
            "16d7c2ecb0e1978d3e6ff2e489793e15",
        );
        check(
            &[
                ("zeta", "String.note", "héllo 🌊"),
                ("Alpha", "Number.int", "-7"),
                ("bin", "Binary.png", "AP8Q"),
            ],
            59,
            "50b4c9e19e17802ddda14c266e3048a1",
        );
    }

    #[test]
    fn attribute_digests_agree_with_answers_of_the_service() {
        check(
            &[
                ("color", "String", "blue"),
                ("count", "Number", "3"),
                ("blob", "Binary", "AQID"),
            ],
            40,
            "d838729972a4b70e2d2acd9d59ac847c",
        );
        check(
            &[("color", "String", "blue")],
            15,
            "da1b33cc3cbfe8b1630921e78e6b9880",
        );
    }

    #[test]
    fn a_system_attribute_has_the_same_layout() {
        let value = AttributeValue::text("String", "Root=1-67891233-abcdef012345678912345678");
        assert_eq!(
            attributes_md5([("AWSTraceHeader", &value)].into_iter()).as_deref(),
            Some("0b3c1006aaf3b70d8d2fea201f88f760")
        );
    }

    #[test]
    fn no_attributes_have_no_digest() {
        assert_eq!(attributes_md5(std::iter::empty()), None);
    }

    #[test]
    fn body_digests_are_of_the_utf8_bytes() {
        assert_eq!(body_md5("sink ✓"), "f1bf24a69327a12c85b1d286ccac80bb");
        assert_eq!(
            content_id("sink ✓"),
            "258d168888502c4bae18956622e0116c8c73008759ce8bfb04de7b3bb484301a"
        );
    }
}
