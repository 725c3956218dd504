//! The shortest plugin: a sink that writes one log line a hook and keeps nothing.

use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, Guarantees, HostServices, InFlight, Problems, Receipt,
    Sink, SinkError, SinkPlugin, read_options,
};
use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// Sinks of kind `log`.
pub static PLUGIN: SinkPlugin = SinkPlugin::new(
    "log",
    "writes one line a hook to the log and keeps nothing",
    || schema_for!(Options).to_value(),
    build,
);

dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Options {
    /// Words put in front of each line. Default: none.
    prefix: String,
}

fn build(options: &Value, _: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let mut problems = Problems::new();
    let Options { prefix } = read_options(options, &mut problems);
    let running = InFlight::new();
    problems.into_result(Arc::new(LogSink { prefix, running }))
}

#[derive(Debug)]
struct LogSink {
    prefix: String,
    running: InFlight,
}

#[async_trait]
impl Sink for LogSink {
    async fn deliver(&self, hook: &Envelope, _: &DeliveryContext) -> Result<Receipt, SinkError> {
        let _running = self.running.enter()?;
        tracing::info!(
            id = %hook.id(),
            source = hook.source_id(),
            tenant = hook.tenant_id(),
            bytes = hook.body().len(),
            "{}hook",
            self.prefix
        );
        Ok(Receipt::new())
    }

    fn durable(&self) -> bool {
        false
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(false)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.running.drain(deadline).await
    }
}
