//! `max_attempts` and `dead_letter`: the queue's redrive policy.

use dispatch_api::{ErrorClass, SourceError, SubscriptionPlan, push_json_string};
use serde::Deserialize;
use serde_json::Value;

use crate::calls::{Calls, QueueAttributes};
use crate::queue::{QueueName, SqsError};

/// What the service takes as `maxReceiveCount`.
const MAX_ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=1_000;

/// A declared redrive policy.
#[derive(Debug)]
pub(crate) struct Redrive {
    max_attempts: u32,
    dead_letter: DeadLetter,
}

#[derive(Debug)]
enum DeadLetter {
    Queue(QueueName),
    /// Its name and account; the ARN as it was written.
    Arn {
        name: String,
        account: String,
        arn: String,
    },
}

/// The queue that the policy is written onto.
#[derive(Debug)]
pub(crate) struct SourceQueue<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: &'a str,
    pub(crate) attributes: &'a QueueAttributes,
}

impl Redrive {
    /// What a plan declares; `None` where it says nothing of spent messages.
    ///
    /// # Errors
    ///
    /// What can be said against it without asking the service.
    pub(crate) fn declared(queue: &str, plan: &SubscriptionPlan) -> Result<Option<Self>, SqsError> {
        let queue = || queue.to_owned();
        if plan.out_retry.is_some() {
            return Err(SqsError::OutRetry { queue: queue() });
        }
        let (max_attempts, dead_letter) = match (plan.max_attempts, &plan.dead_letter) {
            (None, None) => return Ok(None),
            (Some(max_attempts), Some(dead_letter)) => (max_attempts, dead_letter),
            (Some(_), None) => {
                return Err(SqsError::IncompleteRedrive {
                    queue: queue(),
                    missing: "dead_letter",
                });
            }
            (None, Some(_)) => {
                return Err(SqsError::IncompleteRedrive {
                    queue: queue(),
                    missing: "max_attempts",
                });
            }
        };
        if !MAX_ATTEMPTS.contains(&max_attempts) {
            return Err(SqsError::MaxAttemptsOutOfRange {
                queue: queue(),
                max_attempts,
            });
        }
        let dead_letter =
            DeadLetter::parse(dead_letter).map_err(|why| SqsError::InvalidDeadLetter {
                queue: queue(),
                why,
            })?;
        Ok(Some(Self {
            max_attempts,
            dead_letter,
        }))
    }

    pub(crate) fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Checks the dead-letter queue, and writes the policy if the queue has another.
    ///
    /// # Errors
    ///
    /// Why the queue cannot have this policy, as `Config`; or why the service could not be
    /// asked.
    pub(crate) async fn write(
        &self,
        calls: &Calls,
        source: &SourceQueue<'_>,
    ) -> Result<(), SourceError> {
        let own = source.attributes.arn()?;
        let target = self.target(calls, source).await?;
        let queue = || source.name.to_owned();
        let dead_letter = || name_of(&target).to_owned();
        if own == target {
            return Err(SqsError::DeadLetterIsSource { queue: queue() }.into());
        }
        if place_of(own) != place_of(&target) {
            return Err(SqsError::DeadLetterElsewhere {
                queue: queue(),
                dead_letter: target,
            }
            .into());
        }
        let is_fifo = |arn: &str| arn.ends_with(".fifo");
        if is_fifo(own) != is_fifo(&target) {
            return Err(SqsError::DeadLetterType {
                queue: queue(),
                dead_letter: dead_letter(),
                expected: match is_fifo(own) {
                    true => "a FIFO",
                    false => "a standard",
                },
            }
            .into());
        }
        let policy = source.attributes.redrive_policy();
        if policy.is_some_and(|policy| says(policy, &target, self.max_attempts)) {
            return Ok(());
        }
        let mut policy = String::from("{\"deadLetterTargetArn\":");
        push_json_string(&mut policy, &target);
        policy.push_str(&format!(",\"maxReceiveCount\":{}}}", self.max_attempts));
        calls.set_redrive_policy(source.url, &policy).await?;
        tracing::info!(
            queue = source.name,
            dead_letter = dead_letter(),
            max_attempts = self.max_attempts,
            "the redrive policy was written onto the queue"
        );
        Ok(())
    }

