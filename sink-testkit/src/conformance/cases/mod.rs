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
    [
        acceptance::CASES,
        identity::CASES,
        body::CASES,
        size::CASES,
        headers::CASES,
        fields::CASES,
        errors::CASES,
        replies::CASES,
        integrity::CASES,
        batches::CASES,
        batch_bounds::CASES,
        cancellation::CASES,
        isolation::CASES,
        order::CASES,
        lifetime::CASES,
        config::CASES,
        registry::CASES,
        lifecycle::CASES,
        telemetry::CASES,
        secrets::CASES,
    ]
    .concat()
}
