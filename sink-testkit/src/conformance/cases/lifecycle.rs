//! Building and leaving: without a network, without leaks.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
