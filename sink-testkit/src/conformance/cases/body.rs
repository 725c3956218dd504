//! The body: every byte arrives as it was captured.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
