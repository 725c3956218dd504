//! Mutants of `conformance::cases::identity`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
