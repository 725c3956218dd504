//! The digests by which SQS shows what it received.

use std::fmt;

// MD5 because the service defines its transport check that way. It proves nothing
// about who sent what, and nothing here takes it for security.
use md5::{Digest, Md5};

/// The value of a message attribute as it is hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DigestValue<'a> {
    /// Of type `String` or `Number`, with or without a suffix.
    Text(&'a str),
    /// Of type `Binary`, decoded.
    Binary(&'a [u8]),
}

/// A digest as lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HexDigest([u8; 32]);

impl HexDigest {
    fn of(bytes: &[u8]) -> Self {
        let mut text = [0; 32];
        hex::encode_to_slice(Md5::digest(bytes), &mut text)
            .expect("16 bytes are written as 32 digits");
        Self(text)
    }

    /// Whether an answer shows this digest, in either letter case.
    pub(crate) fn is_shown_by(&self, answered: &str) -> bool {
        self.0.eq_ignore_ascii_case(answered.as_bytes())
    }
}

impl fmt::Display for HexDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.0).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for HexDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The digest of a body.
pub(crate) fn of_body(body: &str) -> HexDigest {
    HexDigest::of(body.as_bytes())
}

/// The digest of message attributes (name, data type, value); none without attributes.
pub(crate) fn of_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str, DigestValue<'a>)>,
) -> Option<HexDigest> {
    let mut attributes: Vec<_> = attributes.into_iter().collect();
    if attributes.is_empty() {
        return None;
    }
    // By bytes, not by locale.
    attributes.sort_unstable_by_key(|(name, _, _)| *name);
    // Written out first: hashing many pieces costs more than copying them.
    let mut hashed = Vec::with_capacity(512);
    for (name, data_type, value) in attributes {
        push_with_length(&mut hashed, name.as_bytes());
        push_with_length(&mut hashed, data_type.as_bytes());
        let (tag, value) = match value {
            DigestValue::Text(text) => (1, text.as_bytes()),
            DigestValue::Binary(bytes) => (2, bytes),
        };
        hashed.push(tag);
        push_with_length(&mut hashed, value);
    }
    Some(HexDigest::of(&hashed))
}

fn push_with_length(out: &mut Vec<u8>, bytes: &[u8]) {
    // The service takes no message of 4 GiB, so a part's length always fits.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::DigestValue::{Binary, Text};
    use super::*;

    fn body(text: &str) -> String {
        of_body(text).to_string()
    }

    fn attributes<'a, const N: usize>(
        attributes: [(&'a str, &'a str, DigestValue<'a>); N],
    ) -> Option<String> {
        of_attributes(attributes).map(|digest| digest.to_string())
    }

    #[test]
    fn an_answer_shows_a_digest_in_either_letter_case_and_as_a_whole() {
        let digest = of_body("sink ✓");
        assert!(digest.is_shown_by("f1bf24a69327a12c85b1d286ccac80bb"));
        assert!(digest.is_shown_by("F1BF24A69327A12C85B1D286CCAC80BB"));
        for other in [
            "",
            "f1bf24a69327a12c85b1d286ccac80b",
            "f1bf24a69327a12c85b1d286ccac80bb0",
            "f1bf24a69327a12c85b1d286ccac80bc",
        ] {
            assert!(!digest.is_shown_by(other), "{other}");
        }
    }

    #[test]
    fn a_body_is_hashed_by_its_utf8_bytes() {
        assert_eq!(body("sink ✓"), "f1bf24a69327a12c85b1d286ccac80bb");
    }

    #[test]
    fn one_attribute_has_the_known_digest() {
        assert_eq!(
            attributes([("zeta", "String", Text("river"))]).as_deref(),
            Some("33c01b0763d9729d61e3f491117036aa")
        );
    }

    #[test]
    fn names_are_sorted_by_byte_whatever_the_order_given() {
        let (zeta, alpha) = (
            ("zeta", "String", Text("river")),
            ("Alpha", "Number", Text("42")),
        );
        for given in [[zeta, alpha], [alpha, zeta]] {
            assert_eq!(
                attributes(given).as_deref(),
                Some("16d7c2ecb0e1978d3e6ff2e489793e15")
            );
        }
    }

    #[test]
    fn custom_types_non_ascii_text_and_binary_have_the_known_digest() {
        assert_eq!(
            attributes([
                ("zeta", "String.note", Text("héllo 🌊")),
                ("Alpha", "Number.int", Text("-7")),
                ("bin", "Binary.png", Binary(&[0x00, 0xff, 0x10])),
            ])
            .as_deref(),
            Some("50b4c9e19e17802ddda14c266e3048a1")
        );
    }

    #[test]
    fn digests_recorded_from_the_service_are_met() {
        assert_eq!(
            attributes([
                ("color", "String", Text("blue")),
                ("count", "Number", Text("3")),
                ("blob", "Binary", Binary(&[1, 2, 3])),
            ])
            .as_deref(),
            Some("d838729972a4b70e2d2acd9d59ac847c")
        );
        assert_eq!(
            attributes([("color", "String", Text("blue"))]).as_deref(),
            Some("da1b33cc3cbfe8b1630921e78e6b9880")
        );
        assert_eq!(
            attributes([(
                "AWSTraceHeader",
                "String",
                Text("Root=1-67891233-abcdef012345678912345678")
            )])
            .as_deref(),
            Some("0b3c1006aaf3b70d8d2fea201f88f760")
        );
    }

    #[test]
    fn no_attributes_have_no_digest() {
        assert_eq!(attributes([]), None);
    }
}
