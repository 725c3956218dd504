//! What a sink is told about one attempt.

use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::time::Instant;

use crate::claim::ClaimRef;
use crate::envelope::EnvelopeId;
use crate::headers::HeaderForwarding;
use crate::redelivery::Redelivery;

/// The publishing instance, as it appears in every message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The instance's name.
    pub instance: String,
    /// The region it runs in, where it has one.
    pub region: Option<String>,
}

impl Origin {
    /// An instance, with its region where it has one.
    pub fn new(instance: impl Into<String>, region: Option<String>) -> Self {
        Self {
            instance: instance.into(),
            region,
        }
    }
}

/// What a sink is told about one attempt to deliver an envelope.
#[derive(Clone, Debug)]
pub struct DeliveryContext {
    attempt: NonZeroU32,
    replay_id: Option<String>,
    claim: Option<ClaimRef>,
    forward_headers: Arc<HeaderForwarding>,
    origin: Option<Arc<Origin>>,
    redelivery: Option<Arc<Redelivery>>,
    deadline: Option<Instant>,
    direct: bool,
}

impl DeliveryContext {
    /// An attempt by a dispatcher, counted from 1. No replay, no claim, headers
    /// by [`HeaderForwarding::Default`], no deadline.
    #[must_use]
    pub fn attempt(attempt: NonZeroU32) -> Self {
        Self {
            attempt,
            replay_id: None,
            claim: None,
            forward_headers: Arc::default(),
            origin: None,
            redelivery: None,
            deadline: None,
            direct: false,
        }
    }

    /// A delivery outside a dispatcher: its caller waits for this one answer. A
    /// batching sink sends it alone and at once.
    #[must_use]
    pub fn direct() -> Self {
        Self {
            direct: true,
            ..Self::attempt(NonZeroU32::MIN)
        }
    }

    /// Marks the delivery as part of a replay. A replay gets a deduplication id
    /// of its own, so that the destination stores the message again.
    #[must_use]
    pub fn with_replay_id(mut self, replay_id: impl Into<String>) -> Self {
        self.replay_id = Some(replay_id.into());
        self
    }

    /// Adds where the body is stored.
    #[must_use]
    pub fn with_claim(mut self, claim: ClaimRef) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Sets which headers travel with the message.
    #[must_use]
    pub fn with_forward_headers(mut self, forwarding: impl Into<Arc<HeaderForwarding>>) -> Self {
        self.forward_headers = forwarding.into();
        self
    }

    /// Sets the publishing instance.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<Arc<Origin>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Marks the delivery as a copy that a source publishes for a later attempt. It gets a
    /// deduplication id of its own, so that the destination stores it beside the original.
    #[must_use]
    pub fn with_redelivery(mut self, redelivery: impl Into<Arc<Redelivery>>) -> Self {
        self.redelivery = Some(redelivery.into());
        self
    }

    /// Sets the moment by which the sink has to answer. A sink whose own timeout
    /// is shorter answers sooner.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Which attempt this is, counted from 1.
    #[must_use]
    pub fn attempt_number(&self) -> NonZeroU32 {
        self.attempt
    }

    /// The replay this delivery belongs to.
    #[must_use]
    pub fn replay_id(&self) -> Option<&str> {
        self.replay_id.as_deref()
    }

    /// Where the body is stored.
    #[must_use]
    pub fn claim(&self) -> Option<&ClaimRef> {
        self.claim.as_ref()
    }

    /// Which headers travel with the message.
    #[must_use]
    pub fn forward_headers(&self) -> &HeaderForwarding {
        &self.forward_headers
    }

    /// The publishing instance.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_deref()
    }

    /// What is said of the message as a copy for a later attempt.
    #[must_use]
    pub fn redelivery(&self) -> Option<&Redelivery> {
        self.redelivery.as_deref()
    }

    pub(crate) fn shared_redelivery(&self) -> Option<&Arc<Redelivery>> {
        self.redelivery.as_ref()
    }

    /// What tells this delivery from the envelope's first to a destination that deduplicates:
    /// the envelope's id alone, or with the replay's or the copy's mark behind it.
    #[must_use]
    pub fn deduplication_id(&self, id: EnvelopeId) -> String {
        let mut text = id.to_string();
        if let Some(replay_id) = &self.replay_id {
            text.push_str(":replay:");
            text.push_str(replay_id);
        }
        if let Some(redelivery) = &self.redelivery {
            text.push_str(&redelivery.deduplication_mark());
        }
        text
    }

    /// The moment by which the sink has to answer.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the caller waits for this one answer, outside a dispatcher.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }
}
