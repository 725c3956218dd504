//! Registration, and what a sink declares.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
