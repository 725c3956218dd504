//! Why a delivery failed, and what the caller may do about it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the caller may do next.
///
/// Closed on purpose: a host has to decide about every class, and a new one
/// would change the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// This message can never be delivered here: dead-letter it at once.
    Permanent,
    /// The configuration or the credentials of the sink are refused: dead-letter
    /// at once and tell an operator. A later replay can succeed.
    Config,
    /// The destination asks to wait at least this long before the next attempt.
    RetryAfter(Duration),
    /// Try again under the retry policy.
    Transient,
}

impl ErrorClass {
    /// The class as a label: `permanent`, `config`, `retry_after` or `transient`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Config => "config",
            Self::RetryAfter(_) => "retry_after",
            Self::Transient => "transient",
        }
    }

    /// Whether another attempt can succeed without anyone changing anything.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RetryAfter(_) | Self::Transient)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the destination may hold the message although the delivery failed.
///
/// Closed on purpose: there is no third answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The destination did not store the message.
    NotStored,
    /// It is not known: a repeat can store a second copy unless the destination
    /// deduplicates.
    Unknown,
}

impl Outcome {
    /// The outcome as a label: `not_stored` or `unknown`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotStored => "not_stored",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed delivery: class × outcome × code × source.
///
/// The class says what the caller may do, the outcome whether the destination
/// may hold the message all the same, the code names the fault in a stable word
/// of bounded variety (fit for a metric label), and [`Error::source`] leads to
/// the cause. `Display` prints class, code and text, never the source; use
/// [`ErrorChain`] where a log should show everything.
///
/// The text never holds a payload, a header value or a credential. Clones share the
/// source, so that every message of a failed batch can have the same error.
#[derive(Clone)]
pub struct SinkError {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    class: ErrorClass,
    outcome: Outcome,
    code: Cow<'static, str>,
    text: Cow<'static, str>,
    status: Option<u16>,
    request_id: Option<Box<str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl SinkError {
    /// The message itself is refused. It is not stored.
    pub fn permanent(
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorClass::Permanent, Outcome::NotStored, code, text)
    }

    /// The sink's configuration or credentials are refused. Nothing is stored.
    pub fn config(code: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::Config, Outcome::NotStored, code, text)
    }

    /// The destination asks for a pause of at least `delay`.
    pub fn retry_after(
        delay: Duration,
        outcome: Outcome,
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorClass::RetryAfter(delay), outcome, code, text)
    }

    /// A fault that time may heal.
    pub fn transient(
        outcome: Outcome,
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorClass::Transient, outcome, code, text)
    }

    pub(crate) fn new(
        class: ErrorClass,
        outcome: Outcome,
        code: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            inner: Box::new(Inner {
                class,
                outcome,
                code: code.into(),
                text: text.into(),
                status: None,
                request_id: None,
                source: None,
            }),
        }
    }

    /// Adds the cause, found again by [`Error::source`].
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

    /// Adds the destination's own id of the request, which its support asks for.
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

    /// Whether the destination may hold the message.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// The stable name of the fault, such as `QueueDoesNotExist`.
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

    /// The destination's own id of the request, where it gave one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.inner.request_id.as_deref()
    }
}

impl fmt::Display for SinkError {
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

impl fmt::Debug for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkError")
            .field("class", &self.inner.class)
            .field("outcome", &self.inner.outcome)
            .field("code", &self.inner.code)
            .field("text", &self.inner.text)
            .field("status", &self.inner.status)
            .field("request_id", &self.inner.request_id)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner
            .source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// Prints an error with all its causes, `a: b: c`, on one line.
///
/// For logs. Everywhere else an error prints only itself.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_class_code_and_text_and_leaves_the_source_to_source() {
        let error = SinkError::transient(Outcome::Unknown, "Timeout", "no answer within 5 s")
            .with_source(std::io::Error::other("socket closed"));
        assert_eq!(
            error.to_string(),
            "transient: Timeout: no answer within 5 s"
        );
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("socket closed")
        );
    }

    #[test]
    fn a_chain_prints_every_cause_once() {
        let error = SinkError::config("NoCredentials", "none found")
            .with_source(std::io::Error::other("no file"));
        assert_eq!(
            ErrorChain(&error).to_string(),
            "config: NoCredentials: none found: no file"
        );
    }

    #[test]
    fn refused_messages_are_never_stored() {
        assert_eq!(
            SinkError::permanent("MessageTooLarge", "").outcome(),
            Outcome::NotStored
        );
        assert_eq!(
            SinkError::config("AccessDenied", "").outcome(),
            Outcome::NotStored
        );
    }

    #[test]
    fn only_retry_after_and_transient_are_retried() {
        assert!(ErrorClass::Transient.is_retryable());
        assert!(ErrorClass::RetryAfter(Duration::ZERO).is_retryable());
        assert!(!ErrorClass::Permanent.is_retryable());
        assert!(!ErrorClass::Config.is_retryable());
    }

    #[test]
    fn status_and_request_id_are_shown_where_known() {
        let error = SinkError::permanent("InvalidMessageContents", "refused")
            .with_status(400)
            .with_request_id("r-1");
        assert_eq!(
            error.to_string(),
            "permanent: InvalidMessageContents: refused (status 400) (request id r-1)"
        );
    }
}
