//! The registration.

use std::sync::Arc;

use dispatch_api::{Fingerprint, HostServices, Problems, Sink, SinkPlugin};
use serde_json::Value;

use crate::config::SqsSinkConfig;
use crate::credentials::environment_fingerprint;
use crate::sink::SqsSink;

/// The plugin of kind `sqs`, for [`Registry::with`](dispatch_api::Registry::with).
pub static PLUGIN: SinkPlugin = SinkPlugin::new(
    "sqs",
    "Amazon SQS queues, standard and FIFO",
    SqsSinkConfig::options_schema,
    build,
)
.with_credentials(credentials);

dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);

fn build(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let config = SqsSinkConfig::from_options(options, services)?;
    Ok(Arc::new(SqsSink::new(config, services)?))
}

fn credentials(options: &Value, services: &HostServices) -> Fingerprint {
    let is_in_options = |key: &str| {
        options
            .get(key)
            .and_then(Value::as_str)
            .is_some_and(|value| !value.trim().is_empty())
    };
    if is_in_options("access_key_id") && is_in_options("secret_access_key") {
        // They are part of the options' own fingerprint.
        Fingerprint::default()
    } else {
        environment_fingerprint(services)
    }
}
