//! What a subscription tells of itself.

use std::time::Duration;

use dispatch_api::tell_contained;
use metrics::{SharedString, counter, gauge, histogram};
use tracing::Span;
use tracing::field::Empty;

use super::{SYSTEM, as_f64};
use crate::requests::{Operation, RECEIVE};

/// Tells of the requests and deliveries of one queue.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerTelemetry {
    queue: SharedString,
}

impl ConsumerTelemetry {
    pub(crate) fn new(queue_name: &str) -> Self {
        Self {
            queue: SharedString::from(queue_name.to_owned()),
        }
    }

    /// The queue's name.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// The span of one request.
    pub(crate) fn span(&self, operation: Operation) -> Span {
        tracing::debug_span!(
            "consume",
            otel.kind = "client",
            messaging.system = SYSTEM,
            messaging.operation.name = operation.name,
            messaging.operation.type = operation.kind,
            messaging.destination.name = &*self.queue,
            error.type = Empty,
        )
    }

    /// A request was answered, or ended without an answer; `code` is empty when it succeeded.
    pub(crate) fn request_ended(
        &self,
        operation: Operation,
        took: Duration,
        code: &str,
        span: &Span,
    ) {
        if !code.is_empty() {
            span.record("error.type", code);
        }
        tell_contained(|| {
            histogram!(
                "messaging_client_operation_duration_seconds",
                "messaging_system" => SYSTEM,
                "messaging_operation_name" => operation.name,
                "messaging_destination_name" => self.queue.clone(),
                "error_type" => code.to_owned(),
            )
            .record(took.as_secs_f64());
        });
    }

    /// Messages came; `code` is empty where they can be handled.
    pub(crate) fn received(&self, messages: usize, code: &'static str) {
        if messages == 0 {
            return;
        }
        tell_contained(|| {
            counter!(
                "messaging_client_consumed_messages_total",
                "messaging_system" => SYSTEM,
                "messaging_operation_name" => RECEIVE.name,
                "messaging_destination_name" => self.queue.clone(),
                "error_type" => code,
            )
            .increment(messages as u64);
        });
    }

    /// A receive failed.
    pub(crate) fn receive_failed(&self, code: &str) {
        tell_contained(|| {
            counter!(
                "ankusa_sqs_receive_errors_total",
                "queue" => self.queue.clone(),
                "error_type" => code.to_owned(),
            )
            .increment(1);
        });
    }

    /// A delivery was settled, or was not; `code` is empty where it was.
    pub(crate) fn settled(&self, settlement: &'static str, code: &str) {
        tell_contained(|| {
            counter!(
                "ankusa_sqs_settlements_total",
                "queue" => self.queue.clone(),
                "settlement" => settlement,
                "error_type" => code.to_owned(),
            )
            .increment(1);
        });
    }

    /// The hold on a message was extended, or was not; `code` is empty where it was.
    pub(crate) fn extended(&self, code: &str) {
        tell_contained(|| {
            counter!(
                "ankusa_sqs_extensions_total",
                "queue" => self.queue.clone(),
                "error_type" => code.to_owned(),
            )
            .increment(1);
        });
    }

    /// The hold on a message was lost.
    pub(crate) fn hold_lost(&self) {
        tell_contained(|| {
            counter!("ankusa_sqs_lost_holds_total", "queue" => self.queue.clone()).increment(1);
        });
    }

    /// How many messages are held.
    pub(crate) fn held(&self, messages: usize) {
        tell_contained(|| {
            gauge!("ankusa_sqs_held_messages", "queue" => self.queue.clone()).set(as_f64(messages));
        });
    }
}
