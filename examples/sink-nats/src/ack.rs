//! What a stream answers to a message.

use dispatch_api::{Outcome, Receipt, SinkError};
use serde::Deserialize;

/// A stream's answer, a success and a refusal in one: a refusal also has a sequence, 0.
#[derive(Deserialize)]
struct PubAck {
    error: Option<Refusal>,
    #[serde(default)]
    stream: String,
    #[serde(default)]
    seq: u64,
}

/// Why a stream refuses a message.
#[derive(Deserialize)]
pub(crate) struct Refusal {
    /// Like an HTTP status.
    #[serde(default)]
    pub(crate) code: u16,
    /// What identifies the fault.
    #[serde(default)]
    pub(crate) err_code: u32,
    #[serde(default)]
    pub(crate) description: String,
}

/// A stream's answer as the caller needs it.
pub(crate) enum Answer {
    Stored(Receipt),
    Refused(Refusal),
}

/// Reads the answer to a message. A duplicate is stored: its sequence is that of the first.
///
/// # Errors
///
/// `Transient`, outcome unknown, code `UnexpectedReply`, for what no stream writes.
pub(crate) fn read(payload: &[u8]) -> Result<Answer, SinkError> {
    let Ok(ack) = serde_json::from_slice::<PubAck>(payload) else {
        return Err(unexpected());
    };
    if let Some(refusal) = ack.error {
        return Ok(Answer::Refused(refusal));
    }
    if ack.stream.is_empty() || ack.seq == 0 {
        return Err(unexpected());
    }
    let sequence = ack.seq.to_string();
    Ok(Answer::Stored(
        Receipt::new()
            .with_provider_id(format!("{}/{sequence}", ack.stream))
            .with_sequence(sequence),
    ))
}

fn unexpected() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "UnexpectedReply",
        "the reply is no stream's acknowledgement: something else answers on this subject",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_and_sequence_make_the_receipt_of_a_first_and_of_a_repeated_message() {
        for payload in [
            r#"{"stream":"HOOKS","seq":7}"#,
            r#"{"stream":"HOOKS","seq":7,"duplicate":true,"domain":"hub"}"#,
        ] {
            let Ok(Answer::Stored(receipt)) = read(payload.as_bytes()) else {
                panic!("{payload}");
            };
            assert_eq!(receipt.provider_id.as_deref(), Some("HOOKS/7"));
            assert_eq!(receipt.sequence.as_deref(), Some("7"));
        }
    }

    #[test]
    fn an_error_beside_a_stream_and_sequence_0_is_a_refusal() {
        let payload = br#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"HOOKS","seq":0}"#;
        let Ok(Answer::Refused(refusal)) = read(payload) else {
            panic!("read as stored");
        };
        assert_eq!((refusal.code, refusal.err_code), (503, 10077));
    }

    #[test]
    fn what_no_stream_writes_leaves_the_outcome_unknown() {
        for payload in [
            "",
            "ok",
            "{}",
            r#"{"stream":"HOOKS"}"#,
            r#"{"seq":7}"#,
            r#"{"stream":"HOOKS","seq":0}"#,
            "[]",
        ] {
            let error = read(payload.as_bytes()).err().unwrap();
            assert_eq!(error.code(), "UnexpectedReply", "{payload}");
            assert_eq!(error.outcome(), Outcome::Unknown);
        }
    }
}
