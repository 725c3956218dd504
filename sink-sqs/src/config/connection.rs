//! Where requests go, over which connections, with whose keys.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::check::Check;
use super::raw::{RawAssumeRole, RawHttp};
use crate::credentials::Credentials;

/// What a client needs to know, whatever its requests are about.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(super) endpoint: Url,
    pub(super) region: String,
    pub(super) timeout: Duration,
    pub(super) credentials: Option<Credentials>,
    pub(super) profile: Option<String>,
    pub(super) assume_role: Option<AssumeRole>,
    pub(super) http: HttpConfig,
}

impl Connection {
    pub(crate) fn endpoint_url(&self) -> &Url {
        &self.endpoint
    }

    /// Where requests go, without a slash at the end.
    pub(crate) fn endpoint(&self) -> &str {
        self.endpoint.as_str().trim_end_matches('/')
    }

    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// How long a request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    pub(crate) fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    pub(crate) fn assume_role(&self) -> Option<&AssumeRole> {
        self.assume_role.as_ref()
    }

    pub(crate) fn http(&self) -> &HttpConfig {
        &self.http
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint())
            .field("region", &self.region)
            .field("timeout", &self.timeout)
            .field("credentials", &self.credentials)
            .field("profile", &self.profile)
            .field("assume_role", &self.assume_role)
            .field("http", &self.http)
            .finish()
    }
}

/// A role to assume.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AssumeRole {
    pub(crate) role_arn: String,
    pub(crate) external_id: Option<String>,
    pub(crate) session_name: String,
}

impl fmt::Debug for AssumeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An external id is an agreement between two parties, and nobody else's.
        f.debug_struct("AssumeRole")
            .field("role_arn", &self.role_arn)
            .field("session_name", &self.session_name)
            .finish_non_exhaustive()
    }
}

/// How connections are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpConfig {
    pub(crate) proxy: Option<Url>,
    pub(crate) pool_max_idle_per_host: usize,
    pub(crate) pool_idle_timeout: Duration,
    pub(crate) root_certificates: Vec<PathBuf>,
}

/// The options of a connection as they are written, less where it goes.
pub(crate) struct RawConnection {
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) assume_role: Option<RawAssumeRole>,
    pub(crate) http: Option<RawHttp>,
}

impl RawConnection {
    /// Checks everything that can be checked without a network or a file. `place` is where
    /// requests go and in which region; what is missing of it is among the problems.
    pub(crate) fn check(
        self,
        check: &mut Check,
        place: Option<(Url, String)>,
    ) -> Option<Connection> {
        let credentials = check.credentials(
            self.access_key_id,
            self.secret_access_key,
            self.session_token,
        );
        let profile = check.profile(self.profile);
        if profile.is_some() && credentials.is_some() {
            check.problems.add(
                "profile",
                "names other credentials beside access_key_id and secret_access_key: keep one",
            );
        }
        let assume_role = self.assume_role.and_then(|role| check.assume_role(role));
        let timeout = check.millis("timeout_ms", self.timeout_ms, 5_000, 1..=300_000);
        let http = check.http(self.http.unwrap_or_default());
        let (endpoint, region) = place?;
        Some(Connection {
            endpoint,
            region,
            timeout,
            credentials,
            profile,
            assume_role,
            http,
        })
    }
}
