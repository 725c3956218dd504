//! From a complete answer to a receipt or an error. Asks nobody.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use dispatch_api::{Draw, Outcome, Receipt, SinkError, throttle_after};
use http::{HeaderMap, header};

use crate::classify::{Kind, UNKNOWN_CODE, Verdict, classify, is_throttle_status, normalise};
use crate::credentials::Credentials;
use crate::entry::Entry;
use crate::protocol::{ErrorDocument, SendMessageReply};
use crate::retry_after;

/// A complete answer, of the service or of something else.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What an answer is judged against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) queue_url: &'a str,
    pub(crate) attempt: NonZeroU32,
    pub(crate) now: SystemTime,
    pub(crate) draw: Draw,
    pub(crate) credentials: &'a Credentials,
}

/// The answer to the sending of one message.
///
/// # Errors
///
/// Everything but a 200 that shows the digest of the body that was sent.
pub(crate) fn sent(
    answer: &Answer,
    entry: &Entry<'_>,
    asked: &Asked<'_>,
) -> Result<Receipt, SinkError> {
    let result = match answer.status {
        200 => confirmed(answer, entry),
        201..=299 => Err(unexpected("another status than 200 on success")),
        _ => Err(refused(answer, entry, asked)),
    };
    result.map_err(|error| {
        let error = error.with_status(answer.status);
        match request_id(&answer.headers) {
            Some(id) => error.with_request_id(id),
            None => error,
        }
    })
}

fn confirmed(answer: &Answer, entry: &Entry<'_>) -> Result<Receipt, SinkError> {
    let reply = SendMessageReply::parse(&answer.body)
        .map_err(|_| unexpected("a 200 whose body is not the service's JSON"))?;
    let body_md5 = reply
        .body_md5
        .ok_or_else(|| unexpected("a 200 without the digest of the body"))?;
    if !body_md5.eq_ignore_ascii_case(&entry.body_md5()) {
        return Err(mismatch("body"));
    }
    match (entry.attributes_md5(), reply.attributes_md5) {
        (Some(sent), Some(stored)) if !stored.eq_ignore_ascii_case(&sent) => {
            return Err(mismatch("attributes"));
        }
        // The service always answers one; some emulators do not.
        (Some(_), None) => tracing::debug!(
            request_id = request_id(&answer.headers),
            "the answer shows no digest of the attributes"
        ),
        _ => {}
    }
    let mut receipt = Receipt::new();
    if let Some(id) = reply.message_id {
        receipt = receipt.with_provider_id(id);
    }
    if let Some(sequence) = reply.sequence_number {
        receipt = receipt.with_sequence(sequence);
    }
    Ok(receipt)
}

fn unexpected(what: &str) -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "UnexpectedReply",
        format!("{what}: check endpoint, and what stands between it and here"),
    )
}

fn mismatch(what: &str) -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "Md5Mismatch",
        format!("the digest of the {what} is not that of what was sent"),
    )
}

fn refused(answer: &Answer, entry: &Entry<'_>, asked: &Asked<'_>) -> SinkError {
    let document = ErrorDocument::parse(&answer.body);
    let text_of = |name: &str| answer.headers.get(name)?.to_str().ok();
    let legacy = text_of("x-amzn-query-error").and_then(|value| Some(value.split_once(';')?.0));
    let spellings: Vec<&str> = [
        text_of("x-amzn-errortype"),
        document.code.as_deref(),
        document.kind.as_deref(),
        legacy,
    ]
    .into_iter()
    .flatten()
    .filter(|spelling| !normalise(spelling).is_empty())
    .collect();
    let Some(first) = spellings.first() else {
        return foreign(answer, asked);
    };
    // The first name that the table knows decides: some imitations put no more than
    // `Sender` where the service puts the code.
    let verdict = classify(spellings.iter().copied(), answer.status);
    let mut text = verdict.hint.to_owned();
    match verdict.code {
        UNKNOWN_CODE => text = format!("{text} (`{}`)", printable(normalise(first), 64)),
        "QueueDoesNotExist" | "AccessDenied" | "InvalidAddress" => {
            text = format!("{text} (queue {})", asked.queue_url);
        }
        "InvalidSignature" | "RequestExpired" | "RequestTimeTooSkewed" => {
            if let Some(skew) = clock_skew(&answer.headers, asked.now) {
                text = format!("{text} ({skew})");
            }
        }
        _ => {}
    }
    if let Some(message) = &document.message {
        text = match quotable(message, asked.credentials, entry) {
            true => format!("{text}; the service says: {}", printable(message, 300)),
            false => format!("{text}; what the service says repeats a secret or the message"),
        };
    }
    let outcome = match answer.status {
        400..=499 => Outcome::NotStored,
        _ => Outcome::Unknown,
    };
    error(verdict, outcome, text, answer, asked)
}

