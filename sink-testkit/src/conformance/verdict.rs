//! How a case can end.

use std::fmt;
use std::str::FromStr;

/// How a case ended for one mode of one adapter.
///
/// Closed on purpose: a case that fits none of these has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The rule was played and kept.
    Passed,
    /// The rule was broken, or could not be played for a reason that nobody declared.
    Failed,
    /// The adapter does not declare what the rule is about, and there is nothing to be
    /// refused either; or it has nothing of the kind, such as a table within its options.
    NotApplicable,
    /// The adapter does not declare it, and was seen to say so.
    RefusedAsDeclared,
    /// The case ran, and something that it needs never happened: no evidence. Counts as
    /// failed.
    NotExercised,
}

impl Verdict {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 5] = [
        Self::Passed,
        Self::Failed,
        Self::NotApplicable,
        Self::RefusedAsDeclared,
        Self::NotExercised,
    ];

    /// The verdict as ledgers write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotApplicable => "not applicable",
            Self::RefusedAsDeclared => "refused as declared",
            Self::NotExercised => "not exercised",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verdict {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == text)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join("`, `");
                format!("`{text}` is no verdict: it has to be one of `{known}`")
            })
    }
}
