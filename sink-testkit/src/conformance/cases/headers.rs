//! Headers and attributes: none is lost, doubled, bent or taken for another.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
