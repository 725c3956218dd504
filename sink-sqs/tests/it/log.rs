//! What is logged on the thread of a test.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

/// Listens until it is dropped, to spans that end as well.
pub(crate) struct Log {
    lines: Lines,
    _listening: DefaultGuard,
}

impl Log {
    /// What is at least as grave as this.
    pub(crate) fn of(level: Level) -> Self {
        let lines = Lines::default();
        let written = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        Self {
            lines,
            _listening: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
