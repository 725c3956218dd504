//! The attributes of a queue: names, ranges, defaults ("CreateQueue", "SetQueueAttributes").

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::{ErrorCode, ServiceError};
use super::limits::{DELAY, MAX_MESSAGE_BYTES, VISIBILITY, WAIT};
use super::redrive::{RedriveAllowPolicy, RedrivePolicy};

/// Names that only FIFO queues have.
const FIFO_ONLY: [&str; 4] = [
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoQueue",
    "FifoThroughputLimit",
];

/// Names that can be read and not set.
pub(crate) const READ_ONLY: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];

/// Names that can be set.
const SETTABLE: [&str; 15] = [
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
];

/// Whether a request may name this attribute.
pub(crate) fn is_known(name: &str) -> bool {
    name == "All" || READ_ONLY.contains(&name) || SETTABLE.contains(&name)
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueueAttributes {
    pub(crate) visibility_timeout: Duration,
    pub(crate) delay: Duration,
    pub(crate) receive_wait: Duration,
    pub(crate) retention: Duration,
    pub(crate) maximum_message_size: usize,
    pub(crate) redrive: Option<RedrivePolicy>,
    pub(crate) redrive_allow: Option<RedriveAllowPolicy>,
    pub(crate) fifo: Option<FifoAttributes>,
    policy: Option<String>,
    kms_key: Option<String>,
    kms_reuse: Duration,
    managed_sse: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FifoAttributes {
    pub(crate) content_based_deduplication: bool,
    pub(crate) scope: Scope,
    throughput: Throughput,
}

/// Within what a deduplication id must be new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    MessageGroup,
    Queue,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Throughput {
    PerMessageGroupId,
    PerQueue,
}

impl QueueAttributes {
    pub(crate) fn new(fifo: bool) -> Self {
        Self {
            visibility_timeout: Duration::from_secs(30),
            delay: Duration::ZERO,
            receive_wait: Duration::ZERO,
            retention: Duration::from_secs(345_600),
            maximum_message_size: MAX_MESSAGE_BYTES,
            redrive: None,
            redrive_allow: None,
            fifo: fifo.then_some(FifoAttributes {
                content_based_deduplication: false,
                scope: Scope::Queue,
                throughput: Throughput::PerQueue,
            }),
            policy: None,
            kms_key: None,
            kms_reuse: Duration::from_secs(300),
            managed_sse: true,
        }
    }

    /// The attributes with `changes` made, or the first thing that is wrong with them.
    pub(crate) fn with(&self, changes: &BTreeMap<String, String>) -> Result<Self, ServiceError> {
        let mut changed = self.clone();
        for (name, value) in changes {
            changed.set(name, value)?;
        }
        match &changed.fifo {
            Some(fifo)
                if fifo.throughput == Throughput::PerMessageGroupId
                    && fifo.scope == Scope::Queue =>
            {
                Err(bad_value(
                    "FifoThroughputLimit",
                    "perMessageGroupId goes with the DeduplicationScope messageGroup only",
                ))
            }
            _ => Ok(changed),
        }
    }

    /// What GetQueueAttributes shows of the settings. Attributes that have no value are left out.
    pub(crate) fn to_map(&self) -> BTreeMap<&'static str, String> {
        let mut map = BTreeMap::from([
            ("DelaySeconds", self.delay.as_secs().to_string()),
            ("MaximumMessageSize", self.maximum_message_size.to_string()),
            (
                "MessageRetentionPeriod",
                self.retention.as_secs().to_string(),
            ),
            (
                "ReceiveMessageWaitTimeSeconds",
                self.receive_wait.as_secs().to_string(),
            ),
            (
                "VisibilityTimeout",
                self.visibility_timeout.as_secs().to_string(),
            ),
            ("SqsManagedSseEnabled", self.managed_sse.to_string()),
        ]);
        let optional = [
            ("Policy", self.policy.as_ref()),
            (
                "RedrivePolicy",
                self.redrive.as_ref().map(|policy| &policy.text),
            ),
            (
                "RedriveAllowPolicy",
                self.redrive_allow.as_ref().map(|policy| &policy.text),
            ),
            ("KmsMasterKeyId", self.kms_key.as_ref()),
        ];
        map.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?.clone()))),
        );
        if self.kms_key.is_some() {
            map.insert(
                "KmsDataKeyReusePeriodSeconds",
                self.kms_reuse.as_secs().to_string(),
            );
        }
        if let Some(fifo) = &self.fifo {
            map.extend([
                ("FifoQueue", true.to_string()),
                (
                    "ContentBasedDeduplication",
                    fifo.content_based_deduplication.to_string(),
                ),
                ("DeduplicationScope", fifo.scope.name().to_owned()),
                ("FifoThroughputLimit", fifo.throughput.name().to_owned()),
            ]);
        }
        map
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ServiceError> {
        if FIFO_ONLY.contains(&name) {
            return self.set_fifo(name, value);
        }
        match name {
            "VisibilityTimeout" => self.visibility_timeout = seconds(name, value, VISIBILITY)?,
            "DelaySeconds" => self.delay = seconds(name, value, DELAY)?,
            "ReceiveMessageWaitTimeSeconds" => self.receive_wait = seconds(name, value, WAIT)?,
            "MessageRetentionPeriod" => self.retention = seconds(name, value, 60..=1_209_600)?,
            "MaximumMessageSize" => {
                let bytes = integer(name, value, 1_024..=1_048_576)?;
                self.maximum_message_size = usize::try_from(bytes).unwrap_or(MAX_MESSAGE_BYTES);
            }
            "RedrivePolicy" => self.redrive = unless_empty(value, RedrivePolicy::parse)?,
            "RedriveAllowPolicy" => {
                self.redrive_allow = unless_empty(value, RedriveAllowPolicy::parse)?;
            }
            "Policy" => {
                self.policy = unless_empty(value, |text| {
                    let is_object = serde_json::from_str::<serde_json::Value>(text)
                        .is_ok_and(|policy| policy.is_object());
                    is_object
                        .then(|| text.to_owned())
                        .ok_or_else(|| bad_value(name, "it must be a JSON object"))
                })?;
            }
            "KmsMasterKeyId" => {
                self.kms_key = unless_empty(value, |text| Ok(text.to_owned()))?;
            }
            "KmsDataKeyReusePeriodSeconds" => self.kms_reuse = seconds(name, value, 60..=86_400)?,
            "SqsManagedSseEnabled" => self.managed_sse = boolean(name, value)?,
            _ => return Err(bad_name(name)),
        }
        Ok(())
    }

    fn set_fifo(&mut self, name: &str, value: &str) -> Result<(), ServiceError> {
        let Some(fifo) = &mut self.fifo else {
            return Err(bad_name(name));
        };
        match name {
            "FifoQueue" => {
                if value != "true" {
                    return Err(bad_value(name, "a FIFO queue stays one"));
                }
            }
            "ContentBasedDeduplication" => {
                fifo.content_based_deduplication = boolean(name, value)?;
            }
            "DeduplicationScope" => {
                fifo.scope = match value {
                    "messageGroup" => Scope::MessageGroup,
                    "queue" => Scope::Queue,
                    _ => return Err(bad_value(name, "it must be queue or messageGroup")),
                };
            }
            _ => {
                fifo.throughput = match value {
                    "perMessageGroupId" => Throughput::PerMessageGroupId,
                    "perQueue" => Throughput::PerQueue,
                    _ => return Err(bad_value(name, "it must be perQueue or perMessageGroupId")),
                };
            }
        }
        Ok(())
    }
}

