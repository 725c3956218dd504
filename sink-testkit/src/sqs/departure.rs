//! Ways in which a connection ends that no well-behaved HTTP server would choose.

use std::fmt::Write as _;
use std::io;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::answer::Answer;

/// How a connection ends in place of an answer. It travels as the error of the HTTP service.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Departure {
    /// Closed in the middle of things.
    #[error("the connection is reset")]
    Reset,
    /// Not at all.
    #[error("no answer is given")]
    Silence,
    /// These bytes, then closed in order.
    #[error("the connection is closed")]
    Write { status: u16, bytes: Bytes },
}

impl Departure {
    /// The whole answer, without a word that the connection will be closed.
    pub(crate) fn whole(answer: &Answer) -> Self {
        let length = answer.body.len();
        Self::write(answer, &format!("{CONTENT_LENGTH}: {length}"), &answer.body)
    }

    /// Half of an answer that promises all of itself, or a body where there is none.
    pub(crate) fn cut(answer: &Answer) -> Self {
        let length = answer.body.len().max(64);
        Self::write(
            answer,
            &format!("{CONTENT_LENGTH}: {length}"),
            half(&answer.body),
        )
    }

    /// Half of an answer in one chunk, without the chunk that ends it.
    pub(crate) fn cut_chunks(answer: &Answer) -> Self {
        let half = half(&answer.body);
        let mut chunk = Vec::with_capacity(half.len() + 16);
        if !half.is_empty() {
            chunk.extend_from_slice(format!("{:x}\r\n", half.len()).as_bytes());
            chunk.extend_from_slice(half);
            chunk.extend_from_slice(b"\r\n");
        }
        Self::write(answer, "transfer-encoding: chunked", &chunk)
    }

    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Reset | Self::Silence => None,
            Self::Write { status, .. } => Some(*status),
        }
    }

    /// Ends the connection.
    pub(crate) async fn carry_out(self, mut stream: TcpStream) -> io::Result<()> {
        match self {
            // Without time to linger, closing sends a reset.
            Self::Reset | Self::Silence => stream.set_zero_linger(),
            Self::Write { bytes, .. } => {
                stream.write_all(&bytes).await?;
                stream.shutdown().await
            }
        }
    }

    fn write(answer: &Answer, framing: &str, body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {}\r\n{framing}\r\n", answer.status);
        let headers = answer
            .headers
            .iter()
            .filter(|(name, _)| **name != CONNECTION && **name != CONTENT_LENGTH);
        for (name, value) in headers {
            if let Ok(value) = value.to_str() {
                // Writing to a text cannot fail.
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        Self::Write {
            status: answer.status.as_u16(),
            bytes: bytes.into(),
        }
    }
}

fn half(body: &Bytes) -> &[u8] {
    body.get(..body.len() / 2).unwrap_or_default()
}
