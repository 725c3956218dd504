//! Where hooks go that no attempt delivered.

use std::io;
use std::path::{Path, PathBuf};

use dispatch_api::{Envelope, SinkError};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use crate::hook::dead_letter_line;

/// A file of dead letters, one hook a line, appended to. Made readable for its owner
/// only, because hooks hold what their senders sent.
#[derive(Debug)]
pub struct DeadLetters {
    path: PathBuf,
    file: File,
}

impl DeadLetters {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        options.mode(0o600);
        Ok(Self {
            path: path.to_owned(),
            file: options.open(path).await?,
        })
    }

    /// Appends one hook, and returns when it is handed to the system.
    ///
    /// # Errors
    ///
    /// Those of the file system; then the hook is not in the file.
    pub async fn append(
        &mut self,
        envelope: &Envelope,
        sink: &str,
        error: &SinkError,
        attempts: u32,
    ) -> io::Result<()> {
        let mut line = dead_letter_line(envelope, sink, error, attempts);
        line.push('\n');
        self.file.write_all(line.as_bytes()).await?;
        self.file.flush().await
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
