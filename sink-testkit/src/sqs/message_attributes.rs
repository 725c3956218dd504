//! What a message carries beside its body, and the rules for it ("Amazon SQS message metadata").

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::digest;
use super::error::{ErrorCode, ServiceError, invalid_parameter};
use super::limits::{MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES, is_message_char};
use super::number;
use super::wire::Object;

/// One attribute's type and value.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AttributeValue {
    data_type: String,
    transport: Transport,
    bytes: Vec<u8>,
}

/// How a value travels, which its digest tells apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    Bytes,
    Text,
}

impl AttributeValue {
    pub(crate) fn text(data_type: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            data_type: data_type.into(),
            transport: Transport::Text,
            bytes: value.into().into_bytes(),
        }
    }

    pub(crate) fn binary(data_type: impl Into<String>, value: Vec<u8>) -> Self {
        Self {
            data_type: data_type.into(),
            transport: Transport::Bytes,
            bytes: value,
        }
    }

    /// The type with its suffix, such as `String` or `Number.int`.
    #[must_use]
    pub fn data_type(&self) -> &str {
        &self.data_type
    }

    /// The value of a `String` or a `Number`; nothing for a `Binary`.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self.transport {
            Transport::Bytes => None,
            Transport::Text => std::str::from_utf8(&self.bytes).ok(),
        }
    }

    /// The bytes of the value, decoded.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) const fn transport(&self) -> Transport {
        self.transport
    }

    /// The value as a receive shows it.
    fn to_json(&self) -> Value {
        match self.as_str() {
            Some(text) => json!({ "DataType": self.data_type, "StringValue": text }),
            None => {
                json!({ "DataType": self.data_type, "BinaryValue": STANDARD.encode(&self.bytes) })
            }
        }
    }

    /// The value as it is kept: a number loses the zeros that say nothing.
    fn stored(self) -> Self {
        match self.as_str() {
            Some(text) if self.data_type.starts_with("Number") => {
                let trimmed = number::trimmed(text);
                Self::text(self.data_type, trimmed)
            }
            _ => self,
        }
    }
}

/// All attributes of a message, in the order of their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct MessageAttributes(BTreeMap<String, AttributeValue>);

impl MessageAttributes {
    /// Reads and checks what a request carries.
    pub(crate) fn parse(wire: WireAttributes) -> Result<Self, ServiceError> {
        if wire.len() > MAX_ATTRIBUTES {
            return Err(invalid_parameter(format!(
                "a message has at most {MAX_ATTRIBUTES} attributes, not {}",
                wire.len()
            )));
        }
        wire.into_iter()
            .map(|(name, Object(value))| {
                check_name(&name)?;
                let value = value.parse(&name)?;
                Ok((name, value))
            })
            .collect()
    }

