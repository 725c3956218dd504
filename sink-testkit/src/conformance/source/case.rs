//! A rule for sources, and when it applies.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::context::SourceContext;
use super::fault::{Operation, SourceFaultKind};
use super::profile::{SourceCapability, SourceProfile};
use crate::conformance::Checked;

/// How a case is played.
pub type SourceCaseFn =
    for<'a> fn(&'a SourceContext<'_>) -> Pin<Box<dyn Future<Output = Checked> + 'a>>;

/// One rule.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct SourceCase {
    /// Its name, in ledgers for good.
    pub id: &'static str,
    /// The rule as a sentence.
    pub rule: &'static str,
    /// What it cannot do without.
    pub capabilities: &'static [SourceCapability],
    /// The faults that it plays.
    pub faults: &'static [(Operation, SourceFaultKind)],
    /// The case.
    pub run: SourceCaseFn,
    /// What holds where a capability is not declared.
    pub inverse: Option<SourceCaseFn>,
}

impl SourceCase {
    /// A case for every source.
    #[must_use]
    pub const fn new(id: &'static str, rule: &'static str, run: SourceCaseFn) -> Self {
        Self {
            id,
            rule,
            capabilities: &[],
            faults: &[],
            run,
            inverse: None,
        }
    }

    /// Whether a mode of this profile plays the inverse of the rule: a needed capability is not
    /// declared, and every needed fault is.
    #[must_use]
    pub fn is_inverted(&self, profile: &SourceProfile) -> bool {
        self.inverse.is_some()
            && self.missing_fault(profile).is_none()
            && self.missing_capability(profile).is_some()
    }

    /// A case for sources that declare all of these.
    #[must_use]
    pub const fn needs(mut self, capabilities: &'static [SourceCapability]) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// A case for fixtures that play all of these.
    #[must_use]
    pub const fn plays(mut self, faults: &'static [(Operation, SourceFaultKind)]) -> Self {
        self.faults = faults;
        self
    }

    /// What holds where a capability is not declared.
    #[must_use]
    pub const fn otherwise(mut self, inverse: SourceCaseFn) -> Self {
        self.inverse = Some(inverse);
        self
    }

    pub(super) fn missing_capability(&self, profile: &SourceProfile) -> Option<SourceCapability> {
        let mut capabilities = self.capabilities.iter().copied();
        capabilities.find(|capability| !profile.has(*capability))
    }

    pub(super) fn missing_fault(
        &self,
        profile: &SourceProfile,
    ) -> Option<(Operation, SourceFaultKind)> {
        let mut faults = self.faults.iter().copied();
        faults.find(|fault| !profile.faults.contains(fault))
    }
}

impl fmt::Debug for SourceCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceCase")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A case of the function's own name.
macro_rules! source_case {
    ($name:ident, $rule:literal) => {
        $crate::conformance::source::SourceCase::new(stringify!($name), $rule, |context| {
            Box::pin($name(context))
        })
    };
}
pub(crate) use source_case;
