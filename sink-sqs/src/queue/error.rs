//! Why a queue cannot be consumed as it is registered.

use dispatch_api::SourceError;

/// Why a queue cannot be consumed as it is registered: something that an operator has to
/// change. It is the [source](std::error::Error::source) of the [`SourceError`] that opening
/// the subscription gives, whose class is `Config`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SqsError {
    /// Half a redrive policy: `max_attempts` or `dead_letter` stands alone.
    #[error(
        "{missing} is missing: max_attempts and dead_letter together are the redrive policy of \
         {queue}, so set both, or neither"
    )]
    IncompleteRedrive {
        /// The queue.
        queue: String,
        /// The half that is missing.
        missing: &'static str,
    },
    /// `max_attempts` is outside of what a redrive policy takes.
    #[error("max_attempts of {queue} is {max_attempts}: expected 1 to 1000")]
    MaxAttemptsOutOfRange {
        /// The queue.
        queue: String,
        /// What was asked for.
        max_attempts: u32,
    },
    /// `dead_letter` is neither a name, nor a URL, nor an ARN of a queue.
    #[error("dead_letter of {queue} is no queue's name, URL or ARN: {why}")]
    InvalidDeadLetter {
        /// The queue.
        queue: String,
        /// What is wrong with it.
        why: String,
    },
    /// The dead-letter queue does not exist, or these credentials cannot see it.
    #[error(
        "the dead-letter queue {dead_letter} of {queue} does not exist, or these credentials \
         cannot see it: create it, or correct dead_letter"
    )]
    DeadLetterMissing {
        /// The queue.
        queue: String,
        /// The dead-letter queue.
        dead_letter: String,
    },
    /// The queue would be its own dead-letter queue.
    #[error("dead_letter of {queue} is {queue} itself: name another queue")]
    DeadLetterIsSource {
        /// The queue.
        queue: String,
    },
    /// One of the two is a FIFO queue, and the other is not.
    #[error(
        "the dead-letter queue {dead_letter} of {queue} has the wrong type: expected {expected} \
         queue, as {queue} is one"
    )]
    DeadLetterType {
        /// The queue.
        queue: String,
        /// The dead-letter queue.
        dead_letter: String,
        /// The type that it has to have, with its article.
        expected: &'static str,
    },
    /// The dead-letter queue belongs to another account or region.
    #[error(
        "the dead-letter queue {dead_letter} of {queue} belongs to another account or region: \
         name one of the same"
    )]
    DeadLetterElsewhere {
        /// The queue.
        queue: String,
        /// The dead-letter queue.
        dead_letter: String,
    },
    /// The queue does not hide what it delivers, and no visibility is configured.
    #[error(
        "{queue} has a VisibilityTimeout of 0, so that a delivery would be everybody's: set \
         visibility_ms, or change the queue"
    )]
    NoVisibility {
        /// The queue.
        queue: String,
    },
    /// The plan names a sink for copies, and the queue delays retries itself.
    #[error("{queue} delays retries itself, so it takes no out_retry: settle with retry_after")]
    OutRetry {
        /// The queue.
        queue: String,
    },
}

impl SqsError {
    /// The stable name of the fault, as the code of the [`SourceError`].
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::IncompleteRedrive { .. } => "IncompleteRedrive",
            Self::MaxAttemptsOutOfRange { .. } => "MaxAttemptsOutOfRange",
            Self::InvalidDeadLetter { .. } => "InvalidDeadLetter",
            Self::DeadLetterMissing { .. } => "DeadLetterMissing",
            Self::DeadLetterIsSource { .. } => "DeadLetterIsSource",
            Self::DeadLetterType { .. } => "DeadLetterType",
            Self::DeadLetterElsewhere { .. } => "DeadLetterElsewhere",
            Self::NoVisibility { .. } => "NoVisibility",
            Self::OutRetry { .. } => "OutRetry",
        }
    }
}

impl From<SqsError> for SourceError {
    fn from(error: SqsError) -> Self {
        Self::config(
            error.code(),
            "the queue cannot be consumed as it is registered",
        )
        .with_source(error)
    }
}