/// An answer that is not the service's: of a proxy, a load balancer, another server.
fn foreign(answer: &Answer, asked: &Asked<'_>) -> SinkError {
    let text = match answer.status {
        300..=399 => "a redirect, which is not followed: correct endpoint or queue_url",
        _ => {
            "an answer that is not the service's: check endpoint, and what stands between \
              it and here"
        }
    };
    let verdict = Verdict {
        code: "HttpStatus",
        kind: match is_throttle_status(answer.status) {
            true => Kind::Throttled,
            false => Kind::Transient,
        },
        hint: "",
    };
    error(verdict, Outcome::Unknown, text.to_owned(), answer, asked)
}

fn error(
    verdict: Verdict,
    outcome: Outcome,
    text: String,
    answer: &Answer,
    asked: &Asked<'_>,
) -> SinkError {
    match verdict.kind {
        Kind::Permanent => SinkError::permanent(verdict.code, text),
        Kind::Config => SinkError::config(verdict.code, text),
        Kind::Throttled => {
            SinkError::retry_after(pause(answer, asked), outcome, verdict.code, text)
        }
        Kind::Transient => SinkError::transient(outcome, verdict.code, text),
    }
}

fn pause(answer: &Answer, asked: &Asked<'_>) -> Duration {
    answer
        .headers
        .get(header::RETRY_AFTER)
        .and_then(|value| retry_after::parse(value.to_str().ok()?, asked.now))
        .unwrap_or_else(|| throttle_after(asked.attempt, asked.draw))
}

/// The service's id of the request, as far as it can be one.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get("x-amzn-requestid")?.to_str().ok()?;
    let is_id = (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    is_id.then_some(id)
}

/// How far the clocks are apart, when that can be why a signature is refused.
fn clock_skew(headers: &HeaderMap, now: SystemTime) -> Option<String> {
    const TOLERATED: Duration = Duration::from_secs(240);
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let date = httpdate::parse_http_date(date).ok()?;
    let (apart, direction) = match date.duration_since(now) {
        Ok(ahead) => (ahead, "behind"),
        Err(behind) => (behind.duration(), "ahead of"),
    };
    (apart > TOLERATED).then(|| {
        format!(
            "the host's clock is {} s {direction} the service's",
            apart.as_secs()
        )
    })
}

/// Whether the service's own words hold neither a secret nor a piece of the message.
fn quotable(message: &str, credentials: &Credentials, entry: &Entry<'_>) -> bool {
    const PIECE: usize = 16;
    /// Shorter ones, such as an emulator's `test`, occur by chance and guard nothing.
    const LEAST_SECRET: usize = 6;
    let mut secrets = credentials
        .secrets()
        .filter(|secret| secret.len() >= LEAST_SECRET);
    if secrets.any(|secret| message.contains(secret)) {
        return false;
    }
    // A repeated stretch of twice this length holds at least one whole piece.
    let characters: Vec<char> = message.chars().take(4 * 1_024).collect();
    let is_repeated = |piece: &[char]| {
        let piece: String = piece.iter().collect();
        entry.body.contains(&piece)
            || entry
                .attributes
                .iter()
                .any(|(_, value)| value.contains(&piece))
    };
    !characters.chunks_exact(PIECE).any(is_repeated)
}

/// Text of unknown origin on one line, not longer than `max` characters.
fn printable(text: &str, max: usize) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(max)
        .collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
