//! What can go wrong while receiving and settling.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::error::{ErrorClass, Outcome, SinkError};

/// A source that could not be opened, received from, or told of a settlement.
///
/// As in a [`SinkError`](crate::SinkError): the class says what the caller may do, the code
/// names the fault in a stable word, [`Error::source`] leads to the cause, and the text
/// never holds a payload or a credential. `Permanent` says that this very call can never
/// succeed, `Config` that an operator has to change something.
#[derive(Clone)]
pub struct SourceError {
    /// A sink's error but for the outcome, which says nothing here.
    error: SinkError,
}

impl SourceError {
    /// An error of this class, code and text.
    pub fn new(
        class: ErrorClass,
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        SinkError::new(class, Outcome::Unknown, code, text).into()
    }

    /// Something that an operator has to change.
    pub fn config(code: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::Config, code, text)
    }

    /// A fault that time may heal.
    pub fn transient(
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorClass::Transient, code, text)
    }

    /// What a receive on a closed subscription answers: `Permanent`, with the code
    /// `SubscriptionClosed`.
    #[must_use]
    pub fn subscription_closed() -> Self {
        Self::new(
            ErrorClass::Permanent,
            "SubscriptionClosed",
            "the subscription is closed: open another",
        )
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.error.with_source(source).into()
    }

    /// Adds the HTTP status, or the like, of the answer.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        self.error.with_status(status).into()
    }

    /// Adds the broker's own id of the request.
    #[must_use]
    pub fn with_request_id(self, id: impl Into<String>) -> Self {
        self.error.with_request_id(id).into()
    }

    /// What the caller may do next.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.error.class()
    }

    /// The stable name of the fault.
    #[must_use]
    pub fn code(&self) -> &str {
        self.error.code()
    }

    /// What happened and what to do, for people.
    #[must_use]
    pub fn text(&self) -> &str {
        self.error.text()
    }

    /// The status of the answer, where there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.error.status()
    }

    /// The broker's own id of the request, where it gave one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.error.request_id()
    }
}

/// For sources and sinks that share a client: the class, the code, the words and the cause
/// stay; the outcome is for the caller to judge.
impl From<SinkError> for SourceError {
    fn from(error: SinkError) -> Self {
        Self { error }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceError")
            .field("class", &self.class())
            .field("code", &self.code())
            .field("text", &self.text())
            .field("status", &self.status())
            .field("request_id", &self.request_id())
            .field("source", &self.source())
            .finish()
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// A settlement that is not known to have taken effect. The broker delivers the message
/// again, unless it did take effect after all.
///
/// Closed on purpose: what a caller can know about a settlement is one of these.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SettleError {
    /// The hold was lost before the settlement: the message is somebody else's, or nobody's
    /// yet. Nothing was changed.
    #[error("the hold on the delivery was lost before it was settled")]
    Lost(#[source] Option<SourceError>),
    /// The broker refuses the settlement, or cannot do such a one. Nothing was changed.
    #[error("the settlement was refused")]
    Refused(#[source] SourceError),
    /// There is no answer: it may have taken effect.
    #[error("it is not known whether the settlement took effect")]
    Unknown(#[source] SourceError),
}

impl SettleError {
    /// The kind as a label: `lost`, `refused` or `unknown`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Refused(_) => "refused",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The stable code of the cause; `HoldLost` where nobody but the source's own clock said
    /// that the hold is lost.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Lost(None) => "HoldLost",
            Self::Lost(Some(error)) | Self::Refused(error) | Self::Unknown(error) => error.code(),
        }
    }
}

/// A call that did not take effect is a refusal; one that may have is not known.
impl From<SinkError> for SettleError {
    fn from(error: SinkError) -> Self {
        match error.outcome() {
            Outcome::NotStored => Self::Refused(error.into()),
            Outcome::Unknown => Self::Unknown(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorChain;

    #[test]
    fn a_source_error_reads_like_a_sink_error() {
        let error = SourceError::config("QueueDoesNotExist", "create the queue")
            .with_status(400)
            .with_request_id("r-1")
            .with_source(std::io::Error::other("cause"));
        assert_eq!(
            error.to_string(),
            "config: QueueDoesNotExist: create the queue (status 400) (request id r-1)"
        );
    }

    #[test]
    fn a_settlement_without_an_answer_leads_to_its_cause() {
        let error = SettleError::Unknown(SourceError::transient("Timeout", "no answer in time"));
        assert_eq!(
            ErrorChain(&error).to_string(),
            "it is not known whether the settlement took effect: transient: Timeout: no answer in \
             time"
        );
    }

    #[test]
    fn a_call_s_error_is_a_refusal_when_it_took_no_effect_and_unknown_otherwise() {
        let refused = SinkError::transient(Outcome::NotStored, "Throttled", "later");
        let refused = SettleError::from(refused);
        assert_eq!((refused.as_str(), refused.code()), ("refused", "Throttled"));
        let unknown = SinkError::transient(Outcome::Unknown, "Timeout", "no answer in time");
        let unknown = SettleError::from(unknown);
        assert_eq!((unknown.as_str(), unknown.code()), ("unknown", "Timeout"));
        assert_eq!(SettleError::Lost(None).code(), "HoldLost");
    }
}
