//! Mutants of `conformance::cases::integrity`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
