//! Mutants of `conformance::cases::config`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
