//! The registration.

use std::sync::Arc;

use dispatch_api::{Fingerprint, HostServices, Problems, Sink, SinkPlugin};
use serde_json::Value;

use crate::config::NatsSinkConfig;
use crate::sink::NatsSink;

/// The plugin of kind `nats`, for [`Registry::with`](dispatch_api::Registry::with).
pub static PLUGIN: SinkPlugin = SinkPlugin::new(
    "nats",
    "NATS JetStream streams",
    NatsSinkConfig::options_schema,
    build,
)
.with_credentials(credentials);

dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);

fn build(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let config = NatsSinkConfig::from_options(options)?;
    Ok(Arc::new(NatsSink::new(config, services)))
}

/// Credentials in the options are part of their fingerprint already; what a file holds
/// is not.
fn credentials(options: &Value, _: &HostServices) -> Fingerprint {
    options
        .get("credentials_file")
        .and_then(Value::as_str)
        .and_then(|path| std::fs::read(path).ok())
        .map_or_else(Fingerprint::default, |file| Fingerprint::of([&*file]))
}
