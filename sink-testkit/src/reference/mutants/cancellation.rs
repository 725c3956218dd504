//! Mutants of `conformance::cases::cancellation`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
