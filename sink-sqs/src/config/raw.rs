//! The options as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Sends messages to an Amazon SQS queue, standard or FIFO.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SqsSinkOptions")]
pub(crate) struct RawConfig {
    /// The queue's URL, required. A name that ends in `.fifo` is a FIFO queue's.
    pub(crate) queue_url: Option<String>,
    /// The queue's region, such as `us-east-1`, required. It has to fit the host of
    /// `queue_url` and of `endpoint` where that is a host of the service.
    pub(crate) region: Option<String>,
    /// Where requests go: scheme, host and port. Default: those of `queue_url`. Set
    /// it for an emulator or a VPC endpoint.
    pub(crate) endpoint: Option<String>,
    /// The message group: constant, or with the placeholders `{tenant_id}` and
    /// `{source_id}` (`{{` and `}}` stand for braces), 1 to 128 letters, digits and
    /// ASCII punctuation marks. Default: `{tenant_id}/{source_id}` on a FIFO queue,
    /// none on a standard queue, where a group makes it a fair queue.
    pub(crate) message_group_id: Option<String>,
    /// The largest body in bytes that travels inside its message; a larger one goes
    /// by claim. 1 and more, default 65536. A message holds its body in base64, so
    /// about three quarters of `max_message_bytes` is the most that fits.
    #[schemars(range(min = 1))]
    pub(crate) inline_max_bytes: Option<u64>,
    /// The largest message in bytes, body and attributes together; a larger one is
    /// refused without a request. 1 to 1048576, default 1048576. Lower it to the
    /// queue's own `MaximumMessageSize`.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(crate) max_message_bytes: Option<u64>,
    /// How long one delivery may take in milliseconds, from connecting to the last
    /// byte of the answer. 1 to 300000, default 5000.
    #[schemars(range(min = 1, max = 300_000))]
    pub(crate) timeout_ms: Option<u64>,
    /// The access key's id. Default: `AWS_ACCESS_KEY_ID` of the environment.
    pub(crate) access_key_id: Option<String>,
    /// The secret access key. Default: `AWS_SECRET_ACCESS_KEY` of the environment.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) secret_access_key: Option<String>,
    /// The session token of temporary credentials. Default: `AWS_SESSION_TOKEN` of
    /// the environment, where the keys come from there too.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) session_token: Option<String>,
    /// The profile of the shared configuration files whose credentials are used when
    /// neither the options nor the environment hold keys. No other source is tried
    /// after it. Default: the whole chain, with the profile that `AWS_PROFILE` names,
    /// else `default`. Needs the cargo feature `default-chain`.
    pub(crate) profile: Option<String>,
    /// A role to assume, with the credentials found as without this option. Needs the
    /// cargo feature `default-chain`.
    pub(crate) assume_role: Option<RawAssumeRole>,
    /// Whether deliveries are sent in batches. Default true.
    pub(crate) batch: Option<bool>,
    /// How long a batch waits to fill, in milliseconds. 1 to 60000, default 20.
    #[schemars(range(min = 1, max = 60_000))]
    pub(crate) batch_linger_ms: Option<u64>,
    /// The most messages in a batch. 1 to 10, default 10.
    #[schemars(range(min = 1, max = 10))]
    pub(crate) batch_max_entries: Option<u64>,
    /// The most bytes in a batch, as the service counts them. 1 to 1048576, default
    /// 262144.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(crate) batch_max_bytes: Option<u64>,
    /// The most messages that wait for the queue. 1 and more, default 4096.
    #[schemars(range(min = 1))]
    pub(crate) batch_queue_max: Option<u64>,
    /// The most bytes that wait for the queue. 1 and more, default 134217728 (128 MiB).
    #[schemars(range(min = 1))]
    pub(crate) batch_queue_max_bytes: Option<u64>,
    /// The most messages of one tenant that wait for the queue. 1 and more, default
    /// 1024.
    #[schemars(range(min = 1))]
    pub(crate) batch_queue_tenant_max: Option<u64>,
    /// The most batches under way at once. 1 to 1024, default the host's
    /// `sink_concurrency` (8).
    #[schemars(range(min = 1, max = 1_024))]
    pub(crate) batch_max_inflight: Option<u64>,
    /// How connections are made.
    pub(crate) http: Option<RawHttp>,
}

/// A role to assume.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SqsAssumeRoleOptions")]
pub(crate) struct RawAssumeRole {
    /// The role's ARN, such as `arn:aws:iam::123456789012:role/sender`, required.
    pub(crate) role_arn: Option<String>,
    /// The external id that the role's owner demands, 2 to 1224 letters, digits and
    /// `_+=,.@:/-`. Default none.
    #[schemars(extend("writeOnly" = true))]
    pub(crate) external_id: Option<String>,
    /// The session's name, which the owner's logs show, 2 to 64 letters, digits and
    /// `_+=,.@-`. Default `sink-sqs`.
    pub(crate) session_name: Option<String>,
}

/// How connections are made.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SqsHttpOptions")]
pub(crate) struct RawHttp {
    /// The proxy that every request goes through, such as
    /// `http://proxy.internal:3128`. Default none; the environment's proxy settings
    /// are not read.
    pub(crate) proxy: Option<String>,
    /// The most idle connections kept for a host. 0 to 1024, default 64.
    #[schemars(range(min = 0, max = 1_024))]
    pub(crate) pool_max_idle_per_host: Option<u64>,
    /// How long an idle connection is kept, in milliseconds: less than the service
    /// keeps it. 1 to 60000, default 20000.
    #[schemars(range(min = 1, max = 60_000))]
    pub(crate) pool_idle_timeout_ms: Option<u64>,
    /// PEM files of root certificates to trust beside the system's. Default none.
    pub(crate) root_certificates: Option<Vec<String>>,
}
