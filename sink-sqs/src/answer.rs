//! From a complete answer to a receipt or an error. Asks nobody.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use dispatch_api::{
    HostServices, Outcome, Receipt, Reconciliation, SinkError, push_json_string, throttle_after,
};
use http::{HeaderMap, header};

use crate::classify::{Kind, UNKNOWN_CODE, Verdict, classify, is_throttle_status, normalise};
use crate::credentials::Credentials;
use crate::prepared::Prepared;
use crate::protocol::{
    ErrorDocument, FailedEntry, SendMessageBatchReply, SendMessageReply, position,
};
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
    pub(crate) credentials: &'a Credentials,
    pub(crate) services: &'a HostServices,
}

/// Of what a failure is: which attempt, and what no text may repeat.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    attempt: NonZeroU32,
    /// The members of the message; empty where a request holds none.
    members: &'a str,
    hint: fn(&Verdict) -> &'static str,
}

impl<'a> About<'a> {
    fn sending(message: &'a Prepared) -> Self {
        Self {
            attempt: message.attempt,
            members: &message.members,
            hint: |verdict| verdict.hint,
        }
    }

    /// A request that holds no message.
    pub(crate) fn consuming() -> Self {
        Self {
            attempt: NonZeroU32::MIN,
            members: "",
            hint: consuming_hint,
        }
    }
}

/// What an operator of a consumer may do, where that is not what a sender may do.
fn consuming_hint(verdict: &Verdict) -> &'static str {
    match verdict.code {
        "AccessDenied" => {
            "allow these credentials what consuming needs, as the README of sink-sqs lists it, or \
             correct queue: a missing queue can look like this"
        }
        "QueueDoesNotExist" => "create the queue or correct queue; a source never creates one",
        "InvalidParameterValue" => "the service refuses a value of this request",
        "MissingRequiredParameter" => "the service misses a value of this request",
        "OverLimit" => "too many messages of the queue are in flight",
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => {
            "the message is not held any more, or the handle is another queue's"
        }
        _ => verdict.hint,
    }
}

/// Why a request without a message failed, whose answer is complete and no success.
pub(crate) fn failure(answer: &Answer, asked: &Asked<'_>) -> SinkError {
    with_identity(failed(answer, About::consuming(), asked), answer)
}

/// Why one entry of a batch without messages failed.
pub(crate) fn entry_failure(entry: &FailedEntry, answer: &Answer, asked: &Asked<'_>) -> SinkError {
    let error = entry_failed(entry, About::consuming(), answer, asked);
    with_identity(error, answer)
}

/// What the service says about a refused request.
pub(crate) fn said(answer: &Answer) -> Option<String> {
    ErrorDocument::parse(&answer.body).message
}

/// The answer to the sending of one message.
///
/// # Errors
///
/// Everything but a 200 that shows the digest of the body that was sent.
pub(crate) fn sent(
    answer: &Answer,
    message: &Prepared,
    asked: &Asked<'_>,
) -> Result<Receipt, SinkError> {
    let result = match answer.status {
        200 => SendMessageReply::parse(&answer.body)
            .map_err(|_| not_json())
            .and_then(|reply| confirmed(answer, message, reply)),
        _ => Err(failed(answer, About::sending(message), asked)),
    };
    result.map_err(|error| with_identity(error, answer))
}

/// What the answer to one request says.
pub(crate) struct BatchAnswers {
    /// One answer to each message, in the order of the messages.
    pub(crate) answers: Vec<Result<Receipt, SinkError>>,
    /// How many entries the answer names that were not sent.
    pub(crate) foreign: usize,
}

