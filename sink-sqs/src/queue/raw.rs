//! The options as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{RawAssumeRole, RawHttp};

// The comments below are the options' reference: they become the descriptions of
// the JSON schema.

/// Consumes an Amazon SQS queue, standard or FIFO.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SqsQueueOptions")]
pub(crate) struct RawQueue {
    /// The queue's URL, or its name, required. A name is resolved when the queue is opened. One that
    /// ends in `.fifo` is a FIFO queue's.
    pub(crate) queue: Option<String>,
    /// The queue's region, such as `us-east-1`, required. It has to fit the host of
    /// `queue` and of `endpoint` where that is a host of the service.
    pub(crate) region: Option<String>,
    /// Where requests go: scheme, host and port. Default: those of `queue` where it is a
    /// URL, else the region's own. Set it for an emulator or a VPC endpoint.
    pub(crate) endpoint: Option<String>,
    /// How long a receive waits for a message, in milliseconds; the service counts whole
    /// seconds, and a fraction is rounded up. 0 to 20000, default 20000; 0 asks a part of
    /// the service's servers only, and can miss messages.
    #[schemars(range(min = 0, max = 20_000))]
    pub(crate) wait_ms: Option<u64>,
    /// How long a received message is hidden from others unless that is extended, in
    /// milliseconds; the service counts whole seconds, and a fraction is rounded up. 1000
    /// to 43200000, default the queue's own, read once when it is opened.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    pub(crate) visibility_ms: Option<u64>,
    /// Whether deletes and changes of visibility are gathered into calls of up to ten.
    /// Default false: each settlement is a call of its own.
    pub(crate) batch_settlement: Option<bool>,
    /// How long a request may take in milliseconds, from connecting to the last byte of
    /// the answer; a receive has its waiting time and 10 seconds. 1 to 300000, default
    /// 5000.
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
    /// How connections are made.
    pub(crate) http: Option<RawHttp>,
}
