//! What the service answers when it refuses.

use serde_json::{Value, json};

/// An error code of the service, with the status and the spellings that belong to it.
///
/// The table follows the service's API model (the shapes) and what it answers outside that model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// No credentials, or a policy that refuses: 403.
    AccessDenied,
    /// Two entries of a batch share an `Id`: 400.
    BatchEntryIdsNotDistinct,
    /// The entries of a batch are too large together: 400.
    BatchRequestTooLong,
    /// A batch without entries: 400.
    EmptyBatchRequest,
    /// A session token past its end: 403.
    ExpiredToken,
    /// An `authorization` header that cannot be read: 400.
    IncompleteSignature,
    /// The service's own fault: 500.
    InternalFailure,
    /// A queue URL that is not of this endpoint: 404.
    InvalidAddress,
    /// An attribute that does not exist or cannot be set: 400.
    InvalidAttributeName,
    /// A queue attribute's value out of its range: 400.
    InvalidAttributeValue,
    /// An `Id` of a batch entry outside the allowed characters or length: 400.
    InvalidBatchEntryId,
    /// The old name for a bad receipt handle: 400.
    InvalidIdFormat,
    /// A character in a body that the service does not take: 400.
    InvalidMessageContents,
    /// A parameter out of its range or not allowed here: 400.
    InvalidParameterValue,
    /// A request that is not secure enough: 403.
    InvalidSecurity,
    /// A signature that does not match, or too old, or too young: 403.
    InvalidSignature,
    /// The caller may not use the queue's key: 400.
    KmsAccessDenied,
    /// The queue's key is disabled: 400.
    KmsDisabled,
    /// The queue's key is not made for this: 400.
    KmsInvalidKeyUsage,
    /// The queue's key is in a state that does not allow it: 400.
    KmsInvalidState,
    /// The queue's key does not exist: 400.
    KmsNotFound,
    /// The account has not signed up for the key service: 403.
    KmsOptInRequired,
    /// The key service throttles: 400.
    KmsThrottled,
    /// The message is not in flight: 400.
    MessageNotInflight,
    /// A required parameter is missing or empty: 400.
    MissingRequiredParameter,
    /// Too many messages in flight: 403.
    OverLimit,
    /// The queue was purged less than a minute ago: 403.
    PurgeQueueInProgress,
    /// A queue of this name was deleted less than a minute ago: 400.
    QueueDeletedRecently,
    /// There is no such queue: 400.
    QueueDoesNotExist,
    /// A queue of this name exists with other attributes: 400.
    QueueNameExists,
    /// A receipt handle that this queue never gave: 404.
    ReceiptHandleIsInvalid,
    /// The request body is larger than the service reads: 413.
    RequestEntityTooLarge,
    /// Too many requests, in the service's own name for it: 403.
    RequestThrottled,
    /// The source of a message move does not exist: 404.
    ResourceNotFound,
    /// The body is not JSON, not an object, or has a member of a wrong type: 400.
    Serialization,
    /// The service is not available: 503.
    ServiceUnavailable,
    /// Too many requests, in the framework's name for it: 400.
    Throttling,
    /// More than ten entries in a batch: 400.
    TooManyEntriesInBatchRequest,
    /// An unknown operation: 400.
    UnknownOperation,
    /// An access key or a session token that nobody knows: 403.
    UnrecognizedClient,
    /// Something that the service's model names but the service does not do: 400.
    UnsupportedOperation,
}

/// One row of the table behind [`ErrorCode`].
struct Row {
    namespace: &'static str,
    shape: &'static str,
    status: u16,
    legacy: &'static str,
    receiver: bool,
}

const MODEL: &str = "com.amazonaws.sqs";
const FRAMEWORK: &str = "com.amazon.coral.service";
const AVAILABILITY: &str = "com.amazon.coral.availability";

