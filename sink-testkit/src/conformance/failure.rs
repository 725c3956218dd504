//! What a case says when a rule is broken, or cannot be played.

use std::error::Error;
use std::fmt;

/// What a case, or a step of it, comes to.
pub type Checked<T = ()> = Result<T, Failure>;

/// A broken rule: at which step, what was expected, and what was seen instead.
///
/// Neither text may hold a payload or a secret; a case compares those and says where
/// they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    step: String,
    expected: String,
    observed: String,
}

/// Whose failure it is.
///
/// Closed on purpose: only the subject's failures say something about the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The subject broke the rule.
    Subject,
    /// The case could not be played: the fixture or the suite failed.
    Kit,
    /// Nobody's: what the rule is about is not there.
    NotApplicable,
}

impl Failure {
    /// The subject did something else than expected.
    pub fn new(
        step: impl Into<String>,
        expected: impl Into<String>,
        observed: impl Into<String>,
    ) -> Self {
        Self {
            kind: FailureKind::Subject,
            step: step.into(),
            expected: expected.into(),
            observed: observed.into(),
        }
    }

    /// The case could not be played.
    pub fn of_kit(step: impl Into<String>, observed: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Kit,
            step: step.into(),
            expected: "the fixture does its part".to_owned(),
            observed: observed.into(),
        }
    }

    /// The rule is about something that this adapter does not have, as the case finds out while
    /// it runs: `the schema has no table`. The verdict is
    /// [`Verdict::NotApplicable`](super::Verdict::NotApplicable), with this reason.
    ///
    /// For what an adapter may be without. What its profile declares and its fixture lacks is
    /// [`Failure::of_kit`].
    pub fn not_applicable(reason: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::NotApplicable,
            step: String::new(),
            expected: String::new(),
            observed: reason.into(),
        }
    }

    /// Whose failure it is.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Where it failed.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            expected,
            observed,
            ..
        } = self;
        let whose = match self.kind {
            FailureKind::Subject => "",
            FailureKind::Kit => "kit: ",
            FailureKind::NotApplicable => return f.write_str(observed),
        };
        write!(f, "{whose}{step}: expected {expected}; observed {observed}")
    }
}

impl Error for Failure {}

/// Fails unless `holds`.
///
/// # Errors
///
/// The failure of these texts.
pub fn check(
    holds: bool,
    step: &str,
    expected: impl Into<String>,
    observed: impl Into<String>,
) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(step, expected, observed))
    }
}

/// Fails unless both are equal. For values without payloads.
///
/// # Errors
///
/// A failure that shows both.
pub fn check_eq<T: fmt::Debug + PartialEq>(step: &str, expected: &T, observed: &T) -> Checked {
    check(
        expected == observed,
        step,
        format!("{expected:?}"),
        format!("{observed:?}"),
    )
}
