//! What a queue is told in both suites of sources: its options, and the messages put in it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sink_testkit::conformance::FixtureError;
use sink_testkit::conformance::source::{RawMessage, SourceOptions};

/// The options of a source but for its credentials.
pub(crate) fn queue_options(
    url: &str,
    options: &SourceOptions,
    is_batched: bool,
) -> Result<Value, String> {
    Ok(json!({
        "queue": url,
        "region": "us-east-1",
        "wait_ms": millis(options.wait)?,
        "visibility_ms": millis(options.hold)?,
        "timeout_ms": 3_000,
        "batch_settlement": is_batched,
    }))
}

/// Milliseconds, rounded up, so that a time below one does not become none.
fn millis(time: Duration) -> Result<u64, String> {
    let up = u128::from(!time.subsec_nanos().is_multiple_of(1_000_000));
    u64::try_from(time.as_millis() + up).map_err(|_| "no such time in milliseconds".to_owned())
}

/// A `SendMessage`. On a FIFO queue every message is one of its own, also with the body of
/// another.
pub(crate) fn send(url: &str, message: &RawMessage, is_fifo: bool) -> Result<Value, FixtureError> {
    let body = std::str::from_utf8(&message.body)?;
    let mut request = json!({ "QueueUrl": url, "MessageBody": body });
    let attributes: Map<String, Value> = message
        .attributes
        .iter()
        .map(|(name, value)| {
            let value = json!({ "DataType": "String", "StringValue": value });
            (name.clone(), value)
        })
        .collect();
    if !attributes.is_empty() {
        request["MessageAttributes"] = attributes.into();
    }
    if is_fifo {
        request["MessageGroupId"] = message.key.as_deref().unwrap_or("none").into();
        request["MessageDeduplicationId"] = format!("{:032x}", fastrand::u128(..)).into();
    }
    Ok(request)
}