/// The answers to the messages of one request, each its own.
///
/// What the answer says of a message counts if it is said once; a message of which it
/// says nothing, or more than one thing, has an unknown outcome.
pub(crate) fn batch_sent(
    answer: &Answer,
    messages: &[Prepared],
    asked: &Asked<'_>,
) -> BatchAnswers {
    let reply = match answer.status {
        200 => SendMessageBatchReply::parse(&answer.body).map_err(|_| ()),
        _ => Err(()),
    };
    let Ok(reply) = reply else {
        let fail = |message| match answer.status {
            200 => not_json(),
            _ => failed(answer, About::sending(message), asked),
        };
        let fail = |message| Err(with_identity(fail(message), answer));
        return BatchAnswers {
            answers: messages.iter().map(fail).collect(),
            foreign: 0,
        };
    };
    let mut answers = Reconciliation::new(messages.len());
    for entry in reply.successful {
        let index = position(&entry.id);
        let result = match index.and_then(|index| messages.get(index)) {
            Some(message) => confirmed(answer, message, entry.into_reply()),
            None => Ok(Receipt::new()),
        };
        answers.note(index, result.map_err(|error| with_identity(error, answer)));
    }
    for entry in reply.failed {
        let index = position(&entry.id);
        let error = match index.and_then(|index| messages.get(index)) {
            Some(message) => entry_failed(&entry, About::sending(message), answer, asked),
            None => not_json(),
        };
        answers.note(index, Err(with_identity(error, answer)));
    }
    BatchAnswers {
        foreign: answers.foreign(),
        answers: answers.finish(),
    }
}

/// Whether a whole request was refused for its size.
pub(crate) fn is_too_long(answer: &Answer) -> bool {
    answer.status == 413
        || (answer.status != 200
            && spellings(answer, &ErrorDocument::parse(&answer.body))
                .iter()
                .any(|spelling| normalise(spelling) == "BatchRequestTooLong"))
}

/// The code with which the service refused a whole request, storing nothing of it.
pub(crate) fn code_of_refusal(answer: &Answer) -> Option<&'static str> {
    if !(400..=499).contains(&answer.status) {
        return None;
    }
    let document = ErrorDocument::parse(&answer.body);
    let spellings = spellings(answer, &document);
    Some(classify(spellings.iter().copied(), answer.status).code)
}

pub(crate) fn with_identity(error: SinkError, answer: &Answer) -> SinkError {
    let error = error.with_status(answer.status);
    match request_id(&answer.headers) {
        Some(id) => error.with_request_id(id),
        None => error,
    }
}

pub(crate) fn not_json() -> SinkError {
    unexpected("a 200 whose body is not the service's JSON")
}