impl ErrorCode {
    /// The name as it stands behind the `#` of `__type`, such as `QueueDoesNotExist` or
    /// `InvalidParameterValueException`.
    #[must_use]
    pub fn shape(self) -> &'static str {
        self.row().shape
    }

    /// The HTTP status that goes with the code.
    #[must_use]
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// The older code that `x-amzn-query-error` carries, such as `AWS.SimpleQueueService.NonExistentQueue`.
    #[must_use]
    pub fn legacy(self) -> &'static str {
        self.row().legacy
    }

    /// The code as a `Failed` entry of a batch shows it: without namespace and without `Exception`.
    #[must_use]
    pub fn entry_code(self) -> &'static str {
        let shape = self.row().shape;
        shape.strip_suffix("Exception").unwrap_or(shape)
    }

    pub(crate) fn type_name(self) -> String {
        let row = self.row();
        format!("{}#{}", row.namespace, row.shape)
    }

    /// The value of `x-amzn-query-error`. Throttles say `Sender` like every other modelled error.
    pub(crate) fn query_error(self) -> String {
        let row = self.row();
        let fault = if row.receiver { "Receiver" } else { "Sender" };
        format!("{};{fault}", row.legacy)
    }

    fn row(self) -> Row {
        match self {
            Self::AccessDenied => framework("AccessDeniedException", 403, "AccessDenied"),
            Self::BatchEntryIdsNotDistinct => model(
                "BatchEntryIdsNotDistinct",
                400,
                "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            ),
            Self::BatchRequestTooLong => model(
                "BatchRequestTooLong",
                400,
                "AWS.SimpleQueueService.BatchRequestTooLong",
            ),
            Self::EmptyBatchRequest => model(
                "EmptyBatchRequest",
                400,
                "AWS.SimpleQueueService.EmptyBatchRequest",
            ),
            Self::ExpiredToken => framework("ExpiredTokenException", 403, "ExpiredToken"),
            Self::IncompleteSignature => {
                framework("IncompleteSignatureException", 400, "IncompleteSignature")
            }
            Self::InternalFailure => receiver("InternalFailure", 500, "InternalFailure"),
            Self::InvalidAddress => model("InvalidAddress", 404, "InvalidAddress"),
            Self::InvalidAttributeName => {
                model("InvalidAttributeName", 400, "InvalidAttributeName")
            }
            Self::InvalidAttributeValue => {
                model("InvalidAttributeValue", 400, "InvalidAttributeValue")
            }
            Self::InvalidBatchEntryId => model(
                "InvalidBatchEntryId",
                400,
                "AWS.SimpleQueueService.InvalidBatchEntryId",
            ),
            Self::InvalidIdFormat => model("InvalidIdFormat", 400, "InvalidIdFormat"),
            Self::InvalidMessageContents => {
                model("InvalidMessageContents", 400, "InvalidMessageContents")
            }
            Self::InvalidParameterValue => framework(
                "InvalidParameterValueException",
                400,
                "InvalidParameterValue",
            ),
            Self::InvalidSecurity => model("InvalidSecurity", 403, "InvalidSecurity"),
            Self::InvalidSignature => {
                framework("InvalidSignatureException", 403, "SignatureDoesNotMatch")
            }
            Self::KmsAccessDenied => model("KmsAccessDenied", 400, "KMS.AccessDeniedException"),
            Self::KmsDisabled => model("KmsDisabled", 400, "KMS.DisabledException"),
            Self::KmsInvalidKeyUsage => {
                model("KmsInvalidKeyUsage", 400, "KMS.InvalidKeyUsageException")
            }
            Self::KmsInvalidState => model("KmsInvalidState", 400, "KMS.InvalidStateException"),
            Self::KmsNotFound => model("KmsNotFound", 400, "KMS.NotFoundException"),
            Self::KmsOptInRequired => model("KmsOptInRequired", 403, "KMS.OptInRequired"),
            Self::KmsThrottled => model("KmsThrottled", 400, "KMS.ThrottlingException"),
            Self::MessageNotInflight => model(
                "MessageNotInflight",
                400,
                "AWS.SimpleQueueService.MessageNotInflight",
            ),
            Self::MissingRequiredParameter => {
                framework("MissingRequiredParameterException", 400, "MissingParameter")
            }
            Self::OverLimit => model("OverLimit", 403, "OverLimit"),
            Self::PurgeQueueInProgress => model(
                "PurgeQueueInProgress",
                403,
                "AWS.SimpleQueueService.PurgeQueueInProgress",
            ),
            Self::QueueDeletedRecently => model(
                "QueueDeletedRecently",
                400,
                "AWS.SimpleQueueService.QueueDeletedRecently",
            ),
            Self::QueueDoesNotExist => model(
                "QueueDoesNotExist",
                400,
                "AWS.SimpleQueueService.NonExistentQueue",
            ),
            Self::QueueNameExists => model("QueueNameExists", 400, "QueueAlreadyExists"),
            Self::ReceiptHandleIsInvalid => {
                model("ReceiptHandleIsInvalid", 404, "ReceiptHandleIsInvalid")
            }
            Self::RequestEntityTooLarge => framework(
                "RequestEntityTooLargeException",
                413,
                "RequestEntityTooLarge",
            ),
            Self::RequestThrottled => model("RequestThrottled", 403, "RequestThrottled"),
            Self::ResourceNotFound => model(
                "ResourceNotFoundException",
                404,
                "ResourceNotFoundException",
            ),
            Self::Serialization => framework("SerializationException", 400, "MalformedInput"),
            Self::ServiceUnavailable => receiver("ServiceUnavailable", 503, "ServiceUnavailable"),
            Self::Throttling => Row {
                namespace: AVAILABILITY,
                ..framework("ThrottlingException", 400, "ThrottlingException")
            },
            Self::TooManyEntriesInBatchRequest => model(
                "TooManyEntriesInBatchRequest",
                400,
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            ),
            Self::UnknownOperation => framework("UnknownOperationException", 400, "InvalidAction"),
            Self::UnrecognizedClient => {
                framework("UnrecognizedClientException", 403, "InvalidClientTokenId")
            }
            Self::UnsupportedOperation => model(
                "UnsupportedOperation",
                400,
                "AWS.SimpleQueueService.UnsupportedOperation",
            ),
        }
    }
}

const fn model(shape: &'static str, status: u16, legacy: &'static str) -> Row {
    Row {
        namespace: MODEL,
        shape,
        status,
        legacy,
        receiver: false,
    }
}

const fn framework(shape: &'static str, status: u16, legacy: &'static str) -> Row {
    Row {
        namespace: FRAMEWORK,
        ..model(shape, status, legacy)
    }
}

const fn receiver(shape: &'static str, status: u16, legacy: &'static str) -> Row {
    Row {
        receiver: true,
        ..framework(shape, status, legacy)
    }
}

/// A refusal by the service, as an answer carries it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}: {message}", .code.shape())]
pub struct ServiceError {
    code: ErrorCode,
    message: String,
}

impl ServiceError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The code to match on.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// The text for people. It is no contract, here or at the service.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn body(&self) -> Value {
        json!({ "__type": self.code.type_name(), "message": self.message })
    }
}

pub(crate) fn invalid_parameter(message: impl Into<String>) -> ServiceError {
    ServiceError::new(ErrorCode::InvalidParameterValue, message)
}

pub(crate) fn missing_parameter(name: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::MissingRequiredParameter,
        format!("the request must contain the parameter {name}"),
    )
}

pub(crate) fn queue_does_not_exist() -> ServiceError {
    ServiceError::new(
        ErrorCode::QueueDoesNotExist,
        "the specified queue does not exist",
    )
}
