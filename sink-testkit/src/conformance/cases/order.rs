//! Order: deliveries of one key arrive in theirs.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
