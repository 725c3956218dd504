//! Mutants of `conformance::cases::lifetime`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
