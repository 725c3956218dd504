//! A configuration made in Rust.

use std::fmt;
use std::sync::Arc;

use dispatch_api::{Envelope, HostServices, Problems};

use super::GroupFn;
use super::SqsSinkConfig;
use super::raw::{RawAssumeRole, RawConfig, RawHttp};
use super::validate::validate;

/// Collects what an [`SqsSinkConfig`] is made of. Every option has the name, range
/// and default that it has in a configuration file.
#[derive(Clone)]
#[must_use]
pub struct SqsSinkConfigBuilder {
    raw: RawConfig,
    group: Option<Arc<GroupFn>>,
}

impl SqsSinkConfigBuilder {
    pub(super) fn new(queue_url: String, region: String) -> Self {
        Self {
            raw: RawConfig {
                queue_url: Some(queue_url),
                region: Some(region),
                ..RawConfig::default()
            },
            group: None,
        }
    }

    /// Sets where requests go.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.raw.endpoint = Some(endpoint.into());
        self
    }

    /// Sets the message group: constant, or with placeholders.
    pub fn message_group_id(mut self, template: impl Into<String>) -> Self {
        self.raw.message_group_id = Some(template.into());
        self.group = None;
        self
    }

    /// Sets the message group to what `group` makes of an envelope. An id that SQS
    /// refuses fails that delivery; an empty one means none on a standard queue.
    pub fn message_group_id_with(
        mut self,
        group: impl Fn(&Envelope) -> String + Send + Sync + 'static,
    ) -> Self {
        self.raw.message_group_id = None;
        self.group = Some(Arc::new(group));
        self
    }

    /// Sets the largest body in bytes that travels inside its message.
    pub fn inline_max_bytes(mut self, bytes: u64) -> Self {
        self.raw.inline_max_bytes = Some(bytes);
        self
    }

    /// Sets the largest message in bytes.
    pub fn max_message_bytes(mut self, bytes: u64) -> Self {
        self.raw.max_message_bytes = Some(bytes);
        self
    }

    /// Sets how long one delivery may take, in milliseconds.
    pub fn timeout_ms(mut self, millis: u64) -> Self {
        self.raw.timeout_ms = Some(millis);
        self
    }

    /// Sets static credentials.
    pub fn credentials(
        mut self,
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<String>,
    ) -> Self {
        self.raw.access_key_id = Some(access_key_id.into());
        self.raw.secret_access_key = Some(secret_access_key.into());
        self
    }

    /// Sets the session token of temporary credentials.
    pub fn session_token(mut self, token: impl Into<String>) -> Self {
        self.raw.session_token = Some(token.into());
        self
    }

    /// Sets the profile whose credentials are used.
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.raw.profile = Some(name.into());
        self
    }

    /// Sets the role to assume.
    pub fn assume_role(mut self, role_arn: impl Into<String>) -> Self {
        self.role().role_arn = Some(role_arn.into());
        self
    }

    /// Sets the external id that the owner of the assumed role demands.
    pub fn external_id(mut self, id: impl Into<String>) -> Self {
        self.role().external_id = Some(id.into());
        self
    }

    /// Sets the session's name of the assumed role.
    pub fn session_name(mut self, name: impl Into<String>) -> Self {
        self.role().session_name = Some(name.into());
        self
    }

    /// Sets whether deliveries are sent in batches.
    pub fn batch(mut self, batch: bool) -> Self {
        self.raw.batch = Some(batch);
        self
    }

    /// Sets how long a batch waits to fill, in milliseconds.
    pub fn batch_linger_ms(mut self, millis: u64) -> Self {
        self.raw.batch_linger_ms = Some(millis);
        self
    }

    /// Sets the most messages in a batch.
    pub fn batch_max_entries(mut self, entries: u64) -> Self {
        self.raw.batch_max_entries = Some(entries);
        self
    }

    /// Sets the most bytes in a batch.
    pub fn batch_max_bytes(mut self, bytes: u64) -> Self {
        self.raw.batch_max_bytes = Some(bytes);
        self
    }

    /// Sets the most messages that wait for the queue.
    pub fn batch_queue_max(mut self, messages: u64) -> Self {
        self.raw.batch_queue_max = Some(messages);
        self
    }

    /// Sets the most bytes that wait for the queue.
    pub fn batch_queue_max_bytes(mut self, bytes: u64) -> Self {
        self.raw.batch_queue_max_bytes = Some(bytes);
        self
    }

    /// Sets the most messages of one tenant that wait for the queue.
    pub fn batch_queue_tenant_max(mut self, messages: u64) -> Self {
        self.raw.batch_queue_tenant_max = Some(messages);
        self
    }

    /// Sets the most batches under way at once.
    pub fn batch_max_inflight(mut self, batches: u64) -> Self {
        self.raw.batch_max_inflight = Some(batches);
        self
    }

    /// Sets the proxy that every request goes through.
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.http().proxy = Some(url.into());
        self
    }

    /// Sets the most idle connections kept for a host.
    pub fn pool_max_idle_per_host(mut self, connections: u64) -> Self {
        self.http().pool_max_idle_per_host = Some(connections);
        self
    }

    /// Sets how long an idle connection is kept, in milliseconds.
    pub fn pool_idle_timeout_ms(mut self, millis: u64) -> Self {
        self.http().pool_idle_timeout_ms = Some(millis);
        self
    }

    /// Sets the PEM files of root certificates to trust beside the system's.
    pub fn root_certificates(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.http().root_certificates = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Checks the whole. Asks neither network nor files.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with the key that the option has in a file.
    pub fn build(self, services: &HostServices) -> Result<SqsSinkConfig, Problems> {
        validate(self.raw, self.group, services, Problems::new())
    }

    fn role(&mut self) -> &mut RawAssumeRole {
        self.raw.assume_role.get_or_insert_default()
    }

    fn http(&mut self) -> &mut RawHttp {
        self.raw.http.get_or_insert_default()
    }
}

impl fmt::Debug for SqsSinkConfigBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing is checked yet: any text may hold a secret in the wrong place.
        f.debug_struct("SqsSinkConfigBuilder")
            .finish_non_exhaustive()
    }
}
