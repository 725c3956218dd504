//! What a sink tells of its requests: the metrics and spans of the README's table.

mod consuming;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "default-chain")]
use dispatch_api::SinkError;
use dispatch_api::{Answer, Flush, SparseLog, tell_contained};
use metrics::{SharedString, counter, gauge, histogram};
use tracing::Span;
use tracing::field::Empty;

pub(crate) use self::consuming::ConsumerTelemetry;

const SYSTEM: &str = "aws_sqs";

/// Tells of the requests to one queue.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    queue: SharedString,
    foreign: Arc<SparseLog>,
}

impl Telemetry {
    pub(crate) fn new(queue_name: &str) -> Self {
        Self {
            queue: SharedString::from(queue_name.to_owned()),
            foreign: Arc::default(),
        }
    }

    /// The span of one request.
    pub(crate) fn span(&self, operation: &'static str, messages: usize) -> Span {
        tracing::debug_span!(
            "send",
            otel.kind = "client",
            messaging.system = SYSTEM,
            messaging.operation.name = operation,
            messaging.operation.type = "send",
            messaging.destination.name = &*self.queue,
            messaging.batch.message_count = messages,
            error.type = Empty,
        )
    }

    /// A request was answered, or ended without an answer.
    pub(crate) fn request_ended(
        &self,
        operation: &'static str,
        took: Duration,
        answers: &[Answer],
        span: &Span,
    ) {
        let mut by_code: BTreeMap<&str, u64> = BTreeMap::new();
        for answer in answers {
            let code = answer.as_ref().map_or_else(|error| error.code(), |_| "");
            *by_code.entry(code).or_default() += 1;
        }
        // A request fails when all its messages do.
        let error = match by_code.first_key_value() {
            Some((code, _)) => *code,
            None => "",
        };
        self.request_took(operation, took, error, span);
        tell_contained(|| {
            for (code, count) in by_code {
                counter!(
                    "messaging_client_sent_messages_total",
                    "messaging_system" => SYSTEM,
                    "messaging_operation_name" => operation,
                    "messaging_destination_name" => self.queue.clone(),
                    "error_type" => code.to_owned(),
                )
                .increment(count);
            }
        });
    }

    /// A request was too long for the destination. Its messages go in shorter ones, and are
    /// counted with those.
    pub(crate) fn request_cut(&self, operation: &'static str, took: Duration, span: &Span) {
        self.request_took(operation, took, "BatchRequestTooLong", span);
    }

    /// `error` is empty where the request succeeded.
    fn request_took(&self, operation: &'static str, took: Duration, error: &str, span: &Span) {
        if !error.is_empty() {
            span.record("error.type", error);
        }
        tell_contained(|| {
            histogram!(
                "messaging_client_operation_duration_seconds",
                "messaging_system" => SYSTEM,
                "messaging_operation_name" => operation,
                "messaging_destination_name" => self.queue.clone(),
                "error_type" => error.to_owned(),
            )
            .record(took.as_secs_f64());
        });
    }

    /// An answer names entries that were not in its request.
    pub(crate) fn foreign_entries(&self, foreign: usize, request_id: Option<&str>) {
        if let Some(count) = self.foreign.due() {
            tracing::warn!(
                queue = &*self.queue,
                foreign,
                request_id,
                count,
                "the answer to a batch names entries that were not in it"
            );
        }
    }

    /// A batch left.
    pub(crate) fn batch_left(&self, entries: usize, flush: Flush) {
        let labels = [
            ("queue", self.queue.clone()),
            ("reason", SharedString::const_str(flush.reason.as_str())),
        ];
        tell_contained(|| {
            histogram!("ankusa_sqs_batch_entries", &labels).record(as_f64(entries));
            histogram!("ankusa_sqs_batch_bytes", &labels).record(as_f64(flush.bytes));
            histogram!("ankusa_sqs_batch_wait_seconds", &labels).record(flush.waited.as_secs_f64());
        });
    }

    /// What the batcher holds changed. It keeps a panic of this to itself.
    pub(crate) fn load_changed(&self, entries: usize, requests: usize) {
        gauge!("ankusa_sqs_unanswered_messages", "queue" => self.queue.clone())
            .set(as_f64(entries));
        gauge!("ankusa_sqs_requests_in_flight", "queue" => self.queue.clone())
            .set(as_f64(requests));
    }
}

/// A refresh of credentials ended.
#[cfg(feature = "default-chain")]
pub(crate) fn credentials_refreshed(error: Option<&SinkError>) {
    let error = error.map_or(String::new(), |error| error.code().to_owned());
    tell_contained(|| {
        counter!("ankusa_sqs_credential_refreshes_total", "error_type" => error).increment(1);
    });
}

/// Metrics are floating point, and exact up to 2^53.
fn as_f64(count: usize) -> f64 {
    count as f64
}
