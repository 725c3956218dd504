//! Mutants of `conformance::cases::secrets`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
