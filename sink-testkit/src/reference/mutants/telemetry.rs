//! Mutants of `conformance::cases::telemetry`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
