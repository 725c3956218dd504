//! Replies that are not to be understood, hints, and network failures.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
