//! The operations that the server knows.

use std::fmt;

/// An operation of the service, as `x-amz-target` names it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// `ChangeMessageVisibility`.
    ChangeMessageVisibility,
    /// `ChangeMessageVisibilityBatch`.
    ChangeMessageVisibilityBatch,
    /// `CreateQueue`.
    CreateQueue,
    /// `DeleteMessage`.
    DeleteMessage,
    /// `DeleteMessageBatch`.
    DeleteMessageBatch,
    /// `DeleteQueue`.
    DeleteQueue,
    /// `GetQueueAttributes`.
    GetQueueAttributes,
    /// `GetQueueUrl`.
    GetQueueUrl,
    /// `ListQueues`.
    ListQueues,
    /// `PurgeQueue`.
    PurgeQueue,
    /// `ReceiveMessage`.
    ReceiveMessage,
    /// `SendMessage`.
    SendMessage,
    /// `SendMessageBatch`.
    SendMessageBatch,
    /// `SetQueueAttributes`.
    SetQueueAttributes,
}

impl Operation {
    /// Every operation, by name.
    pub const ALL: &'static [Self] = &[
        Self::ChangeMessageVisibility,
        Self::ChangeMessageVisibilityBatch,
        Self::CreateQueue,
        Self::DeleteMessage,
        Self::DeleteMessageBatch,
        Self::DeleteQueue,
        Self::GetQueueAttributes,
        Self::GetQueueUrl,
        Self::ListQueues,
        Self::PurgeQueue,
        Self::ReceiveMessage,
        Self::SendMessage,
        Self::SendMessageBatch,
        Self::SetQueueAttributes,
    ];

    /// The name that the service gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChangeMessageVisibility => "ChangeMessageVisibility",
            Self::ChangeMessageVisibilityBatch => "ChangeMessageVisibilityBatch",
            Self::CreateQueue => "CreateQueue",
            Self::DeleteMessage => "DeleteMessage",
            Self::DeleteMessageBatch => "DeleteMessageBatch",
            Self::DeleteQueue => "DeleteQueue",
            Self::GetQueueAttributes => "GetQueueAttributes",
            Self::GetQueueUrl => "GetQueueUrl",
            Self::ListQueues => "ListQueues",
            Self::PurgeQueue => "PurgeQueue",
            Self::ReceiveMessage => "ReceiveMessage",
            Self::SendMessage => "SendMessage",
            Self::SendMessageBatch => "SendMessageBatch",
            Self::SetQueueAttributes => "SetQueueAttributes",
        }
    }

    /// Reads the value of `x-amz-target`.
    pub(crate) fn from_target(target: &str) -> Option<Self> {
        let name = target.strip_prefix("AmazonSQS.")?;
        Self::ALL
            .iter()
            .copied()
            .find(|operation| operation.name() == name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_service_and_the_operation_in_its_own_letter_case() {
        for operation in Operation::ALL {
            let target = format!("AmazonSQS.{operation}");
            assert_eq!(Operation::from_target(&target), Some(*operation));
        }
        for other in [
            "SendMessage",
            "AmazonSQS.sendmessage",
            "AmazonSNS.Publish",
            "",
        ] {
            assert_eq!(Operation::from_target(other), None, "{other}");
        }
    }
}
