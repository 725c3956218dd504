//! The bounds of a batcher, and the words for what it does.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::error::{Outcome, SinkError};

/// The bounds of a batcher.
///
/// Entries count against the ceilings of the queue from their admission to their
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchSettings {
    /// How long a batch waits to fill, from its first entry's admission. Default 20 ms.
    pub linger: Duration,
    /// The most entries of a batch. Default 10.
    pub max_entries: NonZeroUsize,
    /// The most bytes of a batch. An entry that is larger goes alone. Default 262,144.
    pub max_bytes: usize,
    /// The most entries admitted and not yet answered. Default 4,096.
    pub queue_max_entries: usize,
    /// The most bytes admitted and not yet answered. Default 128 MiB.
    pub queue_max_bytes: usize,
    /// The most entries of one tenant admitted and not yet answered. Default 1,024.
    pub queue_max_tenant_entries: usize,
    /// The most requests in flight. Default 8.
    pub max_inflight: NonZeroUsize,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(20),
            max_entries: NonZeroUsize::new(10).expect("10 is not zero"),
            max_bytes: 262_144,
            queue_max_entries: 4_096,
            queue_max_bytes: 128 << 20,
            queue_max_tenant_entries: 1_024,
            max_inflight: NonZeroUsize::new(8).expect("8 is not zero"),
        }
    }
}

/// Which ceiling of the queue an entry would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueFull {
    /// [`BatchSettings::queue_max_bytes`].
    Bytes,
    /// [`BatchSettings::queue_max_entries`].
    Entries,
    /// [`BatchSettings::queue_max_tenant_entries`].
    TenantEntries,
}

impl QueueFull {
    /// The ceiling as a label: `bytes`, `entries` or `tenant_entries`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Entries => "entries",
            Self::TenantEntries => "tenant_entries",
        }
    }

    /// The refusal as an answer: come back after `pause`. Code `BatchQueueFull`.
    #[must_use]
    pub fn into_error(self, pause: Duration) -> SinkError {
        let what = match self {
            Self::Bytes => "as many bytes as it may (batch_queue_max_bytes)",
            Self::Entries => "as many messages as it may (batch_queue_max)",
            Self::TenantEntries => {
                "as many messages of this tenant as it may (batch_queue_tenant_max)"
            }
        };
        SinkError::retry_after(
            pause,
            Outcome::NotStored,
            "BatchQueueFull",
            format!("{}: the queue holds {what}", self.as_str()),
        )
    }
}

/// Why a batch left when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// The bytes of a batch were there.
    Bytes,
    /// The entries of a batch were there.
    Entries,
    /// Its first entry had lingered long enough.
    Linger,
    /// Somebody asked for it, such as a drain.
    Requested,
}

impl FlushReason {
    /// The reason as a label: `bytes`, `entries`, `linger` or `requested`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Entries => "entries",
            Self::Linger => "linger",
            Self::Requested => "requested",
        }
    }
}
