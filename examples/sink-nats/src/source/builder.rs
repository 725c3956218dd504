//! A source described in Rust.

use std::fmt;
use std::time::Duration;

use dispatch_api::{HostServices, Problems};

use super::NatsSource;
use super::config::validate;
use super::raw::RawSource;

/// Collects what a [`NatsSource`] is made of. Every option has the name, range and default
/// that it has in a configuration file.
#[derive(Clone)]
#[must_use]
pub struct NatsSourceBuilder {
    raw: RawSource,
}

impl NatsSourceBuilder {
    pub(super) fn new(servers: Vec<String>, stream: String, durable: String) -> Self {
        Self {
            raw: RawSource {
                servers: Some(servers),
                stream: Some(stream),
                durable: Some(durable),
                ..RawSource::default()
            },
        }
    }

    /// Sets the only subject to consume.
    pub fn filter_subject(mut self, subject: impl Into<String>) -> Self {
        self.raw.filter_subject = Some(subject.into());
        self
    }

    /// Sets how long a received message is held unless that is extended: 100 milliseconds to
    /// a day, a fraction of a millisecond rounded up.
    pub fn ack_wait(mut self, ack_wait: Duration) -> Self {
        self.raw.ack_wait_ms = Some(millis(ack_wait));
        self
    }

    /// Sets the most messages that are out unsettled, over all subscribers of the consumer.
    pub fn max_ack_pending(mut self, messages: u64) -> Self {
        self.raw.max_ack_pending = Some(messages);
        self
    }

    /// Sets how long a receive waits for a message: up to 60 seconds, a fraction of a
    /// millisecond rounded up.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.raw.wait_ms = Some(millis(wait));
        self
    }

    /// Sets how long a request may take, in milliseconds.
    pub fn timeout_ms(mut self, millis: u64) -> Self {
        self.raw.timeout_ms = Some(millis);
        self
    }

    /// Sets how long connecting to one server may take, in milliseconds.
    pub fn connect_timeout_ms(mut self, millis: u64) -> Self {
        self.raw.connect_timeout_ms = Some(millis);
        self
    }

    /// Sets a token to authenticate with.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.raw.token = Some(token.into());
        self
    }

    /// Sets a user and password to authenticate with.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.raw.user = Some(user.into());
        self.raw.password = Some(password.into());
        self
    }

    /// Sets the path of a credentials file to authenticate with.
    pub fn credentials_file(mut self, path: impl Into<String>) -> Self {
        self.raw.credentials_file = Some(path.into());
        self
    }

    /// Sets the PEM files of root certificates to trust instead of the system's.
    pub fn root_certificates(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let paths = paths.into_iter().map(Into::into).collect();
        self.raw.tls.get_or_insert_default().root_certificates = Some(paths);
        self
    }

    /// Checks the whole and reads the files that it names. Needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with the key that the option has in a file.
    pub fn build(self, services: &HostServices) -> Result<NatsSource, Problems> {
        Ok(NatsSource::new(
            validate(self.raw, Problems::new())?,
            services,
        ))
    }
}

/// Milliseconds, rounded up, so that a duration below one does not become none.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl fmt::Debug for NatsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing is checked yet: any text may hold a secret in the wrong place.
        f.debug_struct("NatsSourceBuilder").finish_non_exhaustive()
    }
}
