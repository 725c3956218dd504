//! The cases, by what they are about.

mod order;
mod receive;
mod steps;
mod stop;

use super::case::SourceCase;

/// Every case, in the order of the reports.
#[must_use]
pub fn all() -> Vec<SourceCase> {
    GROUPS.map(|(_, cases)| cases).concat()
}

/// The groups of cases, by the name of each.
pub fn groups() -> impl Iterator<Item = (&'static str, &'static [SourceCase])> {
    GROUPS.into_iter()
}

const GROUPS: [(&str, &[SourceCase]); 3] = [
    ("receive", receive::CASES),
    ("order", order::CASES),
    ("stop", stop::CASES),
];
