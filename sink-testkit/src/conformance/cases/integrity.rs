//! Integrity: what was stored is what was sent.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
