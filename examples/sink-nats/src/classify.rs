//! The table of faults: what a stream refuses, and how a connection fails.

use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind};
use dispatch_api::{Outcome, SinkError};

use crate::ack::Refusal;

/// What the caller may do about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Permanent,
    Config,
    RetryAfter,
    Transient,
}

/// One row a fault: the server's number, its name here, its class, and what to do.
const REFUSALS: &[(u32, &str, Class, &str)] = &[
    (
        10002,
        "ResourcesExceeded",
        Class::RetryAfter,
        "the account is at its limit of JetStream resources",
    ),
    (
        10008,
        "JetStreamUnavailable",
        Class::Transient,
        "JetStream is not available now",
    ),
    (
        10009,
        "JetStreamUnavailable",
        Class::Transient,
        "the cluster has no leader for the stream now",
    ),
    (
        10023,
        "InsufficientResources",
        Class::RetryAfter,
        "the server is at its limit of JetStream resources",
    ),
    (
        10028,
        "InsufficientResources",
        Class::RetryAfter,
        "the server is at its limit of memory",
    ),
    (
        10039,
        "JetStreamNotEnabled",
        Class::Config,
        "enable JetStream for the account",
    ),
    (
        10047,
        "InsufficientResources",
        Class::RetryAfter,
        "the server is at its limit of storage",
    ),
    (
        10054,
        "MessageTooLarge",
        Class::Permanent,
        "the message is over the stream's max_msg_size: lower inline_max_bytes, so that large bodies go through the claim check, or raise the stream's limit",
    ),
    (
        10059,
        "NoStream",
        Class::Config,
        "create a stream that takes the subject, or correct subject; the sink never creates one",
    ),
    (
        10076,
        "JetStreamNotEnabled",
        Class::Config,
        "enable JetStream on the server",
    ),
    (
        10097,
        "HeadersTooLarge",
        Class::Permanent,
        "the headers are over the 64 KiB that a stream takes",
    ),
    (
        10109,
        "StreamSealed",
        Class::Config,
        "the stream is sealed and takes no messages: use another",
    ),
    (
        10118,
        "StreamOffline",
        Class::Transient,
        "the stream is offline",
    ),
    (
        10158,
        "DuplicateInProcess",
        Class::Transient,
        "the stream is still storing an earlier attempt of this message",
    ),
    (
        10167,
        "TooManyRequests",
        Class::RetryAfter,
        "the stream has too many requests waiting",
    ),
    (
        10194,
        "StreamOffline",
        Class::Transient,
        "the stream is offline",
    ),
];

/// The stream could not store the message; the text says why.
const STORE_FAILED: u32 = 10077;

/// Turns a stream's refusal into an error. `pause` is for a refusal that asks for one
/// without saying how long.
pub(crate) fn refused(refusal: &Refusal, pause: Duration) -> SinkError {
    let (name, class, advice) = if refusal.err_code == STORE_FAILED {
        // A limit with the policy to discard new messages is named in the text alone.
        match refusal.description.to_ascii_lowercase().contains("maximum") {
            true => (
                "StreamFull",
                Class::RetryAfter,
                "the stream is at a limit and discards new messages: consume, raise its limits, or let it discard old ones",
            ),
            false => (
                "StoreFailed",
                Class::Transient,
                "the stream could not store the message",
            ),
        }
    } else if let Some((_, name, class, advice)) = REFUSALS
        .iter()
        .find(|(err_code, ..)| *err_code == refusal.err_code)
    {
        (*name, *class, *advice)
    } else if refusal.code == 429 {
        (
            "TooManyRequests",
            Class::RetryAfter,
            "the server asks to slow down",
        )
    } else {
        (
            "StreamError",
            Class::Transient,
            "the stream refuses the message",
        )
    };
    let text = format!("{advice} (err_code {})", refusal.err_code);
    // The server's own failures may come after it began to store.
    let is_known_refusal = matches!(class, Class::RetryAfter) || (400..500).contains(&refusal.code);
    let outcome = match is_known_refusal && name != "DuplicateInProcess" {
        true => Outcome::NotStored,
        false => Outcome::Unknown,
    };
    let error = match class {
        Class::Permanent => SinkError::permanent(name, text),
        Class::Config => SinkError::config(name, text),
        Class::RetryAfter => SinkError::retry_after(pause, outcome, name, text),
        Class::Transient => SinkError::transient(outcome, name, text),
    };
    match refusal.code {
        0 => error,
        code => error.with_status(code),
    }
}

/// Nobody listens on the subject: no stream takes it, or JetStream is off.
pub(crate) fn no_stream(subject: &str) -> SinkError {
    SinkError::config(
        "NoStream",
        format!(
            "no stream takes the subject `{subject}`: create one, enable JetStream, or correct \
             subject; the sink never creates a stream"
        ),
    )
    .with_status(503)
}

/// Turns the status that ends a pull, other than an ordinary end, into an error.
pub(crate) fn pull_refused(status: u16, words: &str) -> SinkError {
    let words = words.to_ascii_lowercase();
    let (is_config, name, text) = match status {
        503 => (
            false,
            CONSUMER_UNAVAILABLE,
            "nobody serves the consumer now: it was deleted, or a cluster elects its leader",
        ),
        409 if words.contains("consumer deleted") => (
            true,
            "ConsumerNotFound",
            "the durable consumer was deleted: open the source again to create it",
        ),
        409 if words.contains("push") => (
            true,
            "ConsumerDiffers",
            "the durable consumer is a push consumer now: name another in durable",
        ),
        409 if words.contains("maxrequest") => (
            true,
            "ConsumerDiffers",
            "the durable consumer takes only smaller or shorter pulls since it was opened: open \
             the source again",
        ),
        409 if words.contains("maxwaiting") => (
            false,
            "TooManyReceives",
            "the durable consumer has as many open pulls as its max_waiting allows",
        ),
        _ => (false, CONSUMER_UNAVAILABLE, "the server ended the pull"),
    };
    let error = match is_config {
        true => SinkError::config(name, text),
        false => SinkError::transient(Outcome::NotStored, name, text),
    };
    error.with_status(status)
}

