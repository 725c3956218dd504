//! The configuration of one sink: raw options, checked into a typed whole.

mod builder;
mod check;
mod connection;
mod raw;
#[cfg(test)]
mod tests;
mod validate;

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use dispatch_api::{BatchSettings, Envelope, HostServices, Problems, read_options};
use serde_json::Value;

pub use self::builder::SqsSinkConfigBuilder;
pub(crate) use self::check::Check;
#[cfg(feature = "default-chain")]
pub(crate) use self::connection::AssumeRole;
pub(crate) use self::connection::{Connection, RawConnection};
use self::raw::RawConfig;
pub(crate) use self::raw::{RawAssumeRole, RawHttp};
use crate::endpoint::QueueUrl;
use crate::group::Grouping;

type GroupFn = dyn Fn(&Envelope) -> String + Send + Sync;

/// A complete and consistent configuration of an [`SqsSink`](crate::SqsSink).
///
/// From options, as a host reads them, or from [`SqsSinkConfig::builder`]. `Debug`
/// shows no credential.
#[derive(Clone)]
pub struct SqsSinkConfig {
    queue: QueueUrl,
    connection: Connection,
    grouping: Grouping,
    inline_max_bytes: NonZeroUsize,
    max_message_bytes: usize,
    batch_enabled: bool,
    batch: BatchSettings,
}

impl SqsSinkConfig {
    /// Starts a configuration in Rust.
    pub fn builder(
        queue_url: impl Into<String>,
        region: impl Into<String>,
    ) -> SqsSinkConfigBuilder {
        SqsSinkConfigBuilder::new(queue_url.into(), region.into())
    }

    /// Reads options, as they stand in a configuration file.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with its key.
    pub fn from_options(options: &Value, services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawConfig = read_options(options, &mut problems);
        validate::validate(raw, None, services, problems)
    }

    /// The JSON schema of the options. Their descriptions are the reference.
    #[must_use]
    pub fn options_schema() -> Value {
        schemars::schema_for!(RawConfig).to_value()
    }

    /// The queue's URL, without slashes at its end.
    #[must_use]
    pub fn queue_url(&self) -> &str {
        self.queue.as_str()
    }

    /// The queue's name.
    #[must_use]
    pub fn queue_name(&self) -> &str {
        self.queue.name()
    }

    /// Whether the queue is a FIFO queue.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.queue.is_fifo()
    }

    /// The queue's region.
    #[must_use]
    pub fn region(&self) -> &str {
        self.connection.region()
    }

    /// Where requests go, without a slash at the end.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.connection.endpoint()
    }

    /// The largest body in bytes that travels inside its message.
    #[must_use]
    pub fn inline_max_bytes(&self) -> NonZeroUsize {
        self.inline_max_bytes
    }

    /// The largest message in bytes, body and attributes together.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    /// How long one delivery may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.connection.timeout()
    }

    pub(crate) fn queue(&self) -> &QueueUrl {
        &self.queue
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// The bounds of the batcher; `None` when every delivery is a request of its own.
    pub(crate) fn batching(&self) -> Option<BatchSettings> {
        self.batch_enabled.then_some(self.batch)
    }
}

impl fmt::Debug for SqsSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSinkConfig")
            .field("queue_url", &self.queue.as_str())
            .field("connection", &self.connection)
            .field("grouping", &self.grouping)
            .field("inline_max_bytes", &self.inline_max_bytes)
            .field("max_message_bytes", &self.max_message_bytes)
            .field("batch", &self.batching())
            .finish()
    }
}
