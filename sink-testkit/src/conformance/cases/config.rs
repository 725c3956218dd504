//! Configuration: what is wrong is refused when the sink is built, by name.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
