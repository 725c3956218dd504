//! Size: what fits is taken, what does not is refused before anything is sent.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
