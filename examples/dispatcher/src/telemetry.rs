//! What the host tells of its deliveries: the metrics of the README's table.

use std::net::SocketAddr;

use dispatch_api::{ErrorClass, Receipt, SinkError};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder};

/// Serves metrics as Prometheus text at this address, from now until the process ends.
///
/// # Errors
///
/// When nothing can listen there.
pub(crate) fn serve(address: SocketAddr) -> Result<(), BuildError> {
    PrometheusBuilder::new()
        .with_http_listener(address)
        .install()
}

/// An attempt ended.
pub(crate) fn attempt_ended(sink: &str, result: &Result<Receipt, SinkError>) {
    let (class, code) = match result {
        Ok(_) => ("ok", ""),
        Err(error) => (error.class().as_str(), error.code()),
    };
    counter!(
        "ankusa_dispatch_attempts_total",
        "sink" => sink.to_owned(),
        "class" => class,
        "code" => code.to_owned(),
    )
    .increment(1);
    if let Err(error) = result
        && error.class() == ErrorClass::Config
    {
        counter!("ankusa_dispatch_config_errors_total", "sink" => sink.to_owned()).increment(1);
    }
}

/// A delivery ended: delivered, or dead-lettered.
pub(crate) fn delivery_ended(sink: Option<&str>, delivered: bool) {
    let outcome = if delivered {
        "delivered"
    } else {
        "dead_lettered"
    };
    counter!(
        "ankusa_dispatch_deliveries_total",
        "sink" => sink.unwrap_or_default().to_owned(),
        "outcome" => outcome,
    )
    .increment(1);
    gauge!("ankusa_dispatch_in_flight").decrement(1);
}

/// A delivery set out.
pub(crate) fn delivery_started() {
    gauge!("ankusa_dispatch_in_flight").increment(1);
}