fn confirmed(
    answer: &Answer,
    message: &Prepared,
    reply: SendMessageReply,
) -> Result<Receipt, SinkError> {
    let body_md5 = reply
        .body_md5
        .ok_or_else(|| unexpected("a 200 without the digest of the body"))?;
    if !message.body_md5.is_shown_by(&body_md5) {
        return Err(mismatch("body"));
    }
    match (&message.attributes_md5, reply.attributes_md5) {
        (Some(sent), Some(stored)) if !sent.is_shown_by(&stored) => {
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

/// What a whole request that did not succeed means for one of its messages.
fn failed(answer: &Answer, about: About<'_>, asked: &Asked<'_>) -> SinkError {
    match answer.status {
        200..=299 => unexpected("another status than 200 on success"),
        _ => refused(answer, about, asked),
    }
}

/// The names of an error, the most trusted first.
fn spellings<'a>(answer: &'a Answer, document: &'a ErrorDocument) -> Vec<&'a str> {
    let text_of = |name: &str| answer.headers.get(name)?.to_str().ok();
    let legacy = text_of("x-amzn-query-error").and_then(|value| Some(value.split_once(';')?.0));
    [
        text_of("x-amzn-errortype"),
        document.code.as_deref(),
        document.kind.as_deref(),
        legacy,
    ]
    .into_iter()
    .flatten()
    .filter(|spelling| !normalise(spelling).is_empty())
    .collect()
}

fn refused(answer: &Answer, about: About<'_>, asked: &Asked<'_>) -> SinkError {
    let document = ErrorDocument::parse(&answer.body);
    let spellings = spellings(answer, &document);
    let Some(first) = spellings.first() else {
        return foreign(answer, about, asked);
    };
    // The first name that the table knows decides: some imitations put no more than
    // `Sender` where the service puts the code.
    let mut verdict = classify(spellings.iter().copied(), answer.status);
    if verdict.code == "InvalidSignature" && is_of_another_time(document.message.as_deref()) {
        // The keys are right, and a later signature may be in time.
        verdict = classify(["RequestExpired"], answer.status);
    }
    let text = explained(
        verdict,
        first,
        document.message.as_deref(),
        answer,
        about,
        asked,
    );
    let outcome = match answer.status {
        // It failed at some point or other, whatever the status says.
        _ if verdict.code == "InternalFailure" => Outcome::Unknown,
        400..=499 => Outcome::NotStored,
        _ => Outcome::Unknown,
    };
    error(verdict, outcome, text, answer, about, asked)
}

/// Whether a signature was refused for its time, by the service's own words.
fn is_of_another_time(said: Option<&str>) -> bool {
    said.is_some_and(|said| {
        said.starts_with("Signature expired") || said.starts_with("Signature not yet current")
    })
}

/// What the service says of one message of a batch that it did not store.
fn entry_failed(
    entry: &FailedEntry,
    about: About<'_>,
    answer: &Answer,
    asked: &Asked<'_>,
) -> SinkError {
    let verdict = classify([entry.code.as_str()], answer.status);
    let mut text = explained(
        verdict,
        &entry.code,
        entry.message.as_deref(),
        answer,
        about,
        asked,
    );
    // Told, and never what decides: throttles count as the sender's fault.
    text.push_str(match entry.sender_fault {
        true => " (SenderFault true)",
        false => " (SenderFault false)",
    });
    let outcome = match verdict.kind {
        Kind::Transient => Outcome::Unknown,
        Kind::Permanent | Kind::Config | Kind::Throttled => Outcome::NotStored,
    };
    error(verdict, outcome, text, answer, about, asked)
}

/// The text of an error: what it means, what to do, and the service's own words.
fn explained(
    verdict: Verdict,
    spelling: &str,
    said: Option<&str>,
    answer: &Answer,
    about: About<'_>,
    asked: &Asked<'_>,
) -> String {
    let mut text = (about.hint)(&verdict).to_owned();
    match verdict.code {
        UNKNOWN_CODE => text = format!("{text} (`{}`)", printable(normalise(spelling), 64)),
        "QueueDoesNotExist" | "AccessDenied" | "InvalidAddress" => {
            text = format!("{text} (queue {})", asked.queue_url);
        }
        "InvalidSignature" | "RequestExpired" | "RequestTimeTooSkewed" => {
            if let Some(skew) = clock_skew(&answer.headers, asked.services.now()) {
                text = format!("{text} ({skew})");
            }
        }
        _ => {}
    }
    if let Some(said) = said {
        text = match quotable(said, asked.credentials, about) {
            true => format!("{text}; the service says: {}", printable(said, 300)),
            false => format!("{text}; what the service says repeats a secret or the message"),
        };
    }
    text
}

/// An answer that is not the service's: of a proxy, a load balancer, another server.
fn foreign(answer: &Answer, about: About<'_>, asked: &Asked<'_>) -> SinkError {
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
    error(
        verdict,
        Outcome::Unknown,
        text.to_owned(),
        answer,
        about,
        asked,
    )
}

fn error(
    verdict: Verdict,
    outcome: Outcome,
    text: String,
    answer: &Answer,
    about: About<'_>,
    asked: &Asked<'_>,
) -> SinkError {
    match verdict.kind {
        Kind::Permanent => SinkError::permanent(verdict.code, text),
        Kind::Config => SinkError::config(verdict.code, text),
        Kind::Throttled => {
            SinkError::retry_after(pause(answer, about, asked), outcome, verdict.code, text)
        }
        Kind::Transient => SinkError::transient(outcome, verdict.code, text),
    }
}

fn pause(answer: &Answer, about: About<'_>, asked: &Asked<'_>) -> Duration {
    answer
        .headers
        .get(header::RETRY_AFTER)
        .and_then(|value| retry_after::parse(value.to_str().ok()?, asked.services.now()))
        .unwrap_or_else(|| throttle_after(about.attempt, asked.services.draw()))
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
fn quotable(said: &str, credentials: &Credentials, about: About<'_>) -> bool {
    const PIECE: usize = 16;
    /// Shorter ones, such as an emulator's `test`, occur by chance and guard nothing.
    const LEAST_SECRET: usize = 6;
    let mut secrets = credentials
        .secrets()
        .filter(|secret| secret.len() >= LEAST_SECRET);
    if secrets.any(|secret| said.contains(secret)) {
        return false;
    }
    // Written as the message is, so that a quote looks the same in both.
    let mut written = String::new();
    push_json_string(&mut written, said);
    // A repeated stretch of twice this length holds at least one whole piece.
    let characters: Vec<char> = written.chars().take(4 * 1_024).collect();
    !characters.chunks_exact(PIECE).any(|piece| {
        let piece: String = piece.iter().collect();
        about.members.contains(&piece)
    })
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
