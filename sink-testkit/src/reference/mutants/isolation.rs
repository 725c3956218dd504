//! Mutants of `conformance::cases::isolation`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
