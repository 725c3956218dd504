//! What a subscription tells of itself.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{ErrorChain, SinkError, SparseLog, tell_contained};
use metrics::{SharedString, counter, gauge, histogram};
use tracing::Span;
use tracing::field::Empty;

use super::{SYSTEM, as_f64};
use crate::requests::{Operation, RECEIVE};

/// Tells of the requests and deliveries of one queue.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerTelemetry {
    queue: SharedString,
    warnings: Arc<Warnings>,
}

/// The kinds of warnings, each told once a minute and not once a message.
#[derive(Debug, Default)]
struct Warnings {
    damaged: SparseLog,
    hold_ends: SparseLog,
    not_extended: SparseLog,
    delay_shortened: SparseLog,
}

impl ConsumerTelemetry {
    pub(crate) fn new(queue_name: &str) -> Self {
        Self {
            queue: SharedString::from(queue_name.to_owned()),
            warnings: Arc::default(),
        }
    }

    /// A received message is not what was sent.
    pub(crate) fn damaged(&self, message_id: &str, fault: &'static str) {
        self.received(1, fault);
        if let Some(count) = self.warnings.damaged.due() {
            tracing::warn!(
                queue = &*self.queue,
                message_id,
                error = fault,
                count,
                "a received message is damaged: it is left unsettled"
            );
        }
    }

    /// A hold is not extended any further.
    pub(crate) fn hold_ends(&self) {
        if let Some(count) = self.warnings.hold_ends.due() {
            tracing::warn!(
                queue = &*self.queue,
                count,
                "a message is held for nearly twelve hours, which is as long as the service \
                 allows: it comes back when its hold ends"
            );
        }
    }

    /// Holds were not extended, of this many messages in one call.
    pub(crate) fn not_extended(&self, messages: usize, error: &SinkError) {
        if let Some(count) = self.warnings.not_extended.due() {
            tracing::warn!(
                queue = &*self.queue,
                messages,
                count,
                error = %ErrorChain(error),
                "holds could not be extended; it is tried again while they last"
            );
        }
    }

    /// A delay is longer than the service allows.
    pub(crate) fn delay_shortened(&self, asked_seconds: u64, seconds: u64) {
        if let Some(count) = self.warnings.delay_shortened.due() {
            tracing::warn!(
                queue = &*self.queue,
                asked_seconds,
                seconds,
                count,
                "a delay reaches past the twelve hours from the receive, and is shortened to end \
                 there"
            );
        }
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
