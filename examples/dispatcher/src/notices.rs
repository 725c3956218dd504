//! What people are told while a run goes on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{ErrorChain, SinkError, shown};
use tokio::time::Instant;

/// How often the same kind of failure is told.
const PERIOD: Duration = Duration::from_secs(60);

/// How many kinds are told apart; more are not told.
const MOST_KINDS: usize = 256;

/// Tells of each kind of failure once a minute, not once a hook.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    told: Mutex<HashMap<(String, String), Told>>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    silent: u64,
}

impl Notices {
    /// A delivery failed and will be tried again.
    pub(crate) fn will_try_again(&self, sink: &str, error: &SinkError, pause: Duration) {
        let Some(silent) = self.is_due(sink, error.code()) else {
            return;
        };
        tracing::warn!(
            sink,
            class = error.class().as_str(),
            code = error.code(),
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            not_told = silent,
            "{}; trying again",
            reason(error)
        );
    }

    /// A delivery failed and is given up, because too many of its sink wait already.
    pub(crate) fn will_not_wait(&self, sink: &str, error: &SinkError) {
        let Some(silent) = self.is_due(sink, "max_retrying_per_sink") else {
            return;
        };
        tracing::warn!(
            sink,
            code = error.code(),
            not_told = silent,
            "{}; not tried again: dispatch.max_retrying_per_sink hooks of this sink wait already",
            reason(error)
        );
    }

    /// How often this kind was not told since it was last; `None` to say nothing now.
    fn is_due(&self, sink: &str, code: &str) -> Option<u64> {
        let now = Instant::now();
        // Nothing is left half done under this lock.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = (sink.to_owned(), code.to_owned());
        if let Some(last) = told.get_mut(&kind) {
            if now.duration_since(last.at) < PERIOD {
                last.silent += 1;
                return None;
            }
            last.at = now;
            return Some(std::mem::take(&mut last.silent));
        }
        if told.len() < MOST_KINDS {
            told.insert(kind, Told { at: now, silent: 0 });
            return Some(0);
        }
        None
    }
}

/// What an error says, and everything that caused it, on one line.
pub(crate) fn reason(error: &SinkError) -> String {
    let causes = match std::error::Error::source(error) {
        None => String::new(),
        Some(source) => format!(": {}", ErrorChain(source)),
    };
    shown(&format!("{}{causes}", error.text()), 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::Outcome;

    #[tokio::test(start_paused = true)]
    async fn a_kind_of_failure_is_told_once_a_minute_with_how_often_it_was_not() {
        let notices = Notices::default();
        assert_eq!(notices.is_due("main", "Timeout"), Some(0));
        assert_eq!(notices.is_due("main", "Timeout"), None);
        assert_eq!(notices.is_due("main", "Timeout"), None);
        assert_eq!(notices.is_due("main", "ConnectFailed"), Some(0));
        assert_eq!(notices.is_due("other", "Timeout"), Some(0));
        tokio::time::advance(PERIOD).await;
        assert_eq!(notices.is_due("main", "Timeout"), Some(2));
    }

    #[test]
    fn a_reason_names_its_causes_on_one_line() {
        let error = SinkError::transient(Outcome::NotStored, "ConnectFailed", "no connection")
            .with_source(std::io::Error::other("connection\nrefused"));
        assert_eq!(reason(&error), "no connection: connection\\nrefused");
    }
}
