//! What the tests share.

pub(crate) mod server;

use std::future::Future;
use std::time::Duration;

use dispatch_api::{DeliveryContext, Envelope, HostServices, Outcome, SinkError};
use serde_json::{Value, json};
use sink_nats::{NatsSink, NatsSinkConfig};

pub(crate) const SUBJECT: &str = "hooks.acme";

/// The sink of these options, laid over one server and [`SUBJECT`].
pub(crate) fn sink(server: &str, more: &Value) -> NatsSink {
    sink_in(&HostServices::new().with_seed(1), server, more)
}

/// [`sink`], in this host.
pub(crate) fn sink_in(services: &HostServices, server: &str, more: &Value) -> NatsSink {
    let mut options = json!({"servers": [server], "subject": SUBJECT});
    let members = options.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    NatsSink::new(NatsSinkConfig::from_options(&options).unwrap(), services)
}

/// A new envelope of tenant `acme` and source `github`.
pub(crate) fn envelope() -> Envelope {
    envelope_of("{}")
}

/// A new envelope with this body.
pub(crate) fn envelope_of(body: impl Into<bytes::Bytes>) -> Envelope {
    let id = HostServices::new().new_envelope_id();
    Envelope::new(id, "github", 1_767_225_600_123, body).with_tenant("acme")
}

pub(crate) fn ctx() -> DeliveryContext {
    DeliveryContext::direct()
}

pub(crate) fn parts(error: &SinkError) -> (&'static str, Outcome, &str) {
    (error.class().as_str(), error.outcome(), error.code())
}

/// Waits for something that happens soon, and not for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it happens within 20 s")
}
