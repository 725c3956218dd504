//! What a sink tells of its messages: the metrics and the span of the README's table.

use std::time::Duration;

use dispatch_api::{Receipt, SinkError, tell_contained};
use metrics::{SharedString, counter, histogram};
use tracing::Span;
use tracing::field::Empty;

const SYSTEM: &str = "nats";
const OPERATION: &str = "publish";

/// Tells of the messages to one subject.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    /// The template, of which there are as many as sinks.
    subject: SharedString,
}

impl Telemetry {
    pub(crate) fn new(subject: &str) -> Self {
        Self {
            subject: SharedString::from(subject.to_owned()),
        }
    }

    /// The span of one message.
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(
            "send",
            otel.kind = "producer",
            messaging.system = SYSTEM,
            messaging.operation.name = OPERATION,
            messaging.operation.type = "send",
            messaging.destination.name = &*self.subject,
            error.type = Empty,
        )
    }

    /// A message was answered.
    pub(crate) fn answered(
        &self,
        took: Duration,
        answer: &Result<Receipt, SinkError>,
        span: &Span,
    ) {
        let error = answer.as_ref().map_or_else(SinkError::code, |_| "");
        if !error.is_empty() {
            span.record("error.type", error);
        }
        let labels = [
            ("messaging_system", SharedString::const_str(SYSTEM)),
            (
                "messaging_operation_name",
                SharedString::const_str(OPERATION),
            ),
            ("messaging_destination_name", self.subject.clone()),
            ("error_type", SharedString::from(error.to_owned())),
        ];
        tell_contained(|| {
            histogram!("messaging_client_operation_duration_seconds", &labels)
                .record(took.as_secs_f64());
            counter!("messaging_client_sent_messages_total", &labels).increment(1);
        });
    }
}
