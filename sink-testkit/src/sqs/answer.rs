//! Answers, those of the service and those that a test makes up.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::error::{ErrorCode, ServiceError};
use super::operations::Output;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
pub(crate) const QUERY_ERROR: HeaderName = HeaderName::from_static("x-amzn-query-error");
pub(crate) const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// An HTTP answer to play in place of the service's own.
///
/// The constructors for errors make what the service would send; [`Answer::new`] makes anything else.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether it comes from the service, and so has a request id.
    pub(crate) has_request_id: bool,
}

/// The ways in which one error is spelled on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Spelling {
    /// The code with its namespace in `__type`, the older code in `x-amzn-query-error`.
    Aws,
    /// The code in the header `x-amzn-errortype` with a web address behind it, and none in the body.
    ErrorTypeHeader,
    /// The older code in `__type`, without namespace and without a header, as some emulators do.
    Legacy,
    /// The code in the modelled namespace, in both headers, status 400 whatever it is, and the text under
    /// both spellings of its name, as another emulator does.
    Moto,
}

impl Answer {
    /// An answer without body.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            has_request_id: false,
        }
    }

    /// An answer with a JSON body.
    #[must_use]
    pub fn json(status: StatusCode, body: &Value) -> Self {
        Self::new(status)
            .with_header(CONTENT_TYPE, JSON)
            .with_body(body.to_string())
            .with_request_id()
    }

    /// An error as the service sends it.
    #[must_use]
    pub fn error(code: ErrorCode) -> Self {
        Self::error_spelled(code, Spelling::Aws)
    }

    /// An error in one of the spellings that occur.
    #[must_use]
    pub fn error_spelled(code: ErrorCode, spelling: Spelling) -> Self {
        const TEXT: &str = "scripted by a test";
        let status = status_of(code);
        let named = |name: &str| json!({ "__type": name, "message": TEXT });
        match spelling {
            Spelling::Aws => Self::from_error(&ServiceError::new(code, TEXT)),
            Spelling::ErrorTypeHeader => Self::json(status, &json!({ "message": TEXT })).with_text(
                ERROR_TYPE,
                &format!("{}:http://internal.amazon.com/coral/", code.type_name()),
            ),
            Spelling::Legacy => Self::json(status, &named(code.legacy())),
            Spelling::Moto => {
                let name = format!("com.amazonaws.sqs#{}", code.entry_code());
                let body = json!({ "__type": name, "message": TEXT, "Message": TEXT });
                Self::json(StatusCode::BAD_REQUEST, &body)
                    .with_text(ERROR_TYPE, code.entry_code())
                    .with_text(QUERY_ERROR, &code.query_error())
            }
        }
    }

    /// An error with any text in `__type`, for codes that [`ErrorCode`] does not list.
    #[must_use]
    pub fn error_named(name: &str, status: StatusCode) -> Self {
        Self::json(
            status,
            &json!({ "__type": name, "message": "scripted by a test" }),
        )
    }

    /// A throttle: `RequestThrottled` as 403, `ThrottlingException` as anything else, such as 400, 429 or 503.
    #[must_use]
    pub fn throttled(status: StatusCode) -> Self {
        let code = if status == StatusCode::FORBIDDEN {
            ErrorCode::RequestThrottled
        } else {
            ErrorCode::Throttling
        };
        Self::error(code).with_status(status)
    }

    /// A page for people, as a proxy between sends it.
    #[must_use]
    pub fn html(status: StatusCode) -> Self {
        Self::new(status)
            .with_header(CONTENT_TYPE, HeaderValue::from_static("text/html"))
            .with_body(format!("<html><body><h1>{status}</h1></body></html>"))
    }

    /// A 307 to another place, which a client must not follow with a signed request.
    #[must_use]
    pub fn redirect(location: HeaderValue) -> Self {
        Self::new(StatusCode::TEMPORARY_REDIRECT).with_header(LOCATION, location)
    }

    /// Replaces the status.
    #[must_use]
    pub const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets `Retry-After`, in whole seconds.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        self.with_header(RETRY_AFTER, HeaderValue::from(delay.as_secs()))
    }

    pub(crate) fn from_error(error: &ServiceError) -> Self {
        Self::json(status_of(error.code()), &error.body())
            .with_text(QUERY_ERROR, &error.code().query_error())
    }

    pub(crate) fn from_output(output: &Output) -> Self {
        match output {
            Output::Json(body) => Self::json(StatusCode::OK, body),
            Output::Void => Self::new(StatusCode::OK)
                .with_header(CONTENT_TYPE, JSON)
                .with_request_id(),
        }
    }

    /// The answer to what is not for this server at all.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND).with_request_id()
    }

    const fn with_request_id(mut self) -> Self {
        self.has_request_id = true;
        self
    }

    /// Sets a header to a text of ours, which is always visible ASCII.
    fn with_text(self, name: HeaderName, text: &str) -> Self {
        match HeaderValue::from_str(text) {
            Ok(value) => self.with_header(name, value),
            Err(_) => self,
        }
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST)
}
