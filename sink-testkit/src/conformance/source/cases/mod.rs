//! The cases, by what they are about.

mod ack;
mod back;
mod receive;
mod receive_faults;
mod receive_limits;
mod retry;

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

const GROUPS: [(&str, &[SourceCase]); 5] = [
    ("receive", receive::CASES),
    ("receive_limits", receive_limits::CASES),
    ("receive_faults", receive_faults::CASES),
    ("ack", ack::CASES),
    ("retry", retry::CASES),
];