    pub(crate) fn md5(&self) -> Option<String> {
        digest::attributes_md5(self.0.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Those that a receive asked for. `All`, `.*` and `*` mean every one, `prefix.*` those that begin so.
    pub(crate) fn select(&self, wanted: &[String]) -> Self {
        self.0
            .iter()
            .filter(|(name, _)| wanted.iter().any(|pattern| matches_pattern(name, pattern)))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    pub(crate) fn to_json(&self) -> Option<Value> {
        (!self.0.is_empty()).then(|| {
            self.0
                .iter()
                .map(|(name, value)| (name.clone(), value.to_json()))
                .collect()
        })
    }

    /// The attributes as the queue keeps them.
    pub(crate) fn stored(self) -> Self {
        self.0
            .into_iter()
            .map(|(name, value)| (name, value.stored()))
            .collect()
    }

    pub(crate) fn into_map(self) -> BTreeMap<String, AttributeValue> {
        self.0
    }
}

impl FromIterator<(String, AttributeValue)> for MessageAttributes {
    fn from_iter<T: IntoIterator<Item = (String, AttributeValue)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}

fn matches_pattern(name: &str, pattern: &str) -> bool {
    match pattern {
        "All" | "*" | ".*" => true,
        _ => match pattern.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        },
    }
}

/// Attributes as a request spells them.
pub(crate) type WireAttributes = BTreeMap<String, Object<WireAttribute>>;

/// Bytes of attributes that count towards the size of their message: names, types and decoded values.
pub(crate) fn size(attributes: &WireAttributes) -> usize {
    attributes
        .iter()
        .map(|(name, Object(value))| name.len() + value.size())
        .sum()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct WireAttribute {
    data_type: Option<String>,
    string_value: Option<String>,
    #[serde(default, deserialize_with = "base64_bytes")]
    binary_value: Option<Vec<u8>>,
    string_list_values: Option<Vec<String>>,
    binary_list_values: Option<Vec<String>>,
}

impl WireAttribute {
    fn size(&self) -> usize {
        self.data_type.as_ref().map_or(0, String::len)
            + self.string_value.as_ref().map_or(0, String::len)
            + self.binary_value.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn parse(self, name: &str) -> Result<AttributeValue, ServiceError> {
        let uses_lists = self.string_list_values.is_some_and(|list| !list.is_empty())
            || self.binary_list_values.is_some_and(|list| !list.is_empty());
        if uses_lists {
            return Err(ServiceError::new(
                ErrorCode::UnsupportedOperation,
                format!(
                    "the message attribute {name} has a list of values, which is not supported"
                ),
            ));
        }
        let data_type = self.data_type.unwrap_or_default();
        let kind = check_type(name, &data_type)?;
        match (kind, self.string_value, self.binary_value) {
            (Kind::Binary, None, Some(bytes)) if !bytes.is_empty() => {
                Ok(AttributeValue::binary(data_type, bytes))
            }
            (Kind::Number, Some(text), None) if !text.is_empty() => {
                number::check(&text).map_err(|problem| {
                    invalid_parameter(format!("the message attribute {name} {problem}"))
                })?;
                Ok(AttributeValue::text(data_type, text))
            }
            (Kind::String, Some(text), None) if !text.is_empty() => {
                if !text.chars().all(is_message_char) {
                    return Err(invalid_parameter(format!(
                        "the message attribute {name} holds a character that is not allowed"
                    )));
                }
                Ok(AttributeValue::text(data_type, text))
            }
            _ => Err(invalid_parameter(format!(
                "the message attribute {name} must have one value, not empty, of its type {data_type}"
            ))),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Binary,
    Number,
    String,
}

fn check_type(name: &str, data_type: &str) -> Result<Kind, ServiceError> {
    let (base, suffix) = match data_type.split_once('.') {
        Some((base, suffix)) => (base, Some(suffix)),
        None => (data_type, None),
    };
    let kind = match base {
        "Binary" => Some(Kind::Binary),
        "Number" => Some(Kind::Number),
        "String" => Some(Kind::String),
        _ => None,
    };
    kind.filter(|_| suffix != Some("") && data_type.chars().count() <= MAX_ATTRIBUTE_NAME)
        .filter(|_| data_type.chars().all(is_message_char))
        .ok_or_else(|| {
            invalid_parameter(format!(
                "the type of the message attribute {name} must be String, Number or Binary with an \
                 optional suffix, at most {MAX_ATTRIBUTE_NAME} characters"
            ))
        })
}

/// Stricter than the service where the service is lax: what its documentation forbids is refused here.
fn check_name(name: &str) -> Result<(), ServiceError> {
    let lower = name.to_ascii_lowercase();
    let good = !name.is_empty()
        && name.chars().count() <= MAX_ATTRIBUTE_NAME
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        && !lower.starts_with("aws.")
        && !lower.starts_with("amazon.")
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..");
    if good {
        Ok(())
    } else {
        Err(invalid_parameter(format!(
            "{name:?} is not a name for a message attribute"
        )))
    }
}

fn base64_bytes<'de, D>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Option::<String>::deserialize(deserializer)?
        .map(|text| STANDARD.decode(text).map_err(serde::de::Error::custom))
        .transpose()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(value: Value) -> Result<MessageAttributes, ServiceError> {
        MessageAttributes::parse(serde_json::from_value(value).unwrap())
    }

    #[track_caller]
    fn refused(value: Value) {
        assert_eq!(
            parse(value.clone()).map_err(|error| error.code()),
            Err(ErrorCode::InvalidParameterValue),
            "{value}"
        );
    }

    #[test]
    fn a_name_is_letters_digits_underscore_hyphen_and_inner_single_dots() {
        let value = json!({ "DataType": "String", "StringValue": "v" });
        for name in ["a", "A.b-c_9", &"n".repeat(256)] {
            assert!(parse(json!({ name: value })).is_ok(), "{name}");
        }
        for name in [
            "",
            "a b",
            "é",
            ".a",
            "a.",
            "a..b",
            "AWS.x",
            "aws.x",
            "Amazon.x",
            "AMAZON.y",
            &"n".repeat(257),
        ] {
            refused(json!({ name: value }));
        }
    }

    #[test]
    fn a_type_is_string_number_or_binary_with_an_optional_suffix() {
        for data_type in [
            "",
            "string",
            "Text",
            "String.",
            "Strings",
            &format!("String.{}", "s".repeat(250)),
        ] {
            refused(json!({ "a": { "DataType": data_type, "StringValue": "1" } }));
        }
        refused(json!({ "a": { "StringValue": "1" } }));
        for data_type in [
            "String",
            "String.x",
            "Number",
            "Number.int",
            &format!("String.{}", "s".repeat(249)),
        ] {
            assert!(parse(json!({ "a": { "DataType": data_type, "StringValue": "1" } })).is_ok());
        }
    }

    #[test]
    fn a_value_is_there_not_empty_and_of_its_type() {
        for value in [
            json!({ "DataType": "String" }),
            json!({ "DataType": "String", "StringValue": "" }),
            json!({ "DataType": "String", "BinaryValue": "AQ==" }),
            json!({ "DataType": "String", "StringValue": "v", "BinaryValue": "AQ==" }),
            json!({ "DataType": "Binary", "StringValue": "v" }),
            json!({ "DataType": "Binary", "BinaryValue": "" }),
            json!({ "DataType": "Number", "StringValue": "" }),
            json!({ "DataType": "Number", "StringValue": "seven" }),
            json!({ "DataType": "String", "StringValue": "bell \u{7}" }),
            json!({ "DataType": "String", "StringValue": "\u{ffff}" }),
        ] {
            refused(json!({ "a": value }));
        }
    }

    #[test]
    fn ten_attributes_are_taken_and_eleven_refused() {
        let many = |count: usize| -> Value {
            (0..count)
                .map(|n| {
                    (
                        format!("a{n}"),
                        json!({ "DataType": "String", "StringValue": "v" }),
                    )
                })
                .collect()
        };
        assert!(parse(many(10)).is_ok());
        refused(many(11));
    }

    #[test]
    fn a_list_of_values_is_an_unsupported_operation() {
        let error =
            parse(json!({ "a": { "DataType": "String", "StringListValues": ["v"] } })).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnsupportedOperation);
    }

    #[test]
    fn a_binary_value_counts_decoded() {
        let attributes = json!({ "b": { "DataType": "Binary", "BinaryValue": "AQIDBA==" } });
        assert_eq!(
            size(&serde_json::from_value(attributes).unwrap()),
            1 + 6 + 4
        );
    }

    #[test]
    fn a_stored_number_loses_its_idle_zeros_but_not_its_type() {
        let stored = parse(json!({ "n": { "DataType": "Number.x", "StringValue": "007.50" } }))
            .unwrap()
            .stored();
        assert_eq!(
            stored.to_json(),
            Some(json!({ "n": { "DataType": "Number.x", "StringValue": "7.5" } }))
        );
    }

    #[test]
    fn names_are_selected_exactly_by_prefix_or_all() {
        let names = |wanted: &[&str]| -> Vec<String> {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            ["Hello", "Help.Me", "other"]
                .iter()
                .map(|name| ((*name).to_owned(), AttributeValue::text("String", "v")))
                .collect::<MessageAttributes>()
                .select(&wanted)
                .into_map()
                .into_keys()
                .collect()
        };
        assert_eq!(names(&["All"]), ["Hello", "Help.Me", "other"]);
        assert_eq!(names(&[".*"]), ["Hello", "Help.Me", "other"]);
        assert_eq!(names(&["*"]), ["Hello", "Help.Me", "other"]);
        assert_eq!(names(&["Hel.*"]), ["Hello", "Help.Me"]);
        assert_eq!(names(&["Hel"]), [] as [&str; 0]);
        assert_eq!(names(&["other", "hello"]), ["other"]);
        assert_eq!(names(&[]), [] as [&str; 0]);
    }

    proptest! {
        #[test]
        fn the_digest_does_not_depend_on_the_order_in_which_attributes_were_given(
            attributes in proptest::collection::vec(("[A-Za-z0-9_-]{1,8}", "[a-z]{1,8}"), 1..10),
            seed in any::<u64>(),
        ) {
            let unique: BTreeMap<_, _> = attributes.into_iter().collect();
            let mut shuffled: Vec<_> = unique.iter().collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            let digest = |list: Vec<(&String, &String)>| {
                list.into_iter()
                    .map(|(name, value)| (name.clone(), AttributeValue::text("String", value)))
                    .collect::<MessageAttributes>()
                    .md5()
            };
            prop_assert_eq!(digest(shuffled), digest(unique.iter().collect()));
        }
    }
}
