//! The golden table: what every documented code of the service means for a delivery.

use super::Kind::{self, Config, Permanent, Throttled, Transient};

/// One code of the service.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name that errors carry.
    pub(crate) code: &'static str,
    /// Further names, normalised.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) kind: Kind,
    /// What it means and what to do, for the text of an error.
    pub(crate) hint: &'static str,
}

const fn row(
    code: &'static str,
    aliases: &'static [&'static str],
    kind: Kind,
    hint: &'static str,
) -> Row {
    Row {
        code,
        aliases,
        kind,
        hint,
    }
}

const SINKS_FAULT: &str =
    "the request should never have been sent like this: report it as a fault of the sink";
const OTHER_OPERATION: &str = "no answer to a send: something else answers at this endpoint";

/// Codes that are neither listed as permanent, as a fault of the configuration nor
/// as a throttle are transient: a retry is bounded by the policy, a lost message is not.
#[rustfmt::skip]
pub(crate) const TABLE: &[Row] = &[
    // The message itself is refused.
    row("InvalidMessageContents", &[], Permanent,
        "the body holds characters that the service refuses"),
    row("InvalidParameterValue", &[], Permanent,
        "the service refuses a value: compare max_message_bytes with the queue's MaximumMessageSize, and message_group_id with the queue's type"),
    row("MissingRequiredParameter", &["MissingParameter"], Permanent,
        "the service misses a value: a FIFO queue needs a URL that ends in .fifo"),
    row("InvalidAttributeName", &[], Permanent,
        "the service refuses the name of an attribute"),
    row("InvalidAttributeValue", &[], Permanent,
        "the service refuses the value of an attribute"),

    // The configuration or the credentials are refused.
    row("QueueDoesNotExist", &["NonExistentQueue"], Config,
        "create the queue or correct queue_url; the sink never creates one"),
    row("AccessDenied", &[], Config,
        "allow these credentials sqs:SendMessage on the queue, or correct queue_url: a missing queue can look like this"),
    row("UnrecognizedClient", &["InvalidClientTokenId"], Config,
        "correct access_key_id and session_token, or the environment they come from: the service does not know them"),
    row("InvalidAccessKeyId", &[], Config,
        "correct access_key_id, or the environment it comes from: the service does not know it"),
    row("InvalidSignature", &["SignatureDoesNotMatch"], Config,
        "correct secret_access_key and region, and set the host's clock: the signature does not match or is not of this time"),
    // The service's own word for a request without credentials, and an emulator's.
    row("IncompleteSignature", &["MissingAuthenticationToken"], Config,
        "the service finds no complete signature: something between here and there removes or alters the authorization header"),

    // The service asks for a pause.
    row("Throttling", &[
            "Throttled", "TooManyRequests", "ProvisionedThroughputExceeded",
            "TransactionInProgress", "RequestLimitExceeded", "BandwidthLimitExceeded",
            "LimitExceeded", "SlowDown", "PriorRequestNotComplete", "EC2Throttled",
        ], Throttled,
        "the rate of requests is over what the service allows"),
    row("RequestThrottled", &["QueueThrottledError"], Throttled,
        "the rate of requests is over what the service allows"),
    row("ServiceUnavailable", &[], Throttled,
        "the service is not available now"),
    row("KmsThrottled", &["KMS.Throttling", "KMS.Throttled", "KmsThrottling"], Throttled,
        "the key service limits the queue's encryption"),

    // Time or an operator may heal it.
    row("ExpiredToken", &[], Transient,
        "the session token is past its end: fresh credentials are needed"),
    row("KmsAccessDenied", &["KMS.AccessDenied"], Transient,
        "allow these credentials the use of the queue's encryption key"),
    row("KmsDisabled", &["KMS.Disabled"], Transient,
        "enable the queue's encryption key"),
    row("KmsInvalidKeyUsage", &["KMS.InvalidKeyUsage"], Transient,
        "give the queue an encryption key that is meant for encryption"),
    row("KmsInvalidState", &["KMS.InvalidState"], Transient,
        "the queue's encryption key is in a state that forbids its use"),
    row("KmsNotFound", &["KMS.NotFound"], Transient,
        "the queue's encryption key does not exist"),
    row("KmsOptInRequired", &["KMS.OptInRequired"], Transient,
        "the account is not subscribed to the key service"),
    row("OverLimit", &[], Transient,
        "the account or the queue is at a limit"),
    row("InvalidAddress", &[], Transient,
        "the queue belongs to another region or host: compare queue_url, region and endpoint"),
    row("InvalidSecurity", &[], Transient,
        "the service demands https: correct endpoint or queue_url"),
    row("UnsupportedOperation", &[], Transient,
        "the queue does not support this request"),
    row("InternalFailure", &["InternalError", "InternalServerError"], Transient,
        "the service failed"),
    row("RequestTimeout", &[], Transient,
        "the service gave up waiting for the request"),
    row("RequestExpired", &[], Transient,
        "the request came too late: set the host's clock"),
    row("RequestTimeTooSkewed", &[], Transient,
        "the request is not of this time: set the host's clock"),
    row("AuthFailure", &[], Transient,
        "the service could not verify the credentials"),
    row("NotAuthorized", &[], Transient,
        "the service does not authorize the request"),
    row("OptInRequired", &[], Transient,
        "the account is not subscribed to the service"),
    row("ValidationError", &[], Transient,
        "the request does not meet a constraint of the service"),
    row("RequestEntityTooLarge", &[], Transient,
        "something before the queue takes no request of this size: lower max_message_bytes"),

    // Only a fault of this crate can cause these.
    row("UnknownOperation", &["InvalidAction"], Transient, OTHER_OPERATION),
    row("Serialization", &["MalformedInput"], Transient, SINKS_FAULT),
    row("BatchRequestTooLong", &[], Transient, SINKS_FAULT),
    row("BatchEntryIdsNotDistinct", &[], Transient, SINKS_FAULT),
    row("EmptyBatchRequest", &[], Transient, SINKS_FAULT),
    row("InvalidBatchEntryId", &[], Transient, SINKS_FAULT),
    row("TooManyEntriesInBatchRequest", &[], Transient, SINKS_FAULT),

    // Codes of other operations.
    row("InvalidIdFormat", &[], Transient, OTHER_OPERATION),
    row("ReceiptHandleIsInvalid", &[], Transient, OTHER_OPERATION),
    row("MessageNotInflight", &[], Transient, OTHER_OPERATION),
    row("QueueNameExists", &["QueueAlreadyExists"], Transient, OTHER_OPERATION),
    row("QueueDeletedRecently", &[], Transient, OTHER_OPERATION),
    row("PurgeQueueInProgress", &[], Transient, OTHER_OPERATION),
    row("ResourceNotFound", &[], Transient, OTHER_OPERATION),
];
