//! Identity: repeats, replays and the names by which the destination knows a message.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
