//! What each mode of the queue as a source declares.

use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{ErrorClass, Outcome};
use sink_testkit::conformance::source::{
    Operation, SourceAdapter, SourceCapability, SourceFaultKind, SourceFixture, SourceProfile,
};
use sink_testkit::conformance::{ErrorRow, FixtureError};

use crate::fixture::QueueFixture;
use crate::profile::{MODES, is_batched, is_fifo, queue_profile};

/// The service's limit of one message, and of the queues of the suite.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// The source on the in-process server.
pub(crate) struct InProcess;

#[async_trait]
impl SourceAdapter for InProcess {
    fn name(&self) -> &str {
        "sink-sqs-source"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        MODES.map(profile).to_vec()
    }

    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError> {
        Ok(Box::new(QueueFixture::start(profile).await?))
    }
}

fn profile(mode: &str) -> SourceProfile {
    let mut profile = queue_profile(mode)
        .with_capabilities([
            SourceCapability::Expire,
            SourceCapability::Restart,
            SourceCapability::Forbidden,
        ])
        .with_faults(faults(is_batched(mode)));
    if is_fifo(mode) {
        // A standard queue answers a delete of a message that somebody else has now with
        // success, and keeps the message.
        profile = profile.with_capabilities([SourceCapability::NoticesLoss]);
    }
    profile.max_message_bytes = Some(MAX_MESSAGE_BYTES);
    profile.error_table = error_table();
    profile
}

/// Single settlements have no entries; extensions are batches in every mode.
fn faults(is_batched: bool) -> Vec<(Operation, SourceFaultKind)> {
    let mut faults = Vec::new();
    for kind in SourceFaultKind::ALL {
        let operations: &[Operation] = match kind {
            SourceFaultKind::WrongDigest => &[Operation::Receive],
            SourceFaultKind::Gone => &[Operation::Ack, Operation::Return, Operation::Extend],
            SourceFaultKind::Entry if is_batched => {
                &[Operation::Ack, Operation::Return, Operation::Extend]
            }
            SourceFaultKind::Entry => &[Operation::Extend],
            _ => &[
                Operation::Receive,
                Operation::Ack,
                Operation::Return,
                Operation::Extend,
            ],
        };
        faults.extend(operations.iter().map(|operation| (*operation, kind)));
    }
    faults
}

fn error_table() -> Vec<ErrorRow> {
    let pause = ErrorClass::RetryAfter(Duration::ZERO);
    [
        ("QueueDoesNotExist", ErrorClass::Config),
        ("AccessDenied", ErrorClass::Config),
        ("UnrecognizedClientException", ErrorClass::Config),
        ("InvalidSignatureException", ErrorClass::Config),
        ("RequestThrottled", pause),
        ("ThrottlingException", pause),
        ("ServiceUnavailable", pause),
        ("OverLimit", ErrorClass::Transient),
        ("KmsDisabled", ErrorClass::Transient),
        ("InternalFailure", ErrorClass::Transient),
    ]
    .map(|(name, class)| ErrorRow::new(name, class, Outcome::Unknown))
    .to_vec()
}
