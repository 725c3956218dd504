//! Where spent messages go.

use std::time::Duration;

use dispatch_api::{SinkError, SourceError, SubscriptionPlan};
use rdkafka::message::{Header, OwnedHeaders};
use tokio::time::Instant;

use super::config::SourceConfig;
use super::record::StoredRecord;
use crate::producer::{Producers, RawRecord};

/// How long a throttled move rests.
const PAUSE: Duration = Duration::from_secs(1);

/// After how many deliveries a message is spent, and the topic that takes it then.
#[derive(Debug)]
pub(super) struct DeadLetter {
    max_attempts: u32,
    topic: String,
    producers: Producers,
}

impl DeadLetter {
    /// What a plan says, as far as no broker has to be asked.
    ///
    /// # Errors
    ///
    /// `Config`: half a policy, or one that no topic can follow.
    pub(super) fn declared(
        plan: &SubscriptionPlan,
        config: &SourceConfig,
    ) -> Result<Option<Self>, SourceError> {
        let (max_attempts, topic) = match (plan.max_attempts, plan.dead_letter.as_deref()) {
            (None, None) => return Ok(None),
            (Some(max_attempts), Some(topic)) => (max_attempts, topic),
            (Some(_), None) => {
                return Err(SourceError::config(
                    "IncompleteRedrive",
                    "max_attempts is set and dead_letter is not: set both or neither",
                ));
            }
            (None, Some(_)) => {
                return Err(SourceError::config(
                    "IncompleteRedrive",
                    "dead_letter is set and max_attempts is not: set both or neither",
                ));
            }
        };
        if max_attempts == 0 {
            return Err(SourceError::config(
                "MaxAttemptsOutOfRange",
                "max_attempts is 0: expected 1 or more",
            ));
        }
        // Only copies count further, so that no message would ever be spent.
        if max_attempts > 1 && plan.out_retry.is_none() {
            return Err(SourceError::config(
                "NoRetrySink",
                format!(
                    "max_attempts is {max_attempts} and out_retry is not set: on Kafka a retry is \
                     a copy, and only copies count. Set out_retry to the sink that publishes \
                     them, or max_attempts to 1"
                ),
            ));
        }
        if !crate::config::is_topic(topic) {
            return Err(SourceError::config(
                "InvalidDeadLetter",
                "dead_letter is no topic's name: expected 1 to 249 ASCII letters, digits, dots, \
                 underscores and hyphens",
            ));
        }
        if topic == config.topic {
            return Err(SourceError::config(
                "DeadLetterIsSource",
                format!(
                    "the dead-letter topic `{topic}` is the one that is consumed: name another"
                ),
            ));
        }
        Ok(Some(Self {
            max_attempts,
            topic: topic.to_owned(),
            producers: Producers::new(config.producer(topic)),
        }))
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Whether a message is spent with this delivery of it.
    pub(super) fn is_spent(&self, record: &StoredRecord) -> bool {
        record.count().get() >= self.max_attempts
    }

    /// Whether a message was delivered more often than it may be.
    pub(super) fn is_overspent(&self, record: &StoredRecord) -> bool {
        record.count().get() > self.max_attempts
    }

    /// Stores the record there, byte for byte.
    ///
    /// # Errors
    ///
    /// As a delivery to the topic.
    pub(super) async fn bury(
        &self,
        record: &StoredRecord,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers().len());
        for (name, value) in record.headers() {
            headers = headers.insert(Header {
                key: name,
                value: Some(&**value),
            });
        }
        let record = RawRecord {
            key: record.key().map(|key| &**key),
            payload: record.payload(),
            headers,
            timestamp: record.timestamp(),
        };
        self.producers
            .store(&record, deadline, || PAUSE)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::{ErrorClass, Problems, read_options};
    use serde_json::json;

    fn declared(
        max_attempts: Option<u32>,
        dead_letter: Option<&str>,
    ) -> Result<Option<DeadLetter>, SourceError> {
        let mut problems = Problems::new();
        let options = json!({"brokers": ["127.0.0.1"], "topic": "hooks", "group": "workers"});
        let raw = read_options(&options, &mut problems);
        let config = super::super::config::validate(raw, problems).unwrap();
        let mut plan = SubscriptionPlan::new();
        plan.max_attempts = max_attempts;
        plan.dead_letter = dead_letter.map(str::to_owned);
        DeadLetter::declared(&plan, &config)
    }

    #[test]
    fn a_policy_is_whole_or_absent_and_names_another_topic() {
        assert!(declared(None, None).unwrap().is_none());
        let whole = declared(Some(1), Some("dead")).unwrap().unwrap();
        assert_eq!((whole.max_attempts, whole.topic()), (1, "dead"));
        for (max_attempts, dead_letter, code) in [
            (Some(3), None, "IncompleteRedrive"),
            (None, Some("dead"), "IncompleteRedrive"),
            (Some(0), Some("dead"), "MaxAttemptsOutOfRange"),
            (Some(1), Some(""), "InvalidDeadLetter"),
            (Some(1), Some("de ad"), "InvalidDeadLetter"),
            (Some(1), Some("hooks"), "DeadLetterIsSource"),
            // Nothing would count up to it.
            (Some(2), Some("dead"), "NoRetrySink"),
        ] {
            let error = declared(max_attempts, dead_letter).unwrap_err();
            assert!(matches!(error.class(), ErrorClass::Config), "{error}");
            assert_eq!(error.code(), code, "{max_attempts:?} {dead_letter:?}");
        }
    }
}
