//! A source described in Rust.

use std::fmt;
use std::time::Duration;

use dispatch_api::{HostServices, Problems};

use super::KafkaSource;
use super::config::validate;
use super::raw::{RawSource, RawStart};
use crate::config::RawProperty;

/// Collects what a [`KafkaSource`] is made of. Every option has the name, range and default
/// that it has in a configuration file.
#[derive(Clone)]
#[must_use]
pub struct KafkaSourceBuilder {
    raw: RawSource,
}

impl KafkaSourceBuilder {
    pub(super) fn new(brokers: Vec<String>, topic: String, group: String) -> Self {
        Self {
            raw: RawSource {
                brokers: Some(brokers),
                topic: Some(topic),
                group: Some(group),
                ..RawSource::default()
            },
        }
    }

    /// Has a group that has committed nothing pass over what is there already.
    pub fn start_with_latest(mut self) -> Self {
        self.raw.start = Some(RawStart::Latest);
        self
    }

    /// Sets how long a receive waits for a message: up to 60 seconds, a fraction of a
    /// millisecond rounded up.
    pub fn wait(mut self, wait: Duration) -> Self {
        let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000));
        self.raw.wait_ms = Some(millis.unwrap_or(u64::MAX));
        self
    }

    /// Sets how long a request may take, in milliseconds.
    pub fn timeout_ms(mut self, millis: u64) -> Self {
        self.raw.timeout_ms = Some(millis);
        self
    }

    /// Sets a further property of librdkafka.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let properties = self.raw.properties.get_or_insert_default();
        properties.insert(name.into(), RawProperty::Text(value.into()));
        self
    }

    /// Checks the whole. Needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with the key that the option has in a file.
    pub fn build(self, services: &HostServices) -> Result<KafkaSource, Problems> {
        Ok(KafkaSource::new(
            validate(self.raw, Problems::new())?,
            services,
        ))
    }
}

impl fmt::Debug for KafkaSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing is checked yet: any text may hold a secret in the wrong place.
        f.debug_struct("KafkaSourceBuilder").finish_non_exhaustive()
    }
}
