//! The digests by which SQS shows what it received.

// MD5 because the service defines its transport check that way. It proves nothing
// about who sent what, and nothing here takes it for security.
use md5::{Digest, Md5};

/// The value of a message attribute as it is hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DigestValue<'a> {
    /// Of type `String` or `Number`, with or without a suffix.
    Text(&'a str),
    /// Of type `Binary`, decoded.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "this sink sends text only; the layout has both")
    )]
    Binary(&'a [u8]),
}

/// The digest of a body, as lower-case hex.
pub(crate) fn of_body(body: &str) -> String {
    hex::encode(Md5::digest(body.as_bytes()))
}

/// The digest of message attributes (name, data type, value), as lower-case hex;
/// none without attributes.
pub(crate) fn of_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str, DigestValue<'a>)>,
) -> Option<String> {
    let mut attributes: Vec<_> = attributes.into_iter().collect();
    if attributes.is_empty() {
        return None;
    }
    // By bytes, not by locale.
    attributes.sort_unstable_by_key(|(name, _, _)| *name);
    let mut digest = Md5::new();
    for (name, data_type, value) in attributes {
        update_with_length(&mut digest, name.as_bytes());
        update_with_length(&mut digest, data_type.as_bytes());
        let (tag, value) = match value {
            DigestValue::Text(text) => (1, text.as_bytes()),
            DigestValue::Binary(bytes) => (2, bytes),
        };
        digest.update([tag]);
        update_with_length(&mut digest, value);
    }
    Some(hex::encode(digest.finalize()))
}

fn update_with_length(digest: &mut Md5, bytes: &[u8]) {
    // The service takes no message of 4 GiB, so a part's length always fits.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    digest.update(length.to_be_bytes());
    digest.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::DigestValue::{Binary, Text};
    use super::*;

    #[test]
    fn a_body_is_hashed_by_its_utf8_bytes() {
        assert_eq!(of_body("sink ✓"), "f1bf24a69327a12c85b1d286ccac80bb");
    }

    #[test]
    fn one_attribute_has_the_known_digest() {
        assert_eq!(
            of_attributes([("zeta", "String", Text("river"))]).as_deref(),
            Some("33c01b0763d9729d61e3f491117036aa")
        );
    }

    #[test]
    fn names_are_sorted_by_byte_whatever_the_order_given() {
        let (zeta, alpha) = (
            ("zeta", "String", Text("river")),
            ("Alpha", "Number", Text("42")),
        );
        for attributes in [[zeta, alpha], [alpha, zeta]] {
            assert_eq!(
                of_attributes(attributes).as_deref(),
                Some("16d7c2ecb0e1978d3e6ff2e489793e15")
            );
        }
    }

    #[test]
    fn custom_types_non_ascii_text_and_binary_have_the_known_digest() {
        assert_eq!(
            of_attributes([
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
            of_attributes([
                ("color", "String", Text("blue")),
                ("count", "Number", Text("3")),
                ("blob", "Binary", Binary(&[1, 2, 3])),
            ])
            .as_deref(),
            Some("d838729972a4b70e2d2acd9d59ac847c")
        );
        assert_eq!(
            of_attributes([("color", "String", Text("blue"))]).as_deref(),
            Some("da1b33cc3cbfe8b1630921e78e6b9880")
        );
        assert_eq!(
            of_attributes([(
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
        assert_eq!(of_attributes([]), None);
    }
}
