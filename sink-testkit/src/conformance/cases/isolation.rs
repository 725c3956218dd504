//! Isolation: callers, tenants and destinations do not disturb one another.

use crate::conformance::Case;

pub(super) const CASES: &[Case] = &[];