    /// The ARN of the dead-letter queue, by the service's own word.
    async fn target(&self, calls: &Calls, source: &SourceQueue<'_>) -> Result<String, SourceError> {
        let missing = |error: SourceError| match error.class() {
            ErrorClass::Config if error.code() == "QueueDoesNotExist" => {
                SqsError::DeadLetterMissing {
                    queue: source.name.to_owned(),
                    dead_letter: self.dead_letter.shown().to_owned(),
                }
                .into()
            }
            _ => error,
        };
        let url = match &self.dead_letter {
            DeadLetter::Queue(QueueName::Url(url)) => url.as_str().to_owned(),
            DeadLetter::Queue(QueueName::Name(name)) => {
                calls.queue_url(name, None).await.map_err(missing)?
            }
            DeadLetter::Arn { arn, .. } if place_of(arn) != place_of(source.attributes.arn()?) => {
                // Not to be asked about here.
                return Ok(arn.clone());
            }
            DeadLetter::Arn { name, account, .. } => calls
                .queue_url(name, Some(account))
                .await
                .map_err(missing)?,
        };
        let attributes = calls.attributes(&url).await.map_err(missing)?;
        Ok(attributes.arn()?.to_owned())
    }
}

impl DeadLetter {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.starts_with("arn:") {
            return QueueName::parse(text).map(Self::Queue);
        }
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["arn", _, "sqs", _, account, name] if !account.is_empty() && !name.is_empty() => {
                Ok(Self::Arn {
                    name: name.to_owned(),
                    account: account.to_owned(),
                    arn: text.to_owned(),
                })
            }
            _ => Err("expected the form arn:aws:sqs:us-east-1:123456789012:hooks-dead".to_owned()),
        }
    }

    fn shown(&self) -> &str {
        match self {
            Self::Queue(queue) => queue.name(),
            Self::Arn { arn, .. } => arn,
        }
    }
}

/// The queue's name, of its ARN.
fn name_of(arn: &str) -> &str {
    arn.rsplit_once(':').map_or(arn, |(_, name)| name)
}

/// Partition, region and account, of an ARN.
fn place_of(arn: &str) -> &str {
    arn.rsplit_once(':').map_or(arn, |(place, _)| place)
}

/// Whether a policy means this, however its number is written.
fn says(policy: &str, target: &str, max_attempts: u32) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        dead_letter_target_arn: String,
        max_receive_count: Value,
    }
    let Ok(policy) = serde_json::from_str::<Policy>(policy) else {
        return false;
    };
    let count = match &policy.max_receive_count {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    policy.dead_letter_target_arn == target && count == Some(u64::from(max_attempts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:dead";

    #[test]
    fn policies_are_compared_by_their_meaning() {
        let policy = |arn: &str, count: &str| {
            format!(r#"{{"maxReceiveCount": {count}, "deadLetterTargetArn":"{arn}"}}"#)
        };
        for same in [policy(ARN, "5"), policy(ARN, "\"5\"")] {
            assert!(says(&same, ARN, 5), "{same}");
        }
        for other in [
            policy(ARN, "6"),
            policy(ARN, "\"five\""),
            policy("arn:aws:sqs:us-east-1:000000000000:other", "5"),
            "{}".to_owned(),
            "nothing".to_owned(),
        ] {
            assert!(!says(&other, ARN, 5), "{other}");
        }
    }

    #[test]
    fn a_dead_letter_queue_is_named_in_three_ways_and_no_other() {
        for accepted in ["dead", "http://127.0.0.1:9324/000000000000/dead", ARN] {
            assert!(DeadLetter::parse(accepted).is_ok(), "{accepted}");
        }
        for refused in [
            "",
            "a b",
            "arn:aws:sns:us-east-1:000000000000:dead",
            "arn:aws:sqs",
        ] {
            assert!(DeadLetter::parse(refused).is_err(), "{refused}");
        }
    }
}
