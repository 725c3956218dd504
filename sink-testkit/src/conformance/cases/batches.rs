//! Batches: one answer for each message, and every limit kept.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
