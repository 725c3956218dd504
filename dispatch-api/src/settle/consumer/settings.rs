//! The bounds of a consumer.

use std::num::NonZeroUsize;
use std::time::Duration;

/// The bounds of a [`Consumer`](super::Consumer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerSettings {
    /// The most handlers that run at once; a settlement takes none's place. Default 8.
    pub concurrency: NonZeroUsize,
    /// How long a handler may take; after that its delivery is a retry. Default 5 minutes.
    pub handler_timeout: Duration,
    /// Stop once a receive brought nothing and nothing is in hand. Default false.
    pub until_empty: bool,
    /// The pause after a first failed receive; it doubles up to
    /// [`max_pause`](ConsumerSettings::max_pause). Default 200 ms.
    pub pause: Duration,
    /// The longest pause after failed receives of its own. Default 30 s.
    pub max_pause: Duration,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            concurrency: NonZeroUsize::new(8).expect("8 is not zero"),
            handler_timeout: Duration::from_secs(300),
            until_empty: false,
            pause: Duration::from_millis(200),
            max_pause: Duration::from_secs(30),
        }
    }
}
