//! The cases, by what they are about.

mod acceptance;
mod batch_bounds;
mod batches;
mod body;
mod cancellation;
mod carried;
mod config;
mod errors;
mod fields;
mod headers;
mod identity;
mod integrity;
mod isolation;
mod lifecycle;
mod lifetime;
mod options;
mod order;
mod registry;
mod replies;
mod secrets;
mod size;
mod steps;
mod telemetry;

use super::case::Case;

/// Every case, in the order of the reports.
#[must_use]
pub fn all() -> Vec<Case> {
    GROUPS.map(|(_, cases)| cases).concat()
}

/// The groups of cases, by the name of each.
pub fn groups() -> impl Iterator<Item = (&'static str, &'static [Case])> {
    GROUPS.into_iter()
}

const GROUPS: [(&str, &[Case]); 20] = [
    ("acceptance", acceptance::CASES),
    ("identity", identity::CASES),
    ("body", body::CASES),
    ("size", size::CASES),
    ("headers", headers::CASES),
    ("fields", fields::CASES),
    ("errors", errors::CASES),
    ("replies", replies::CASES),
    ("integrity", integrity::CASES),
    ("batches", batches::CASES),
    ("batch_bounds", batch_bounds::CASES),
    ("cancellation", cancellation::CASES),
    ("isolation", isolation::CASES),
    ("order", order::CASES),
    ("lifetime", lifetime::CASES),
    ("config", config::CASES),
    ("registry", registry::CASES),
    ("lifecycle", lifecycle::CASES),
    ("telemetry", telemetry::CASES),
    ("secrets", secrets::CASES),
];
