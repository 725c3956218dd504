//! From options to the configuration of a queue, with every problem at once.

use std::time::Duration;

use dispatch_api::Problems;
use url::Url;

use super::raw::RawQueue;
use crate::config::{Check, Connection, RawConnection};
use crate::endpoint::{QueueUrl, is_queue_name, parse_endpoint, regional_endpoint};

/// A complete and consistent configuration of an [`SqsQueue`](crate::SqsQueue).
#[derive(Clone, Debug)]
pub(crate) struct QueueConfig {
    pub(crate) queue: QueueName,
    pub(crate) connection: Connection,
    /// Whole seconds.
    pub(crate) wait: Duration,
    /// Whole seconds; `None` for the queue's own.
    pub(crate) visibility: Option<Duration>,
    pub(crate) batch_settlement: bool,
}

/// What names a queue.
#[derive(Clone, Debug)]
pub(crate) enum QueueName {
    Url(QueueUrl),
    /// To be resolved.
    Name(String),
}

impl QueueName {
    /// Reads a URL or a name.
    ///
    /// # Errors
    ///
    /// What is wrong with it. The text is never part of that.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains("://") {
            return QueueUrl::parse(text).map(Self::Url);
        }
        match is_queue_name(text) {
            true => Ok(Self::Name(text.to_owned())),
            false => Err(
                "expected a URL such as https://sqs.us-east-1.amazonaws.com/123456789012/hooks, \
                 or a name: 1 to 80 letters, digits, `-` and `_`, with `.fifo` at the end of a \
                 FIFO queue's"
                    .to_owned(),
            ),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Url(url) => url.name(),
            Self::Name(name) => name,
        }
    }

    fn url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url.url()),
            Self::Name(_) => None,
        }
    }
}

/// Checks everything that can be checked without a network or a file.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(raw: RawQueue, problems: Problems) -> Result<QueueConfig, Problems> {
    let mut check = Check::new(problems);
    let is_missing = raw
        .queue
        .as_ref()
        .is_none_or(|queue| queue.trim().is_empty());
    if is_missing {
        check.problems.add(
            "queue",
            "missing: set the queue's URL, such as \
             https://sqs.us-east-1.amazonaws.com/123456789012/hooks, or its name",
        );
    }
    let queue = check.parsed("queue", raw.queue, QueueName::parse);
    let endpoint = check.parsed("endpoint", raw.endpoint, parse_endpoint);
    let queue_url = queue.as_ref().and_then(QueueName::url);
    let region = check.region(
        raw.region,
        [("queue", queue_url), ("endpoint", endpoint.as_ref())],
    );
    if let Some(url) = queue_url {
        check.https("queue", url);
    }
    if let Some(endpoint) = &endpoint {
        check.https("endpoint", endpoint);
    }
    let endpoint = match (endpoint, &queue, &region) {
        (Some(endpoint), _, _) => Some(endpoint),
        (None, Some(QueueName::Url(url)), _) => Some(url.endpoint()),
        (None, Some(QueueName::Name(_)), Some(region)) => {
            let endpoint = regional_endpoint(region);
            if endpoint.is_none() {
                check.problems.add(
                    "endpoint",
                    "missing: the hosts of this region are not known, so set the endpoint, or \
                     the queue's URL in queue",
                );
            }
            endpoint
        }
        (None, _, _) => None,
    };
    let wait = check.millis("wait_ms", raw.wait_ms, 20_000, 0..=20_000);
    let visibility = raw
        .visibility_ms
        .map(|millis| check.millis("visibility_ms", Some(millis), 1_000, 1_000..=43_200_000));
    let connection = RawConnection {
        timeout_ms: raw.timeout_ms,
        access_key_id: raw.access_key_id,
        secret_access_key: raw.secret_access_key,
        session_token: raw.session_token,
        profile: raw.profile,
        assume_role: raw.assume_role,
        http: raw.http,
    };
    let connection = connection.check(&mut check, endpoint.zip(region));
    // What is missing here is among the problems.
    let (Some(queue), Some(connection)) = (queue, connection) else {
        return Err(check.problems);
    };
    check.problems.into_result(QueueConfig {
        queue,
        connection,
        wait: whole_seconds(wait),
        visibility: visibility.map(whole_seconds),
        batch_settlement: raw.batch_settlement.unwrap_or(false),
    })
}

/// A duration in whole seconds, rounded up: nothing comes back before its time, and a short
/// wait does not become none.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    let up = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, seconds) in [
            (0, 0),
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (20_000, 20),
        ] {
            assert_eq!(
                whole_seconds(Duration::from_millis(millis)),
                Duration::from_secs(seconds)
            );
        }
        assert_eq!(whole_seconds(Duration::MAX), Duration::from_secs(u64::MAX));
    }
}
