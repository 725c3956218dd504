//! A planned message, written out: what waits in a batch and what goes into a request.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::digest::HexDigest;
use crate::entry::Entry;
use crate::protocol;
use crate::share::Route;

/// One message as it stands in a request, and what its answer is judged by.
///
/// It is written and digested where the delivery begins, so that a request is put
/// together by copying.
#[derive(Clone)]
pub(crate) struct Prepared {
    /// The members of the message's JSON object, without braces.
    pub(crate) members: String,
    pub(crate) body_md5: HexDigest,
    pub(crate) attributes_md5: Option<HexDigest>,
    /// The size as the service counts it.
    pub(crate) size: usize,
    /// Which attempt of the host this is.
    pub(crate) attempt: NonZeroU32,
    /// How it is sent.
    pub(crate) route: Arc<Route>,
}

impl Prepared {
    pub(crate) fn new(entry: &Entry<'_>, attempt: NonZeroU32, route: &Arc<Route>) -> Self {
        Self {
            members: protocol::members(entry),
            body_md5: entry.body_md5(),
            attributes_md5: entry.attributes_md5(),
            size: entry.size,
            attempt,
            route: Arc::clone(route),
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
