//! The registration.

use std::sync::Arc;

use dispatch_api::{HostServices, Problems, Sink, SinkPlugin};
use serde_json::Value;

use crate::config::KafkaSinkConfig;
use crate::sink::KafkaSink;

/// The plugin of kind `kafka`, for [`Registry::with`](dispatch_api::Registry::with).
pub static PLUGIN: SinkPlugin = SinkPlugin::new(
    "kafka",
    "Kafka topics",
    KafkaSinkConfig::options_schema,
    build,
);

dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);

fn build(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let config = KafkaSinkConfig::from_options(options)?;
    Ok(Arc::new(KafkaSink::new(config, services)))
}
