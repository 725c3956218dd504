//! Mutants of `conformance::cases::registry`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
