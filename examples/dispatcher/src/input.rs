//! Hooks from a file or standard input, a line at a time.

use std::fmt;
use std::io;
use std::path::Path;

use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};

/// The longest line that is read: 64 MiB. A longer one is reported and skipped.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Numbered lines.
pub struct Input {
    reader: Box<dyn AsyncBufRead + Send + Unpin>,
    line: u64,
}

/// One line of input. `Debug` shows its number and length only.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// The line's number, from 1, and its bytes without the line break.
    Text(u64, Vec<u8>),
    /// The number of a line over [`MAX_LINE_BYTES`].
    TooLong(u64),
}

impl Input {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub async fn open(path: &Path) -> io::Result<Self> {
        Ok(if path.as_os_str() == "-" {
            Self::new(BufReader::new(tokio::io::stdin()))
        } else {
            let file = File::open(path).await?;
            if file.metadata().await?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Self::new(BufReader::new(file))
        })
    }

    /// Reads lines from anything.
    pub fn new(reader: impl AsyncBufRead + Send + Unpin + 'static) -> Self {
        Self {
            reader: Box::new(reader),
            line: 0,
        }
    }

    /// The next line that is not blank; `None` at the end.
    ///
    /// Dropping the future loses what was read of the line.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some(line) = self.read_line().await? else {
                return Ok(None);
            };
            match &line {
                Line::Text(_, text) if text.trim_ascii().is_empty() => {}
                _ => return Ok(Some(line)),
            }
        }
    }

    async fn read_line(&mut self) -> io::Result<Option<Line>> {
        let mut text = Vec::new();
        let (mut started, mut too_long) = (false, false);
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                if !started {
                    return Ok(None);
                }
                break;
            }
            if !started {
                started = true;
                self.line += 1;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            if text.len() + taken > MAX_LINE_BYTES {
                too_long = true;
                text = Vec::new();
            } else if !too_long {
                text.extend_from_slice(&available[..taken]);
            }
            self.reader.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                break;
            }
        }
        Ok(Some(if too_long {
            Line::TooLong(self.line)
        } else {
            Line::Text(self.line, text)
        }))
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(number, text) => write!(f, "Text({number}, {} bytes)", text.len()),
            Self::TooLong(number) => write!(f, "TooLong({number})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8]) -> Vec<Line> {
        let mut input = Input::new(BufReader::new(io::Cursor::new(text.to_vec())));
        let mut lines = Vec::new();
        while let Some(line) = input.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn blank_lines_are_passed_over_and_still_counted() {
        assert_eq!(
            lines(b"a\n\n  \r\nb").await,
            [Line::Text(1, b"a".to_vec()), Line::Text(4, b"b".to_vec())]
        );
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_skipped_and_the_next_one_read() {
        let mut text = vec![b'x'; MAX_LINE_BYTES + 1];
        text.extend_from_slice(b"\nb\n");
        assert_eq!(
            lines(&text).await,
            [Line::TooLong(1), Line::Text(2, b"b".to_vec())]
        );
    }
}
