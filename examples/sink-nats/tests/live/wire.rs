//! The protocol's frames: a line, and for messages the bytes that it counts.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// One frame as it was on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Line, content and their ends.
    pub(crate) bytes: Bytes,
    /// The words of the line.
    pub(crate) words: Vec<String>,
    /// Of the content, how much is headers.
    header_bytes: usize,
    line_bytes: usize,
}

impl Frame {
    /// Reads the next frame; `None` at the end of the connection.
    pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let number = |word: Option<&String>| {
            word.and_then(|word| word.parse::<usize>().ok())
                .ok_or_else(|| io::Error::other("a frame without its size"))
        };
        let verb = words.first().map_or("", |verb| &**verb);
        let (header_bytes, content_bytes) = match verb {
            "HPUB" | "HMSG" => (
                number(words.iter().rev().nth(1))?,
                Some(number(words.last())?),
            ),
            "PUB" | "MSG" => (0, Some(number(words.last())?)),
            _ => (0, None),
        };
        let line_bytes = line.len();
        let mut bytes = BytesMut::from(&*line);
        if let Some(content) = content_bytes {
            bytes.resize(line_bytes + content + 2, 0);
            from.read_exact(&mut bytes[line_bytes..]).await?;
        }
        Ok(Some(Self {
            bytes: bytes.freeze(),
            words,
            header_bytes,
            line_bytes,
        }))
    }

    /// What the frame is: `PUB`, `MSG`, `INFO` and so on.
    pub(crate) fn verb(&self) -> &str {
        self.word(0)
    }

    /// A word of the line; empty where there is none.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", |word| &**word)
    }

    /// Headers and payload.
    pub(crate) fn content(&self) -> Bytes {
        let end = self.bytes.len().saturating_sub(2).max(self.line_bytes);
        self.bytes.slice(self.line_bytes..end)
    }

    /// The payload without headers.
    pub(crate) fn payload(&self) -> Bytes {
        self.content().slice(self.header_bytes..)
    }

    /// The headers, in their order.
    pub(crate) fn headers(&self) -> Vec<(String, Bytes)> {
        headers(&self.content().slice(..self.header_bytes))
    }
}

/// Reads `NATS/1.0` headers: names and values, in their order.
pub(crate) fn headers(block: &Bytes) -> Vec<(String, Bytes)> {
    let mut headers = Vec::new();
    for line in block.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let value = &line[colon + 1..];
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let name = String::from_utf8_lossy(&line[..colon]).into_owned();
        headers.push((name, Bytes::copy_from_slice(value)));
    }
    headers
}
