//! Mutants of `conformance::cases::replies`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
