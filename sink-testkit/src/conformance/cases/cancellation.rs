//! Cancellation: a caller that goes away harms nobody.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
