//! A queue described in Rust.

use std::fmt;
use std::time::Duration;

use dispatch_api::{HostServices, Problems};

use super::SqsQueue;
use super::config::validate;
use super::raw::RawQueue;
use crate::config::{RawAssumeRole, RawHttp};

/// Collects what an [`SqsQueue`] is made of. Every option has the range and default that it
/// has in a configuration file, see [`SqsQueue::options_schema`]; `wait` and `visibility` are
/// called `wait_ms` and `visibility_ms` there.
#[derive(Clone)]
#[must_use]
pub struct SqsQueueBuilder {
    raw: RawQueue,
}

impl SqsQueueBuilder {
    pub(super) fn new(queue: String, region: String) -> Self {
        Self {
            raw: RawQueue {
                queue: Some(queue),
                region: Some(region),
                ..RawQueue::default()
            },
        }
    }

    /// Sets where requests go.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.raw.endpoint = Some(endpoint.into());
        self
    }

    /// Sets how long a receive waits for a message: up to 20 seconds, a fraction rounded up.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.raw.wait_ms = Some(millis(wait));
        self
    }

    /// Sets how long a received message is hidden from others unless that is extended: 1
    /// second to 12 hours, a fraction rounded up.
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.raw.visibility_ms = Some(millis(visibility));
        self
    }

    /// Sets whether deletes and changes of visibility are gathered into calls of up to ten.
    pub fn batch_settlement(mut self, batch: bool) -> Self {
        self.raw.batch_settlement = Some(batch);
        self
    }

    /// Sets how long a request other than a receive may take, in milliseconds.
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

    /// Checks the whole and reads the configured certificates. Needs no network.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with the key that the option has in a file.
    pub fn build(self, services: &HostServices) -> Result<SqsQueue, Problems> {
        SqsQueue::new(validate(self.raw, Problems::new())?, services)
    }

    fn role(&mut self) -> &mut RawAssumeRole {
        self.raw.assume_role.get_or_insert_default()
    }

    fn http(&mut self) -> &mut RawHttp {
        self.raw.http.get_or_insert_default()
    }
}

/// Milliseconds, rounded up, so that a duration below one does not become none.
fn millis(duration: Duration) -> u64 {
    let up = u128::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    u64::try_from(duration.as_millis() + up).unwrap_or(u64::MAX)
}

impl fmt::Debug for SqsQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing is checked yet: any text may hold a secret in the wrong place.
        f.debug_struct("SqsQueueBuilder").finish_non_exhaustive()
    }
}