impl Scope {
    const fn name(self) -> &'static str {
        match self {
            Self::MessageGroup => "messageGroup",
            Self::Queue => "queue",
        }
    }
}

impl Throughput {
    const fn name(self) -> &'static str {
        match self {
            Self::PerMessageGroupId => "perMessageGroupId",
            Self::PerQueue => "perQueue",
        }
    }
}

fn seconds(name: &str, value: &str, range: RangeInclusive<i64>) -> Result<Duration, ServiceError> {
    let seconds = integer(name, value, range)?;
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

fn integer(name: &str, value: &str, range: RangeInclusive<i64>) -> Result<i64, ServiceError> {
    // A sign parses as a number but is none in the service's eyes.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value
        .parse()
        .ok()
        .filter(|number| digits && range.contains(number))
        .ok_or_else(|| {
            bad_value(
                name,
                &format!("it must be between {} and {}", range.start(), range.end()),
            )
        })
}

fn boolean(name: &str, value: &str) -> Result<bool, ServiceError> {
    value
        .parse()
        .map_err(|_| bad_value(name, "it must be true or false"))
}

fn unless_empty<T>(
    value: &str,
    parse: impl FnOnce(&str) -> Result<T, ServiceError>,
) -> Result<Option<T>, ServiceError> {
    if value.is_empty() {
        Ok(None)
    } else {
        parse(value).map(Some)
    }
}

pub(crate) fn bad_name(name: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::InvalidAttributeName,
        format!("unknown attribute {name}"),
    )
}

