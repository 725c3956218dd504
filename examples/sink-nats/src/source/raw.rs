//! The options as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::RawTls;

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Consumes a NATS JetStream stream through a durable pull consumer.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NatsSourceOptions")]
pub(crate) struct RawSource {
    /// The servers, tried in this order, required: `host`, `host:port` (4222 is the
    /// default), `nats://host:port` or, with TLS, `tls://host:port`.
    pub(crate) servers: Option<Vec<String>>,
    /// The stream, required. It has to exist: none is ever created.
    pub(crate) stream: Option<String>,
    /// The durable consumer's name, required. One that exists is used as it is; else it is
    /// created when the source is opened. Subscribers of the same name share its messages.
    pub(crate) durable: Option<String>,
    /// The only subject to consume, with `*` and `>` as wildcards. Default: of a consumer
    /// that exists its own, else every subject of the stream.
    pub(crate) filter_subject: Option<String>,
    /// How long a received message is held for its receiver unless that is extended, in
    /// milliseconds. 100 to 86400000 (a day), default that of a consumer that exists, else
    /// 30000.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(crate) ack_wait_ms: Option<u64>,
    /// The most messages that are out unsettled, over all subscribers of the consumer. 1 and
    /// more, default that of a consumer that exists, else 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_ack_pending: Option<u64>,
    /// How long a receive waits for a message, in milliseconds. 0 to 60000, default 20000.
    #[schemars(range(min = 0, max = 60_000))]
    pub(crate) wait_ms: Option<u64>,
    /// How long a request may take in milliseconds, from connecting to its answer; a receive
    /// has its waiting time in addition. 1 to 300000, default 5000.
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
