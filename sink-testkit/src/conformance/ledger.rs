//! The verdicts that are expected, checked in beside an adapter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::SUITE_VERSION;
use super::verdict::Verdict;

/// The expected verdict of every case in every mode of an adapter.
///
/// Any difference fails, also a case that passes where it did not before, and one that is
/// skipped where it was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    modes: BTreeMap<String, BTreeMap<String, Verdict>>,
}

/// What is wrong with a ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It cannot be read.
    #[error("the ledger {path} cannot be read; UPDATE_LEDGER=1 writes it")]
    Unreadable {
        /// Where it should be.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no ledger.
    #[error("the ledger {path} is malformed: {text}")]
    Malformed {
        /// Where it is.
        path: String,
        /// What is wrong.
        text: String,
    },
    /// It was written for another version of the suite.
    #[error(
        "the ledger {path} is of version {found} of the suite, and this is version \
         {SUITE_VERSION}: see what changed, then write it anew with UPDATE_LEDGER=1"
    )]
    OtherVersion {
        /// Where it is.
        path: String,
        /// Its version.
        found: u32,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    suite: u32,
    #[serde(default)]
    modes: BTreeMap<String, BTreeMap<String, String>>,
}

impl Ledger {
    /// A ledger of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a ledger.
    ///
    /// # Errors
    ///
    /// [`LedgerError`].
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| LedgerError::Unreadable {
            path: shown.clone(),
            source,
        })?;
        Self::parse(&text, &shown)
    }

    /// Reads the text of a ledger; `path` is for the error.
    ///
    /// # Errors
    ///
    /// [`LedgerError`].
    pub fn parse(text: &str, path: &str) -> Result<Self, LedgerError> {
        let malformed = |text: String| LedgerError::Malformed {
            path: path.to_owned(),
            text,
        };
        let raw: Raw = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if raw.suite != SUITE_VERSION {
            return Err(LedgerError::OtherVersion {
                path: path.to_owned(),
                found: raw.suite,
            });
        }
        let mut ledger = Self::new();
        for (mode, cases) in raw.modes {
            for (case, verdict) in cases {
                let verdict = verdict
                    .parse()
                    .map_err(|text| malformed(format!("{mode}.{case}: {text}")))?;
                ledger.set(&mode, &case, verdict);
            }
        }
        Ok(ledger)
    }

    /// Sets the verdict of a case.
    pub fn set(&mut self, mode: &str, case: &str, verdict: Verdict) {
        let cases = self.modes.entry(mode.to_owned()).or_default();
        cases.insert(case.to_owned(), verdict);
    }

    /// The verdict of a case.
    #[must_use]
    pub fn get(&self, mode: &str, case: &str) -> Option<Verdict> {
        self.modes.get(mode)?.get(case).copied()
    }

    /// Every mode and case that it holds.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, Verdict)> {
        self.modes.iter().flat_map(|(mode, cases)| {
            let cases = cases.iter();
            cases.map(move |(case, verdict)| (&**mode, &**case, *verdict))
        })
    }

    /// The ledger as a file: the modes and cases sorted, a line a case.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "# What every case of the conformance suite comes to. UPDATE_LEDGER=1 writes it.\n\
             suite = {SUITE_VERSION}\n"
        );
        for (mode, cases) in &self.modes {
            let _ = writeln!(text, "\n[modes.{mode}]");
            for (case, verdict) in cases {
                let _ = writeln!(text, "{case} = \"{verdict}\"");
            }
        }
        text
    }
}