fn bad_value(name: &str, problem: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::InvalidAttributeValue,
        format!("invalid value for the attribute {name}: {problem}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(fifo: bool, name: &str, value: &str) -> Result<QueueAttributes, ErrorCode> {
        QueueAttributes::new(fifo)
            .with(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
            .map_err(|error| error.code())
    }

    #[test]
    fn numbers_are_taken_at_both_ends_of_their_range_and_not_beyond() {
        for (name, low, high) in [
            ("VisibilityTimeout", 0, 43_200),
            ("DelaySeconds", 0, 900),
            ("ReceiveMessageWaitTimeSeconds", 0, 20),
            ("MessageRetentionPeriod", 60, 1_209_600),
            ("MaximumMessageSize", 1_024, 1_048_576),
            ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
        ] {
            for good in [low, high] {
                assert!(set(false, name, &good.to_string()).is_ok(), "{name} {good}");
            }
            for bad in [
                (low - 1).to_string(),
                (high + 1).to_string(),
                "x".into(),
                String::new(),
                "+5".into(),
            ] {
                assert_eq!(
                    set(false, name, &bad),
                    Err(ErrorCode::InvalidAttributeValue),
                    "{name} {bad}"
                );
            }
        }
    }

    #[test]
    fn a_standard_queue_has_none_of_the_attributes_of_fifo_queues() {
        let map = QueueAttributes::new(false).to_map();
        for name in FIFO_ONLY {
            assert!(!map.contains_key(name));
            assert_eq!(
                set(false, name, "true"),
                Err(ErrorCode::InvalidAttributeName)
            );
        }
    }

    #[test]
    fn a_fifo_queue_stays_one() {
        assert_eq!(
            set(true, "FifoQueue", "false"),
            Err(ErrorCode::InvalidAttributeValue)
        );
        assert!(set(true, "FifoQueue", "true").is_ok());
    }

    #[test]
    fn throughput_per_group_needs_the_scope_of_a_group() {
        assert_eq!(
            set(true, "FifoThroughputLimit", "perMessageGroupId"),
            Err(ErrorCode::InvalidAttributeValue)
        );
        let both = BTreeMap::from([
            ("DeduplicationScope".to_owned(), "messageGroup".to_owned()),
            (
                "FifoThroughputLimit".to_owned(),
                "perMessageGroupId".to_owned(),
            ),
        ]);
        assert!(QueueAttributes::new(true).with(&both).is_ok());
    }

    #[test]
    fn read_only_and_unknown_names_cannot_be_set() {
        for name in READ_ONLY
            .into_iter()
            .chain(["All", "visibilityTimeout", ""])
        {
            assert_eq!(
                set(false, name, "1"),
                Err(ErrorCode::InvalidAttributeName),
                "{name}"
            );
        }
    }

    #[test]
    fn an_empty_text_clears_a_policy() {
        let policy = r#"{"deadLetterTargetArn":"arn","maxReceiveCount":3}"#;
        let with = set(false, "RedrivePolicy", policy).unwrap();
        let cleared = with
            .with(&BTreeMap::from([(
                "RedrivePolicy".to_owned(),
                String::new(),
            )]))
            .unwrap();
        assert_eq!(cleared.redrive, None);
    }
}
