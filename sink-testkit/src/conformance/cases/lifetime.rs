//! Lifetime: closing, restarting, and two sinks side by side.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