/// Nobody answers for the consumer at this moment.
pub(crate) const CONSUMER_UNAVAILABLE: &str = "ConsumerUnavailable";

/// Turns a failure to connect into an error. Nothing was sent.
pub(crate) fn not_connected(error: ConnectError) -> SinkError {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => SinkError::config(
            "AuthorizationViolation",
            "the server refuses the credentials: correct token, user and password, or \
             credentials_file",
        ),
        ConnectErrorKind::Authentication => SinkError::config(
            "InvalidCredentials",
            "the credentials cannot answer the server's challenge: correct credentials_file",
        ),
        ConnectErrorKind::Tls => SinkError::config(
            "InvalidTls",
            "encryption cannot be set up: correct tls.root_certificates or the server's name",
        ),
        _ => SinkError::transient(
            Outcome::NotStored,
            "ConnectFailed",
            "no server could be connected to: check servers, network and certificates",
        ),
    }
    .with_source(error)
}

/// No server answered in time. Nothing was sent.
pub(crate) fn connect_timeout() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "ConnectFailed",
        "no connection within connect_timeout_ms: check servers and network",
    )
}

/// The server forbids publishing to the subject.
pub(crate) fn publish_denied() -> SinkError {
    SinkError::config(
        "PermissionDenied",
        "the server forbids this user to publish to the subject: allow it, or correct subject",
    )
}

/// The server forbids listening for answers: the first message may be stored, and no
/// further one is sent.
pub(crate) fn inbox_denied(sent: bool) -> SinkError {
    const TEXT: &str = "the server forbids this user to subscribe to _INBOX.>, where \
                        acknowledgements arrive: allow it";
    match sent {
        true => SinkError::transient(Outcome::Unknown, "InboxDenied", TEXT),
        false => SinkError::config("InboxDenied", TEXT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::ErrorClass;

    const PAUSE: Duration = Duration::from_millis(250);

    fn classed(code: u16, err_code: u32, description: &str) -> (ErrorClass, Outcome, String) {
        let error = refused(
            &Refusal {
                code,
                err_code,
                description: description.to_owned(),
            },
            PAUSE,
        );
        assert_eq!(error.status(), (code > 0).then_some(code));
        assert!(!error.to_string().contains("canary"));
        (error.class(), error.outcome(), error.code().to_owned())
    }

    #[test]
    fn every_refusal_has_its_class_outcome_and_name() {
        use ErrorClass::{Config, Permanent, RetryAfter, Transient};
        use Outcome::{NotStored, Unknown};
        for (code, err_code, description, class, outcome, name) in [
            (
                400,
                10054,
                "message size exceeds maximum allowed",
                Permanent,
                NotStored,
                "MessageTooLarge",
            ),
            (400, 10097, "", Permanent, NotStored, "HeadersTooLarge"),
            (
                404,
                10059,
                "stream not found",
                Config,
                NotStored,
                "NoStream",
            ),
            (503, 10039, "", Config, NotStored, "JetStreamNotEnabled"),
            (503, 10076, "", Config, NotStored, "JetStreamNotEnabled"),
            (400, 10109, "", Config, NotStored, "StreamSealed"),
            (
                503,
                10077,
                "maximum messages exceeded",
                RetryAfter(PAUSE),
                NotStored,
                "StreamFull",
            ),
            (
                503,
                10077,
                "maximum bytes exceeded",
                RetryAfter(PAUSE),
                NotStored,
                "StreamFull",
            ),
            (
                503,
                10077,
                "maximum messages per subject exceeded",
                RetryAfter(PAUSE),
                NotStored,
                "StreamFull",
            ),
            (503, 10077, "canary disk", Transient, Unknown, "StoreFailed"),
            (
                503,
                10023,
                "insufficient resources",
                RetryAfter(PAUSE),
                NotStored,
                "InsufficientResources",
            ),
            (
                500,
                10028,
                "",
                RetryAfter(PAUSE),
                NotStored,
                "InsufficientResources",
            ),
            (
                500,
                10047,
                "",
                RetryAfter(PAUSE),
                NotStored,
                "InsufficientResources",
            ),
            (
                400,
                10002,
                "",
                RetryAfter(PAUSE),
                NotStored,
                "ResourcesExceeded",
            ),
            (
                429,
                10167,
                "",
                RetryAfter(PAUSE),
                NotStored,
                "TooManyRequests",
            ),
            (429, 0, "", RetryAfter(PAUSE), NotStored, "TooManyRequests"),
            (503, 10008, "", Transient, Unknown, "JetStreamUnavailable"),
            (500, 10009, "", Transient, Unknown, "JetStreamUnavailable"),
            (500, 10118, "", Transient, Unknown, "StreamOffline"),
            (500, 10194, "", Transient, Unknown, "StreamOffline"),
            (409, 10158, "", Transient, Unknown, "DuplicateInProcess"),
            (400, 99_999, "canary", Transient, NotStored, "StreamError"),
            (500, 99_999, "canary", Transient, Unknown, "StreamError"),
            (0, 0, "", Transient, Unknown, "StreamError"),
        ] {
            assert_eq!(
                classed(code, err_code, description),
                (class, outcome, name.to_owned()),
                "{code} {err_code} {description}"
            );
        }
    }
}
