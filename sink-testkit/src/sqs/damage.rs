//! Good answers, made worse.

use serde_json::{Map, Value, json};

/// What is wrong with a result that says a message was taken, or with a message received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Damage {
    /// The digest of the attributes is left out.
    AttributeDigestMissing,
    /// The digest of the attributes is that of others; it is there even when no attributes are.
    AttributeDigestWrong,
    /// The digest of the body is left out.
    BodyDigestMissing,
    /// The digest of the body is that of another.
    BodyDigestWrong,
    /// Every digest is left out: of the body, of the attributes, of the system attributes.
    DigestsMissing,
    /// `MessageId` is left out.
    MessageIdMissing,
    /// `ReceiptHandle` is left out.
    ReceiptHandleMissing,
    /// `Attributes`, the system attributes of a received message, is left out.
    SystemAttributesMissing,
    /// Members that no client knows are added.
    UnknownMembers,
}

/// A digest that nothing has.
const WRONG: &str = "00000000000000000000000000000000";

impl Damage {
    pub(crate) fn apply_to_result(self, members: &mut Map<String, Value>) {
        const BODY: [&str; 2] = ["MD5OfMessageBody", "MD5OfBody"];
        const ATTRIBUTES: &str = "MD5OfMessageAttributes";
        const SYSTEM_ATTRIBUTES: &str = "MD5OfMessageSystemAttributes";
        match self {
            Self::AttributeDigestMissing => {
                members.remove(ATTRIBUTES);
            }
            Self::AttributeDigestWrong => {
                members.insert(ATTRIBUTES.into(), WRONG.into());
            }
            Self::BodyDigestMissing => {
                for name in BODY {
                    members.remove(name);
                }
            }
            Self::BodyDigestWrong => {
                for name in BODY {
                    if let Some(digest) = members.get_mut(name) {
                        *digest = WRONG.into();
                    }
                }
            }
            Self::DigestsMissing => {
                for name in BODY.into_iter().chain([ATTRIBUTES, SYSTEM_ATTRIBUTES]) {
                    members.remove(name);
                }
            }
            Self::MessageIdMissing => {
                members.remove("MessageId");
            }
            Self::ReceiptHandleMissing => {
                members.remove("ReceiptHandle");
            }
            Self::SystemAttributesMissing => {
                members.remove("Attributes");
            }
            Self::UnknownMembers => add_unknown(members),
        }
    }

    /// Damages every result in an answer: that of a single send, those of a batch, the messages of a receive.
    pub(crate) fn apply_to_answer(self, answer: &mut Map<String, Value>) {
        if answer.contains_key("MessageId") {
            self.apply_to_result(answer);
        } else if self == Self::UnknownMembers {
            add_unknown(answer);
        }
        for list in ["Successful", "Messages"] {
            let results = answer.get_mut(list).and_then(Value::as_array_mut);
            for result in results.into_iter().flatten() {
                if let Value::Object(members) = result {
                    self.apply_to_result(members);
                }
            }
        }
    }
}

fn add_unknown(members: &mut Map<String, Value>) {
    members.insert("NewMember".into(), json!({ "Inner": [1, null, "x"] }));
    members.insert("newMember".into(), Value::Null);
}
