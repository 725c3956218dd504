//! Mutants of `conformance::cases::errors`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
