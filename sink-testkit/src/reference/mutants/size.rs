//! Mutants of `conformance::cases::size`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
