//! Mutants of `conformance::cases::batches`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
