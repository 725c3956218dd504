//! The cases, by what they are about.

mod copies;
mod delay;
mod drop;
mod extension;
mod hold;
mod receive;
mod redrive;
mod returns;

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

const GROUPS: [(&str, &[SourceCase]); 7] = [
    ("receive", receive::CASES),
    ("delay", delay::CASES),
    ("copies", copies::CASES),
    ("drop", drop::CASES),
    ("hold", hold::CASES),
    ("extension", extension::CASES),
    ("redrive", redrive::CASES),
];
