//! Mutants of `conformance::cases::headers`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
