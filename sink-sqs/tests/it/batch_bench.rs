//! A batching sink, a server, and what went between them.

use std::num::NonZeroU32;
use std::sync::Arc;

use dispatch_api::{
    Content, DeliveryContext, Envelope, EnvelopeId, HostServices, Message, Receipt, Sink as _,
    SinkError,
};
use serde_json::Value;
use sink_sqs::{SqsSink, SqsSinkConfigBuilder};
use sink_testkit::sqs::{Fault, Operation, SqsServer};
use tokio::task::JoinHandle;

use crate::bench::{config, sink_of};

/// Longer than any of these tests takes to start its deliveries.
pub(crate) const LINGER_MS: u64 = 500;

pub(crate) struct Batching {
    pub(crate) server: SqsServer,
    pub(crate) sink: Arc<SqsSink>,
    pub(crate) queue: &'static str,
}

pub(crate) type Delivered = Result<Receipt, SinkError>;

impl Batching {
    pub(crate) async fn on(queue: &'static str) -> Self {
        Self::with(queue, |config| config).await
    }

    pub(crate) async fn with(
        queue: &'static str,
        change: impl FnOnce(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder,
    ) -> Self {
        Self::at(SqsServer::start().await.unwrap(), queue, change).await
    }

    pub(crate) async fn at(
        server: SqsServer,
        queue: &'static str,
        change: impl FnOnce(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder,
    ) -> Self {
        let fifo = queue.ends_with(".fifo").then_some(("FifoQueue", "true"));
        let queue_url = server.create_queue(queue, fifo).await.unwrap();
        let patient = config(&queue_url).batch_linger_ms(LINGER_MS);
        let sink = sink_of(change(patient), &HostServices::new());
        Self {
            server,
            sink: Arc::new(sink),
            queue,
        }
    }

    pub(crate) fn start(&self, envelope: Envelope) -> JoinHandle<Delivered> {
        let sink = Arc::clone(&self.sink);
        tokio::spawn(async move { sink.deliver(&envelope, &attempt(1)).await })
    }

    /// Delivers envelopes numbered from 0, started in order, and returns their answers.
    pub(crate) async fn deliver(&self, envelopes: Vec<Envelope>) -> Vec<Delivered> {
        let mut started = Vec::new();
        for envelope in envelopes {
            started.push(self.start(envelope));
            tokio::task::yield_now().await;
        }
        let mut answers = Vec::new();
        for delivery in started {
            answers.push(delivery.await.unwrap());
        }
        answers
    }

    pub(crate) fn batches(&self) -> Vec<Vec<Value>> {
        let requests = self.server.requests_of(Operation::SendMessageBatch);
        let entries = requests
            .iter()
            .map(|request| request.json()["Entries"].clone());
        entries
            .map(|entries| entries.as_array().unwrap().clone())
            .collect()
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.batches().iter().map(Vec::len).collect()
    }

    /// The bodies that the queue holds, in its order.
    pub(crate) fn stored(&self) -> Vec<String> {
        let messages = self.server.messages(self.queue).unwrap();
        messages
            .iter()
            .map(|stored| body_of(&stored.body))
            .collect()
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.server.fault(Operation::SendMessageBatch, fault);
    }
}

pub(crate) fn attempt(number: u32) -> DeliveryContext {
    DeliveryContext::attempt(NonZeroU32::new(number).unwrap())
}

pub(crate) fn numbered(number: usize) -> Envelope {
    envelope(number, number.to_string())
}

pub(crate) fn envelope(number: usize, body: impl Into<Vec<u8>>) -> Envelope {
    let id = EnvelopeId::v7(number as u64, &[0; 10]);
    Envelope::new(id, "harbor", 5, body.into()).with_tenant("quay-7")
}

pub(crate) fn ten() -> Vec<Envelope> {
    (0..10).map(numbered).collect()
}

pub(crate) fn body_of(message: &str) -> String {
    match Message::decode(message.as_bytes()).unwrap().content {
        Content::Inline(body) => String::from_utf8(body.to_vec()).unwrap(),
        Content::Claim(claim) => claim.to_string(),
    }
}

pub(crate) fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

pub(crate) fn code(answer: &Delivered) -> &str {
    match answer {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}

pub(crate) fn codes(answers: &[Delivered]) -> Vec<&str> {
    answers.iter().map(code).collect()
}

/// Ten times ok, but for these.
pub(crate) fn ok_but(exceptions: &[(usize, &'static str)]) -> Vec<&'static str> {
    let mut codes = vec!["ok"; 10];
    for (index, code) in exceptions {
        codes[*index] = code;
    }
    codes
}
