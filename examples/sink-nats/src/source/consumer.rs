//! The durable consumer: found, or created, and fit for a source.

use std::time::Duration;

use dispatch_api::SourceError;
use tokio::time::Instant;

use super::calls::{Calls, ConsumerConfig, nanos};
use super::config::SourceConfig;
use super::receive::MAX_BATCH;

/// How long a consumer that is created holds a message, unless that is configured.
const DEFAULT_ACK_WAIT: Duration = Duration::from_secs(30);

/// A consumer as a source uses it.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) ack_wait: Duration,
    pub(super) wait: Duration,
    pub(super) max_batch: usize,
    /// What it delivers; none: every subject.
    pub(super) filters: Vec<String>,
}

/// Finds the consumer, or creates it. One that is there is never changed.
///
/// # Errors
///
/// `Config` where the stream is missing, or the consumer is not what the options say or what a
/// source needs; or why the server could not be asked.
pub(super) async fn bind(
    calls: &Calls,
    config: &SourceConfig,
    deadline: Instant,
) -> Result<Durable, SourceError> {
    calls.stream(deadline).await?;
    let found = match calls.consumer(deadline).await? {
        Some(found) => found,
        None => match calls.create(&wanted(config), deadline).await? {
            Some(created) => created,
            // Somebody else was faster.
            None => calls.consumer(deadline).await?.ok_or_else(|| {
                SourceError::transient(
                    "ConsumerUnavailable",
                    "the durable consumer is created and deleted by somebody else",
                )
            })?,
        },
    };
    checked(config, found)
}

fn wanted(config: &SourceConfig) -> ConsumerConfig {
    ConsumerConfig {
        durable_name: Some(config.durable.clone()),
        ack_policy: "explicit".to_owned(),
        ack_wait: nanos(config.ack_wait.unwrap_or(DEFAULT_ACK_WAIT)),
        max_deliver: -1,
        filter_subject: config.filter_subject.clone(),
        max_ack_pending: config
            .max_ack_pending
            .and_then(|messages| i64::try_from(messages).ok()),
        ..ConsumerConfig::default()
    }
}

/// What is needed of a consumer, and what the options say of it.
fn checked(config: &SourceConfig, found: ConsumerConfig) -> Result<Durable, SourceError> {
    let differs = |what: String| {
        Err(SourceError::config(
            "ConsumerDiffers",
            format!(
                "the durable consumer `{}` of `{}` {what}; the source never changes one that is \
                 there",
                config.durable, config.stream
            ),
        ))
    };
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if is_set(&found.deliver_subject) {
        return differs("is a push consumer: name a pull consumer, or a new one".to_owned());
    }
    if found.ack_policy != "explicit" {
        return differs(format!(
            "has ack_policy {}: name one with `explicit`, or a new one",
            found.ack_policy
        ));
    }
    if found.max_deliver > 0 {
        return differs(format!(
            "has max_deliver {}, after which it delivers a message no more and moves it nowhere: \
             set it to -1, and use max_attempts with dead_letter",
            found.max_deliver
        ));
    }
    let mut filters = found.filter_subjects;
    filters.extend(found.filter_subject.filter(|filter| !filter.is_empty()));
    if let Some(wanted) = &config.filter_subject
        && filters != [wanted.as_str()]
    {
        return differs(format!(
            "delivers {}, and filter_subject is `{wanted}`: make them agree",
            match filters.is_empty() {
                true => "every subject".to_owned(),
                false => format!("`{}`", filters.join("`, `")),
            }
        ));
    }
    // With a backoff the server waits as long as that says, and another time each delivery.
    let ack_wait = found.backoff.iter().copied().min();
    let ack_wait = Duration::from_nanos(ack_wait.unwrap_or(found.ack_wait));
    if let Some(wanted) = config.ack_wait
        && wanted != ack_wait
    {
        return differs(format!(
            "has an ack_wait of {} ms, and ack_wait_ms is {}: make them agree, or leave \
             ack_wait_ms out",
            ack_wait.as_millis(),
            wanted.as_millis()
        ));
    }
    if ack_wait.is_zero() {
        return differs("has no ack_wait, so that a delivery would be everybody's".to_owned());
    }
    if let (Some(wanted), Some(has)) = (config.max_ack_pending, found.max_ack_pending)
        && i64::try_from(wanted) != Ok(has)
    {
        return differs(format!(
            "has a max_ack_pending of {has}, and the option is {wanted}: make them agree, or \
             leave the option out"
        ));
    }
    let max_batch = found.max_batch.filter(|max| *max > 0);
    let max_batch = max_batch.and_then(|max| usize::try_from(max).ok());
    let max_expires = found.max_expires.filter(|max| *max > 0);
    Ok(Durable {
        ack_wait,
        wait: max_expires.map_or(config.wait, |max| {
            config.wait.min(Duration::from_nanos(max))
        }),
        max_batch: max_batch.map_or(MAX_BATCH, |max| max.min(MAX_BATCH)),
        filters,
    })
}
