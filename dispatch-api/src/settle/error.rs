//! What can go wrong while receiving and settling.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::{ErrorClass, SinkError, SinkErrorParts};

/// A source that could not be opened, received from, or told of a settlement.
///
/// As in a [`SinkError`](crate::SinkError): the class says what the caller may do, the code
/// names the fault in a stable word, [`Error::source`] leads to the cause, and the text
/// never holds a payload or a credential. `Permanent` says that this very call can never
/// succeed, `Config` that an operator has to change something.
#[derive(Clone)]
pub struct SourceError {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    class: ErrorClass,
    code: Cow<'static, str>,
    text: Cow<'static, str>,
    status: Option<u16>,
    request_id: Option<Box<str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// An error of this class, code and text.
    pub fn new(
        class: ErrorClass,
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            inner: Box::new(Inner {
                class,
                code: code.into(),
                text: text.into(),
                status: None,
                request_id: None,
                source: None,
            }),
        }
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

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// Adds the HTTP status, or the like, of the answer.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.inner.status = Some(status);
        self
    }

    /// Adds the broker's own id of the request.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.inner.request_id = Some(id.into().into_boxed_str());
        self
    }

    /// What the caller may do next.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.inner.class
    }

    /// The stable name of the fault.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.inner.code
    }

    /// What happened and what to do, for people.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// The status of the answer, where there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.inner.status
    }

    /// The broker's own id of the request, where it gave one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.inner.request_id.as_deref()
    }
}

/// For sources and sinks that share a client: the class, the code, the words and the cause
/// stay; the outcome is for the caller to judge.
impl From<SinkError> for SourceError {
    fn from(error: SinkError) -> Self {
        let SinkErrorParts {
            class,
            code,
            text,
            status,
            request_id,
            source,
        } = error.into_parts();
        Self {
            inner: Box::new(Inner {
                class,
                code,
                text,
                status,
                request_id,
                source,
            }),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            class, code, text, ..
        } = &*self.inner;
        write!(f, "{class}: {code}: {text}")?;
        if let Some(status) = self.inner.status {
            write!(f, " (status {status})")?;
        }
        if let Some(id) = &self.inner.request_id {
            write!(f, " (request id {id})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceError")
            .field("class", &self.inner.class)
            .field("code", &self.inner.code)
            .field("text", &self.inner.text)
            .field("status", &self.inner.status)
            .field("request_id", &self.inner.request_id)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner
            .source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
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
}
