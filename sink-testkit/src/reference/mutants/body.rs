//! Mutants of `conformance::cases::body`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
