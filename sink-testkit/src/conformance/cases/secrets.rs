//! Secrets and payloads stay where they belong.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
