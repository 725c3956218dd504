//! Mutants of `conformance::cases::lifecycle`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
