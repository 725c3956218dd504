//! Who may call.

use std::fmt;
use std::time::SystemTime;

/// An access key that the server knows, with what a caller must hold beside it.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) session_token: Option<String>,
    pub(crate) expires_at: Option<SystemTime>,
}

impl Credentials {
    /// A long-term key: requests signed with it must not carry a session token.
    #[must_use]
    pub fn new(access_key: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            access_key: access_key.into(),
            secret: secret.into(),
            session_token: None,
            expires_at: None,
        }
    }

    /// Makes the key a temporary one, whose requests must carry this token.
    #[must_use]
    pub fn with_session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// The time on the server's clock from which on the key is answered with an expired token.
    #[must_use]
    pub const fn expiring_at(mut self, time: SystemTime) -> Self {
        self.expires_at = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .field("secret", &"<redacted>")
            .field(
                "session_token",
                &self.session_token.as_ref().map(|_| "<redacted>"),
            )
            .field("expires_at", &self.expires_at)
            .finish()
    }
}
