//! The JSON of replies.

use serde::{Deserialize, Serialize};

/// A success.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Results {
    pub(super) stored: Vec<StoredEntry>,
    pub(super) failed: Vec<FailedEntry>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct StoredEntry {
    pub(super) id: String,
    pub(super) message_id: String,
    pub(super) sequence: String,
    pub(super) body_sha256: Option<String>,
    pub(super) attributes_sha256: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct FailedEntry {
    pub(super) id: String,
    pub(super) code: String,
    pub(super) text: String,
}

/// A failure of the whole request.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ErrorBody {
    pub(super) code: String,
    pub(super) text: String,
}

impl Results {
    pub(super) fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings are always JSON")
    }
}

impl ErrorBody {
    pub(super) fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings are always JSON")
    }
}
