//! What a source tells of its messages: the metrics of the README's table.

use std::sync::Arc;

use dispatch_api::{SparseLog, tell_contained};
use metrics::{Label, SharedString, counter};

/// Tells of the messages of one consumer.
#[derive(Clone, Debug)]
pub(crate) struct SourceTelemetry {
    stream: SharedString,
    durable: SharedString,
    /// Tells of spent messages that could not be moved.
    pub(super) not_moved: Arc<SparseLog>,
    /// Tells of messages that are none of the consumer's.
    pub(super) foreign: Arc<SparseLog>,
}

impl SourceTelemetry {
    pub(super) fn new(stream: &str, durable: &str) -> Self {
        Self {
            stream: SharedString::from(stream.to_owned()),
            durable: SharedString::from(durable.to_owned()),
            not_moved: Arc::default(),
            foreign: Arc::default(),
        }
    }

    /// Messages came; `code` is empty where they can be handled.
    pub(super) fn received(&self, messages: usize, code: &'static str) {
        if messages == 0 {
            return;
        }
        let mut labels = vec![
            Label::from_static_parts("messaging_system", "nats"),
            Label::from_static_parts("messaging_operation_name", "receive"),
            Label::from_static_parts("error_type", code),
        ];
        labels.extend(self.labels());
        tell_contained(|| {
            counter!("messaging_client_consumed_messages_total", labels).increment(messages as u64);
        });
    }

    /// A receive failed.
    pub(super) fn receive_failed(&self, code: &str) {
        let mut labels = vec![Label::new("error_type", code.to_owned())];
        labels.extend(self.labels());
        tell_contained(|| {
            counter!("ankusa_nats_receive_errors_total", labels).increment(1);
        });
    }

    /// A delivery was settled, or was not; `code` is empty where it was.
    pub(super) fn settled(&self, settlement: &'static str, code: &str) {
        let mut labels = vec![
            Label::from_static_parts("settlement", settlement),
            Label::new("error_type", code.to_owned()),
        ];
        labels.extend(self.labels());
        tell_contained(|| {
            counter!("ankusa_nats_settlements_total", labels).increment(1);
        });
    }

    /// A spent message was moved to the dead-letter subject, or was not; `code` is empty where
    /// it was.
    pub(super) fn dead_lettered(&self, code: &str) {
        let mut labels = vec![Label::new("error_type", code.to_owned())];
        labels.extend(self.labels());
        tell_contained(|| {
            counter!("ankusa_nats_dead_letters_total", labels).increment(1);
        });
    }

    /// The hold on a message was lost.
    pub(super) fn hold_lost(&self) {
        let labels = Vec::from(self.labels());
        tell_contained(|| {
            counter!("ankusa_nats_lost_holds_total", labels).increment(1);
        });
    }

    fn labels(&self) -> [Label; 2] {
        [
            Label::new("messaging_destination_name", self.stream.clone()),
            Label::new("messaging_consumer_group_name", self.durable.clone()),
        ]
    }
}
