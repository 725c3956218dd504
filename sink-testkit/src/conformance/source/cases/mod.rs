//! The cases, by what they are about.

mod ack;
mod copies;
mod delay;
mod drop;
mod extension;
mod handlers;
mod hold;
mod order;
mod receive;
mod receive_faults;
mod receive_limits;
mod redrive;
mod retry;
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

const GROUPS: [(&str, &[SourceCase]); 13] = [
    ("receive", receive::CASES),
    ("receive_limits", receive_limits::CASES),
    ("receive_faults", receive_faults::CASES),
    ("ack", ack::CASES),
    ("retry", retry::CASES),
    ("delay", delay::CASES),
    ("copies", copies::CASES),
    ("drop", drop::CASES),
    ("hold", hold::CASES),
    ("extension", extension::CASES),
    ("redrive", redrive::CASES),
    ("order", order::CASES),
    ("stop", stop::CASES),
];
