//! A case: a rule, how to play it, and what an adapter has to declare first.

use std::fmt;
use std::pin::Pin;

use super::context::Context;
use super::failure::Checked;
use super::fault::FaultKind;
use super::profile::{Capability, Profile};

/// How a case, or its inverse, is played.
pub type CaseFn = for<'a> fn(&'a Context<'_>) -> Pin<Box<dyn Future<Output = Checked> + 'a>>;

/// One rule, played against a fixture.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// The name of its test and of its row in a ledger.
    pub id: &'static str,
    /// The rule as a sentence.
    pub rule: &'static str,
    /// What an adapter has to declare for the rule to hold.
    pub needs: Needs,
    /// Plays it.
    pub run: CaseFn,
    /// Plays what holds where a needed capability is not declared.
    pub inverse: Option<CaseFn>,
}

/// What a case asks of a profile.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Needs {
    /// Every one of these is declared.
    pub capabilities: &'static [Capability],
    /// The fixture can play every one of these.
    pub faults: &'static [FaultKind],
}

impl Needs {
    /// Nothing is asked.
    pub const NOTHING: Self = Self {
        capabilities: &[],
        faults: &[],
    };

    /// The first capability that is missing.
    #[must_use]
    pub fn missing_capability(&self, profile: &Profile) -> Option<Capability> {
        let mut capabilities = self.capabilities.iter().copied();
        capabilities.find(|capability| !profile.has(*capability))
    }

    /// The first fault that is missing.
    #[must_use]
    pub fn missing_fault(&self, profile: &Profile) -> Option<FaultKind> {
        let mut faults = self.faults.iter().copied();
        faults.find(|fault| !profile.faults.contains(fault))
    }
}

impl Case {
    /// A case that every adapter plays.
    #[must_use]
    pub const fn new(id: &'static str, rule: &'static str, run: CaseFn) -> Self {
        Self {
            id,
            rule,
            needs: Needs::NOTHING,
            run,
            inverse: None,
        }
    }

    /// Whether a mode of this profile plays the inverse of the rule: a needed capability is not
    /// declared, and every needed fault is.
    #[must_use]
    pub fn is_inverted(&self, profile: &Profile) -> bool {
        self.inverse.is_some()
            && self.needs.missing_fault(profile).is_none()
            && self.needs.missing_capability(profile).is_some()
    }

    /// Asks for capabilities.
    #[must_use]
    pub const fn needs_capabilities(mut self, capabilities: &'static [Capability]) -> Self {
        self.needs.capabilities = capabilities;
        self
    }

    /// Asks for faults.
    #[must_use]
    pub const fn needs_faults(mut self, faults: &'static [FaultKind]) -> Self {
        self.needs.faults = faults;
        self
    }

    /// What holds where a capability is not declared.
    #[must_use]
    pub const fn otherwise(mut self, inverse: CaseFn) -> Self {
        self.inverse = Some(inverse);
        self
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("id", &self.id)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// A case whose id is its function's name:
/// `case!(its_name, "the rule")`.
macro_rules! case {
    ($name:ident, $rule:literal) => {
        $crate::conformance::Case::new(stringify!($name), $rule, |context| Box::pin($name(context)))
    };
}
pub(crate) use case;
