//! Mutants of `conformance::cases::order`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
