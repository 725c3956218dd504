//! The configuration of one sink: raw options, checked into a typed whole.

mod raw;
#[cfg(test)]
mod tests;
mod validate;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;
use dispatch_api::{Problems, read_options};
use serde_json::Value;

use self::raw::RawConfig;
pub(crate) use self::raw::RawTls;
pub(crate) use self::validate::{Check, present};
use crate::credentials::Credentials;
use crate::subject::SubjectTemplate;

/// A complete and consistent configuration of a [`NatsSink`](crate::NatsSink).
///
/// `Debug` shows no credential.
#[derive(Clone, Debug)]
pub struct NatsSinkConfig {
    subject: SubjectTemplate,
    inline_max_bytes: NonZeroUsize,
    max_message_bytes: Option<usize>,
    duplicate_window: Option<Duration>,
    timeout: Duration,
    link: LinkConfig,
}

/// How connections are made. Sinks that agree on it share one connection.
#[derive(Clone, Debug)]
pub(crate) struct LinkConfig {
    pub(crate) servers: Vec<ServerAddr>,
    pub(crate) connect_timeout: Duration,
    pub(crate) credentials: Credentials,
    pub(crate) root_certificates: Vec<PathBuf>,
}

impl NatsSinkConfig {
    /// Reads options, as they stand in a configuration file. Reads the files that they
    /// name, and needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with its key.
    pub fn from_options(options: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let raw: RawConfig = read_options(options, &mut problems);
        validate::validate(raw, problems)
    }

    /// The JSON schema of the options. Their descriptions are the reference.
    #[must_use]
    pub fn options_schema() -> Value {
        schemars::schema_for!(RawConfig).to_value()
    }

    /// The subject, with its placeholders.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.subject.as_str()
    }

    /// The largest body in bytes that travels inside its message.
    #[must_use]
    pub fn inline_max_bytes(&self) -> NonZeroUsize {
        self.inline_max_bytes
    }

    /// The largest message in bytes, headers and body together; `None`: as large as the
    /// server takes.
    #[must_use]
    pub fn max_message_bytes(&self) -> Option<usize> {
        self.max_message_bytes
    }

    /// How long the stream recognises a repeat, as the options say; zero: messages carry
    /// nothing by which it could. `None`: not known.
    #[must_use]
    pub fn duplicate_window(&self) -> Option<Duration> {
        self.duplicate_window
    }

    /// How long one delivery may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long connecting to one server may take.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.link.connect_timeout
    }

    pub(crate) fn subject_template(&self) -> &SubjectTemplate {
        &self.subject
    }

    pub(crate) fn link(&self) -> &LinkConfig {
        &self.link
    }
}
