//! Where hooks go that no attempt delivered.

use std::io;
use std::path::{Path, PathBuf};

use dispatch_api::{Envelope, SinkError};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::delivery::Verdict;
use crate::hook::dead_letter_line;

/// A file of dead letters, one hook a line, appended to. Made readable for its owner
/// only, because hooks hold what their senders sent.
#[derive(Debug)]
pub struct DeadLetters {
    path: PathBuf,
    file: File,
    /// The file ends within a line: an earlier write broke off.
    is_torn: bool,
}

impl DeadLetters {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        #[cfg(unix)]
        options.mode(0o600);
        let mut file = options.open(path).await?;
        let is_torn = file.metadata().await?.is_file() && ends_within_a_line(&mut file).await?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_torn,
        })
    }

    /// Appends one hook, and returns when it is handed to the system. A line that broke
    /// off before is closed first, so that it spoils itself alone.
    ///
    /// # Errors
    ///
    /// Those of the file system; then the hook is not in the file.
    pub async fn append(
        &mut self,
        envelope: &Envelope,
        verdict: &Verdict,
        error: &SinkError,
    ) -> io::Result<()> {
        let mut line = String::new();
        if self.is_torn {
            line.push('\n');
        }
        line.push_str(&dead_letter_line(envelope, verdict, error));
        line.push('\n');
        // Until all of it is written.
        self.is_torn = true;
        self.file.write_all(line.as_bytes()).await?;
        self.file.flush().await?;
        self.is_torn = false;
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

async fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata().await?.len() == 0 {
        return Ok(false);
    }
    file.seek(io::SeekFrom::End(-1)).await?;
    Ok(file.read_u8().await? != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::Hook;
    use dispatch_api::HostServices;

    #[tokio::test]
    async fn a_line_that_broke_off_spoils_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        std::fs::write(&path, "{\"source_id\":\"github\",\"bo").unwrap();
        let services = HostServices::new();
        let envelope = Envelope::new(services.new_envelope_id(), "github", 5, "whole");
        let error = SinkError::permanent("MessageTooLarge", "too large");
        let verdict = Verdict::refused(Some("main".to_owned()), error.clone());
        let mut letters = DeadLetters::open(&path).await.unwrap();
        letters.append(&envelope, &verdict, &error).await.unwrap();
        letters.append(&envelope, &verdict, &error).await.unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text
            .lines()
            .map(|line| Hook::parse(line.as_bytes(), &services).is_ok())
            .collect();
        assert_eq!(lines, [false, true, true]);
    }
}
