//! Error classes: what a failure says about what to do next.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
