//! A server, a queue on it, and a sink that sends there.

use std::process::Command;

use dispatch_api::{
    DeliveryContext, Envelope, ErrorClass, HostServices, Outcome, Receipt, Sink as _, SinkError,
};
use sink_sqs::{SqsSink, SqsSinkConfig, SqsSinkConfigBuilder};
use sink_testkit::sqs::{Fault, Operation, PeekedMessage, RecordedRequest, SqsServer};

pub(crate) const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";
pub(crate) const QUEUE: &str = "hooks";
pub(crate) const FIFO_QUEUE: &str = "hooks.fifo";

pub(crate) struct Bench {
    pub(crate) server: SqsServer,
    pub(crate) sink: SqsSink,
    queue: &'static str,
}

impl Bench {
    pub(crate) async fn standard() -> Self {
        Self::with(QUEUE, |config| config).await
    }

    pub(crate) async fn fifo() -> Self {
        Self::with(FIFO_QUEUE, |config| config).await
    }

    /// A bench whose configuration `change` has altered.
    pub(crate) async fn with(
        queue: &'static str,
        change: impl FnOnce(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder,
    ) -> Self {
        let server = SqsServer::start().await.unwrap();
        let fifo = queue.ends_with(".fifo").then_some(("FifoQueue", "true"));
        let queue_url = server.create_queue(queue, fifo).await.unwrap();
        let sink = sink(change(config(&queue_url)));
        Self {
            server,
            sink,
            queue,
        }
    }

    /// A bench whose next send meets `fault`.
    pub(crate) async fn faulty(fault: Fault) -> Self {
        let bench = Self::standard().await;
        bench.server.fault(Operation::SendMessage, fault);
        bench
    }

    pub(crate) async fn deliver(&self) -> Result<Receipt, SinkError> {
        self.sink.deliver(&envelope(), &ctx()).await
    }

    pub(crate) fn stored(&self) -> Vec<PeekedMessage> {
        self.server.messages(self.queue).unwrap()
    }

    pub(crate) fn sends(&self) -> Vec<RecordedRequest> {
        self.server.requests_of(Operation::SendMessage)
    }
}

/// The least configuration that the server of a bench accepts.
pub(crate) fn config(queue_url: &str) -> SqsSinkConfigBuilder {
    SqsSinkConfig::builder(queue_url, "us-east-1").credentials("test", "test")
}

pub(crate) fn sink(config: SqsSinkConfigBuilder) -> SqsSink {
    sink_of(config, &HostServices::new())
}

pub(crate) fn sink_of(config: SqsSinkConfigBuilder, services: &HostServices) -> SqsSink {
    SqsSink::new(config.build(services).unwrap(), services).unwrap()
}

pub(crate) fn envelope() -> Envelope {
    envelope_of(r#"{"parcel":"K-204","state":"loaded 🌊"}"#)
}

pub(crate) fn envelope_of(body: impl Into<Vec<u8>>) -> Envelope {
    Envelope::new(
        ID.parse().unwrap(),
        "harbor",
        1_767_225_600_123,
        body.into(),
    )
    .with_tenant("quay-7")
    .with_dedupe_key("mv-88 🌊")
}

pub(crate) fn ctx() -> DeliveryContext {
    DeliveryContext::direct()
}

/// An error's class (a pause counts as one), outcome and code.
pub(crate) fn parts(error: &SinkError) -> (&'static str, Outcome, &str) {
    (error.class().as_str(), error.outcome(), error.code())
}

pub(crate) fn is_pause(error: &SinkError) -> bool {
    matches!(error.class(), ErrorClass::RetryAfter(_))
}

/// Runs one test in a process of its own, which has this environment beside its parent's.
pub(crate) fn run_again(test: &str, environment: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env_remove("SSL_CERT_DIR")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("1 passed"), "{shown}");
}
