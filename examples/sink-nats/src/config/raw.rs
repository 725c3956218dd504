//! The options as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Publishes messages to a NATS JetStream stream.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NatsSinkOptions")]
pub(crate) struct RawConfig {
    /// The servers, tried in this order, required: `host`, `host:port` (4222 is the
    /// default), `nats://host:port` or, with TLS, `tls://host:port`.
    pub(crate) servers: Option<Vec<String>>,
    /// The subject, required: constant, such as `hooks.acme`, or with the placeholders
    /// `{tenant_id}` and `{source_id}` (`{{` and `}}` stand for braces), each a whole
    /// token, such as `hooks.{tenant_id}.{source_id}`. In what they stand for, every
    /// character that has a meaning in subjects is written as `%` and hex digits.
    pub(crate) subject: Option<String>,
    /// The largest body in bytes that travels inside its message; a larger one goes
    /// by claim. 1 and more, default 65536. A message holds its body in base64.
    #[schemars(range(min = 1))]
    pub(crate) inline_max_bytes: Option<u64>,
    /// The largest message in bytes, headers and body together; a larger one is refused
    /// without a request. 1 and more, default the server's `max_payload`, which also
    /// bounds a larger value.
    #[schemars(range(min = 1))]
    pub(crate) max_message_bytes: Option<u64>,
    /// The stream's `duplicate_window` in milliseconds, for the guarantees to promise: it is
    /// the stream's to set, and not asked for. 0: messages carry no `Nats-Msg-Id`, and no
    /// repeat is recognised. 0 to 31536000000 (a year), default unknown: messages carry the
    /// id, and nothing is promised.
    #[schemars(range(max = 31_536_000_000_u64))]
    pub(crate) duplicate_window_ms: Option<u64>,
    /// How long one delivery may take in milliseconds, from connecting to the stream's
    /// acknowledgement. 1 to 300000, default 5000.
    #[schemars(range(min = 1, max = 300_000))]
    pub(crate) timeout_ms: Option<u64>,
    /// How long connecting to one server may take in milliseconds. 1 to `timeout_ms`,
    /// default 2000 or `timeout_ms`, if that is less.
    #[schemars(range(min = 1, max = 300_000))]
    pub(crate) connect_timeout_ms: Option<u64>,
    /// A token. Not beside `user` or `credentials_file`.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) token: Option<String>,
    /// A user's name. Needs `password`.
    pub(crate) user: Option<String>,
    /// The user's password.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) password: Option<String>,
    /// The path of a credentials file (a user's JWT and seed). It is read at every
    /// connection, so that a new one is found.
    pub(crate) credentials_file: Option<String>,
    /// How connections are encrypted.
    pub(crate) tls: Option<RawTls>,
}

/// How connections are encrypted.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NatsTlsOptions")]
pub(crate) struct RawTls {
    /// PEM files of root certificates to trust instead of the system's. Where there are
    /// any, every connection is encrypted. Default none.
    pub(crate) root_certificates: Option<Vec<String>>,
}
