//! What a server saw.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::operation::Operation;

/// One request that came in.
#[derive(Clone)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// What it asked for; nothing when that was no operation of this server.
    pub operation: Option<Operation>,
    /// The method and path, such as `POST /`.
    pub line: String,
    /// All headers, the signature and a session token among them.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
    /// The status of the answer; nothing while there is none, and when a fault took it away.
    pub status: Option<u16>,
    /// Whether the operation was carried out, whatever the client was told.
    pub carried_out: bool,
    /// Whether a fault was played.
    pub faulted: bool,
    /// The connection, counted from 1 in the order in which they were opened.
    pub connection: u64,
    /// The server's clock when the request had come in whole.
    pub at: SystemTime,
}

impl RecordedRequest {
    /// The body as JSON; null when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The text of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Shows neither headers' values nor the body: both can hold secrets.
impl fmt::Debug for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedRequest")
            .field("operation", &self.operation)
            .field("line", &self.line)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body_bytes", &self.body.len())
            .field("status", &self.status)
            .field("carried_out", &self.carried_out)
            .field("faulted", &self.faulted)
            .field("connection", &self.connection)
            .field("at", &self.at)
            .finish()
    }
}

/// The latest requests, up to a limit on their number and on the bytes of their bodies.
#[derive(Debug)]
pub(crate) struct RecordBook {
    limit: RecordLimit,
    bytes: usize,
    requests: VecDeque<RecordedRequest>,
    /// The number of the oldest one kept.
    first: u64,
    /// How many the limits drove out.
    dropped: u64,
}

/// How much a server remembers of its requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RecordLimit {
    /// Requests to keep.
    pub requests: usize,
    /// Bytes of request bodies to keep.
    pub body_bytes: usize,
}

impl RecordLimit {
    /// Keeps up to this many requests and this many bytes of their bodies. Zero requests keep none.
    #[must_use]
    pub const fn new(requests: usize, body_bytes: usize) -> Self {
        Self {
            requests,
            body_bytes,
        }
    }
}

impl Default for RecordLimit {
    /// Enough for any test: 100,000 requests and 512 MiB.
    fn default() -> Self {
        Self::new(100_000, 512 * 1_048_576)
    }
}

impl RecordBook {
    pub(crate) const fn new(limit: RecordLimit) -> Self {
        Self {
            limit,
            bytes: 0,
            requests: VecDeque::new(),
            first: 0,
            dropped: 0,
        }
    }

    /// Keeps a request and returns its number.
    pub(crate) fn push(&mut self, request: RecordedRequest) -> u64 {
        let number = self.first + self.requests.len() as u64;
        self.bytes += request.body.len();
        self.requests.push_back(request);
        while self.requests.len() > self.limit.requests || self.bytes > self.limit.body_bytes {
            let Some(oldest) = self.requests.pop_front() else {
                break;
            };
            self.bytes -= oldest.body.len();
            self.first += 1;
            self.dropped += 1;
        }
        number
    }

    pub(crate) fn update(&mut self, number: u64, change: impl FnOnce(&mut RecordedRequest)) {
        let request = number
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| self.requests.get_mut(index));
        if let Some(request) = request {
            change(request);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &RecordedRequest> {
        self.requests.iter()
    }

    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn clear(&mut self) {
        self.first += self.requests.len() as u64;
        self.requests.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn request(body: &'static str) -> RecordedRequest {
        RecordedRequest {
            operation: Some(Operation::SendMessage),
            line: "POST /".into(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
            status: None,
            carried_out: false,
            faulted: false,
            connection: 1,
            at: UNIX_EPOCH,
        }
    }

    #[test]
    fn the_oldest_are_dropped_and_counted_beyond_either_limit() {
        let mut book = RecordBook::new(RecordLimit::new(2, 10));
        for body in ["aaaa", "bbbb", "cccc", "dddddddd"] {
            book.push(request(body));
        }
        let bodies: Vec<&[u8]> = book.all().map(|request| request.body.as_ref()).collect();
        assert_eq!(bodies, [b"dddddddd"]);
        assert_eq!(book.dropped(), 3);
    }

    #[test]
    fn an_answer_is_noted_at_its_request_even_when_others_were_dropped() {
        let mut book = RecordBook::new(RecordLimit::new(1, 100));
        let first = book.push(request("a"));
        let second = book.push(request("b"));
        book.update(first, |request| request.status = Some(500));
        book.update(second, |request| request.status = Some(200));
        assert_eq!(book.all().next().unwrap().status, Some(200));
    }

    #[test]
    fn debug_shows_no_header_value_and_no_body() {
        let mut request = request("the body");
        request.headers.insert(
            "x-amz-security-token",
            http::HeaderValue::from_static("the token"),
        );
        let shown = format!("{request:?}");
        assert!(
            !shown.contains("the token") && !shown.contains("the body"),
            "{shown}"
        );
    }
}
