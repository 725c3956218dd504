//! One `SendMessageBatch` and its reconciliation.

use std::collections::VecDeque;

use dispatch_api::{Answer, BatchSender, Flush, HostServices};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::answer::{Asked, batch_sent, is_too_long, request_id};
use crate::config::SqsSinkConfig;
use crate::prepared::Prepared;
use crate::protocol;
use crate::telemetry::Telemetry;

const OPERATION: &str = "send_batch";

/// Sends the batches of one queue.
#[derive(Debug)]
pub(crate) struct QueueSender {
    queue_url: String,
    services: HostServices,
    telemetry: Telemetry,
}

impl QueueSender {
    pub(crate) fn new(config: &SqsSinkConfig, services: &HostServices) -> Self {
        Self {
            queue_url: config.queue_url().to_owned(),
            services: services.clone(),
            telemetry: Telemetry::new(config.queue_name()),
        }
    }

    /// Sends messages of one route in one request. `None`: it is too long for the
    /// destination, and can be cut.
    async fn send_once(&self, messages: &[Prepared]) -> Option<Vec<Answer>> {
        let Some(Prepared { route, .. }) = messages.first() else {
            return Some(Vec::new());
        };
        let request = protocol::send_message_batch(
            &self.queue_url,
            messages.iter().map(|message| message.members.as_str()),
        );
        let began = Instant::now();
        let span = self.telemetry.span(OPERATION, messages.len());
        let exchange = route
            .client
            .call(protocol::SEND_MESSAGE_BATCH, request, began + route.timeout)
            .instrument(span.clone())
            .await;
        let answers = match exchange {
            Ok(exchange) if messages.len() > 1 && is_too_long(&exchange.answer) => {
                self.telemetry
                    .request_cut(OPERATION, began.elapsed(), &span);
                return None;
            }
            Ok(exchange) => {
                let asked = Asked {
                    queue_url: &self.queue_url,
                    credentials: &exchange.credentials,
                    services: &self.services,
                };
                let answered = batch_sent(&exchange.answer, messages, &asked);
                if answered.foreign > 0 {
                    let request_id = request_id(&exchange.answer.headers);
                    self.telemetry.foreign_entries(answered.foreign, request_id);
                }
                answered.answers
            }
            // Without an answer it is for every message as it would be for one.
            Err(error) => messages.iter().map(|_| Err(error.clone())).collect(),
        };
        self.telemetry
            .request_ended(OPERATION, began.elapsed(), &answers, &span);
        Some(answers)
    }
}

impl BatchSender for QueueSender {
    type Entry = Prepared;

    async fn send(&self, messages: Vec<Prepared>, flush: Flush) -> Vec<Answer> {
        self.telemetry.batch_left(messages.len(), flush);
        let mut answers = Vec::with_capacity(messages.len());
        // One request, unless the batch has messages of sinks that are set otherwise: their
        // requests follow each other, because a group's messages may be in several.
        let mut waiting: VecDeque<_> = messages
            .chunk_by(|one, next| one.route.is_as(&next.route))
            .collect();
        while let Some(part) = waiting.pop_front() {
            match self.send_once(part).await {
                Some(answered) => answers.extend(answered),
                None => {
                    // The halves stay in order, one request at a time.
                    let (first, second) = part.split_at(part.len() / 2);
                    waiting.push_front(second);
                    waiting.push_front(first);
                }
            }
        }
        answers
    }

    fn is_withdrawn(&self, message: &Prepared) -> bool {
        message.route.is_withdrawn()
    }

    fn load_changed(&self, entries: usize, requests: usize) {
        self.telemetry.load_changed(entries, requests);
    }
}
