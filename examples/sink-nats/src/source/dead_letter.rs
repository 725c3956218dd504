//! `max_attempts` and `dead_letter`: where spent messages go.
//!
//! JetStream's own `max_deliver` stops delivering a message and leaves it where it is, so the
//! source moves it itself: it publishes a copy, and takes the message out once a stream has
//! confirmed that.

use async_nats::HeaderMap;
use dispatch_api::{SourceError, SubscriptionPlan};
use tokio::time::Instant;

use super::calls::Calls;
use super::config::{SourceConfig, subject_problem, takes};

/// The header by which a stream recognises a repeat.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// A declared policy.
#[derive(Clone, Debug)]
pub(super) struct DeadLetter {
    /// 1 and more.
    pub(super) max_attempts: u32,
    pub(super) subject: String,
}

impl DeadLetter {
    /// What a plan declares; `None` where it says nothing of spent messages.
    ///
    /// # Errors
    ///
    /// `Config`: what can be said against it without asking the server.
    pub(super) fn declared(plan: &SubscriptionPlan) -> Result<Option<Self>, SourceError> {
        if plan.out_retry.is_some() {
            return Err(SourceError::config(
                "OutRetry",
                "JetStream delays retries itself, so the source takes no out_retry: settle with \
                 retry_after",
            ));
        }
        let (max_attempts, subject) = match (plan.max_attempts, &plan.dead_letter) {
            (None, None) => return Ok(None),
            (Some(max_attempts), Some(subject)) => (max_attempts, subject.trim()),
            (max_attempts, _) => {
                let missing = match max_attempts {
                    Some(_) => "dead_letter",
                    None => "max_attempts",
                };
                return Err(SourceError::config(
                    "IncompleteRedrive",
                    format!(
                        "{missing} is missing: JetStream by itself only stops delivering a spent \
                         message, so max_attempts and dead_letter (the subject it goes to) \
                         belong together; set both, or neither"
                    ),
                ));
            }
        };
        if max_attempts == 0 {
            return Err(SourceError::config(
                "MaxAttemptsOutOfRange",
                "max_attempts is 0: expected 1 and more",
            ));
        }
        let problem = subject_problem(subject).or_else(|| {
            let is_wild = subject.split('.').any(|token| matches!(token, "*" | ">"));
            let is_servers = subject.starts_with('$') || subject.starts_with("_INBOX");
            (is_wild || is_servers).then_some("is a wildcard, or a subject of the server's own")
        });
        if let Some(problem) = problem {
            return Err(SourceError::config(
                "InvalidDeadLetter",
                format!("dead_letter {problem}: expected a subject that a stream takes"),
            ));
        }
        Ok(Some(Self {
            max_attempts,
            subject: subject.to_owned(),
        }))
    }

    /// Checks that a stream takes the subject, and that the consumer does not deliver it again.
    /// `filters` are the consumer's; none: it delivers every subject.
    ///
    /// # Errors
    ///
    /// `Config` where that is not so; or why the server could not be asked.
    pub(super) async fn check(
        &self,
        calls: &Calls,
        config: &SourceConfig,
        filters: &[String],
        deadline: Instant,
    ) -> Result<(), SourceError> {
        let subject = &self.subject;
        let streams = calls.streams_of(subject, deadline).await?;
        if streams.is_empty() {
            return Err(SourceError::config(
                "DeadLetterMissing",
                format!(
                    "no stream takes the dead-letter subject `{subject}`: create one, or correct \
                     dead_letter; the source never creates one"
                ),
            ));
        }
        let is_delivered =
            filters.is_empty() || filters.iter().any(|filter| takes(filter, subject));
        if streams.contains(&config.stream) && is_delivered {
            return Err(SourceError::config(
                "DeadLetterIsSource",
                format!(
                    "the dead-letter subject `{subject}` is one that this consumer delivers: \
                     name another, or set filter_subject"
                ),
            ));
        }
        Ok(())
    }

    /// Whether a message that was delivered so many times is spent.
    pub(super) fn is_spent(&self, count: u32) -> bool {
        count >= self.max_attempts
    }
}

/// The headers of a copy: those of the message but for what is meant for a stream's eyes, which
/// could refuse the copy or take it for a repeat of the message, and an id of the copy's own,
/// so that moving it twice stores it once.
pub(super) fn headers_of_copy(headers: &HeaderMap, id: &str) -> HeaderMap {
    let mut copy = HeaderMap::new();
    for (name, values) in headers.iter() {
        let shown: &str = name.as_ref();
        let is_reserved = shown
            .get(..5)
            .is_some_and(|start| start.eq_ignore_ascii_case("nats-"));
        if is_reserved {
            continue;
        }
        for value in values {
            copy.append(name.clone(), value.clone());
        }
    }
    copy.insert(MESSAGE_ID, id);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::ErrorClass;

    fn plan(max_attempts: Option<u32>, dead_letter: Option<&str>) -> SubscriptionPlan {
        let mut plan = SubscriptionPlan::new();
        plan.max_attempts = max_attempts;
        plan.dead_letter = dead_letter.map(str::to_owned);
        plan
    }

    #[test]
    fn a_policy_is_whole_or_absent_and_names_a_plain_subject() {
        assert!(DeadLetter::declared(&plan(None, None)).unwrap().is_none());
        let whole = DeadLetter::declared(&plan(Some(1), Some("dead.hooks")))
            .unwrap()
            .unwrap();
        assert_eq!((whole.max_attempts, &*whole.subject), (1, "dead.hooks"));
        for (max_attempts, dead_letter, code) in [
            (Some(3), None, "IncompleteRedrive"),
            (None, Some("dead"), "IncompleteRedrive"),
            (Some(0), Some("dead"), "MaxAttemptsOutOfRange"),
            (Some(3), Some(""), "InvalidDeadLetter"),
            (Some(3), Some("dead.*"), "InvalidDeadLetter"),
            (Some(3), Some("dead.>"), "InvalidDeadLetter"),
            (Some(3), Some("$JS.API"), "InvalidDeadLetter"),
        ] {
            let error = DeadLetter::declared(&plan(max_attempts, dead_letter)).unwrap_err();
            assert!(matches!(error.class(), ErrorClass::Config), "{error}");
            assert_eq!(error.code(), code, "{max_attempts:?} {dead_letter:?}");
        }
    }

    #[test]
    fn a_copy_keeps_its_headers_but_for_those_that_a_stream_obeys() {
        let mut headers = HeaderMap::new();
        headers.append("X-Tag", "a");
        headers.append("X-Tag", "b");
        headers.insert("Nats-Msg-Id", "m-1");
        headers.insert("Nats-Rollup", "all");
        headers.insert("nats-expected-stream", "HOOKS");
        let copy = headers_of_copy(&headers, "HOOKS/7@1");
        let tags: Vec<_> = copy
            .get_all("X-Tag")
            .map(|value| value.as_str().to_owned())
            .collect();
        assert_eq!(tags, ["a", "b"]);
        assert_eq!(copy.get("Nats-Msg-Id").unwrap().as_str(), "HOOKS/7@1");
        assert_eq!(copy.len(), 2);
    }
}
