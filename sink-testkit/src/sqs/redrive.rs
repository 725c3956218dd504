//! Dead-letter queues: which policies are good, and what they say.

use serde::Deserialize;
use serde_json::Value;

use super::error::{ServiceError, invalid_parameter};
use super::wire::Object;

/// Receives after which a message may be moved.
const MAX_RECEIVE_COUNT: std::ops::RangeInclusive<u64> = 1..=1_000;
/// Sources that an allow policy may list.
const MAX_SOURCES: usize = 10;

/// The attribute `RedrivePolicy`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RedrivePolicy {
    pub(crate) target_arn: String,
    pub(crate) max_receive_count: u32,
    /// The text as it was set, which is how it is read back.
    pub(crate) text: String,
}

impl RedrivePolicy {
    pub(crate) fn parse(text: &str) -> Result<Self, ServiceError> {
        let bad = |problem: &str| invalid_parameter(format!("RedrivePolicy: {problem}"));
        let Object(policy): Object<WirePolicy> = serde_json::from_str(text)
            .map_err(|_| bad("it is not a JSON object of the right members"))?;
        let target_arn = policy
            .dead_letter_target_arn
            .ok_or_else(|| bad("deadLetterTargetArn is missing"))?;
        let count = match policy.max_receive_count {
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
            None => return Err(bad("maxReceiveCount is missing")),
        };
        let max_receive_count = count
            .filter(|count| MAX_RECEIVE_COUNT.contains(count))
            .and_then(|count| u32::try_from(count).ok())
            .ok_or_else(|| bad("maxReceiveCount must be an integer between 1 and 1000"))?;
        Ok(Self {
            target_arn,
            max_receive_count,
            text: text.to_owned(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePolicy {
    dead_letter_target_arn: Option<String>,
    max_receive_count: Option<Value>,
}

/// The attribute `RedriveAllowPolicy`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RedriveAllowPolicy {
    permission: Permission,
    pub(crate) text: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Permission {
    AllowAll,
    ByQueue(Vec<String>),
    DenyAll,
}

impl RedriveAllowPolicy {
    pub(crate) fn parse(text: &str) -> Result<Self, ServiceError> {
        let bad = |problem: &str| invalid_parameter(format!("RedriveAllowPolicy: {problem}"));
        let Object(policy): Object<WireAllowPolicy> = serde_json::from_str(text)
            .map_err(|_| bad("it is not a JSON object of the right members"))?;
        let permission = match (
            policy.redrive_permission.as_deref(),
            policy.source_queue_arns,
        ) {
            (Some("allowAll"), None) => Permission::AllowAll,
            (Some("denyAll"), None) => Permission::DenyAll,
            (Some("byQueue"), Some(arns)) if (1..=MAX_SOURCES).contains(&arns.len()) => {
                Permission::ByQueue(arns)
            }
            (Some("byQueue"), _) => {
                return Err(bad("byQueue needs between 1 and 10 sourceQueueArns"));
            }
            (Some("allowAll" | "denyAll"), Some(_)) => {
                return Err(bad("sourceQueueArns goes with byQueue only"));
            }
            _ => {
                return Err(bad(
                    "redrivePermission must be allowAll, denyAll or byQueue",
                ));
            }
        };
        Ok(Self {
            permission,
            text: text.to_owned(),
        })
    }

    pub(crate) fn allows(&self, source_arn: &str) -> bool {
        match &self.permission {
            Permission::AllowAll => true,
            Permission::ByQueue(arns) => arns.iter().any(|arn| arn == source_arn),
            Permission::DenyAll => false,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAllowPolicy {
    redrive_permission: Option<String>,
    source_queue_arns: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_is_a_number_or_a_string_between_1_and_1000() {
        for (count, expected) in [("1", 1), ("\"1000\"", 1_000), ("10", 10)] {
            let text = format!(r#"{{"deadLetterTargetArn":"arn","maxReceiveCount":{count}}}"#);
            assert_eq!(
                RedrivePolicy::parse(&text).unwrap().max_receive_count,
                expected
            );
        }
        for count in ["0", "1001", "-1", "1.5", "\"\"", "\"x\"", "true", "null"] {
            let text = format!(r#"{{"deadLetterTargetArn":"arn","maxReceiveCount":{count}}}"#);
            assert!(RedrivePolicy::parse(&text).is_err(), "{count}");
        }
    }

    #[test]
    fn both_keys_are_required() {
        assert!(RedrivePolicy::parse(r#"{"deadLetterTargetArn":"arn"}"#).is_err());
        assert!(RedrivePolicy::parse(r#"{"maxReceiveCount":3}"#).is_err());
        assert!(RedrivePolicy::parse("[]").is_err());
        assert!(RedrivePolicy::parse("not json").is_err());
    }

    #[test]
    fn a_list_of_sources_goes_with_by_queue_and_with_nothing_else() {
        let arns = |count: usize| format!("[{}]", vec!["\"arn\""; count].join(","));
        for (text, good) in [
            (r#"{"redrivePermission":"allowAll"}"#.to_owned(), true),
            (r#"{"redrivePermission":"denyAll"}"#.to_owned(), true),
            (
                format!(
                    r#"{{"redrivePermission":"byQueue","sourceQueueArns":{}}}"#,
                    arns(10)
                ),
                true,
            ),
            (
                format!(
                    r#"{{"redrivePermission":"byQueue","sourceQueueArns":{}}}"#,
                    arns(11)
                ),
                false,
            ),
            (r#"{"redrivePermission":"byQueue"}"#.to_owned(), false),
            (
                format!(
                    r#"{{"redrivePermission":"denyAll","sourceQueueArns":{}}}"#,
                    arns(1)
                ),
                false,
            ),
            (r#"{"redrivePermission":"some"}"#.to_owned(), false),
            (r#"{}"#.to_owned(), false),
        ] {
            assert_eq!(RedriveAllowPolicy::parse(&text).is_ok(), good, "{text}");
        }
    }
}
