//! Which hooks came.

use std::collections::BTreeSet;

use dispatch_api::{Delivery, Message};

use crate::conformance::{Checked, check};

/// The id of the hook in a message; empty when it is none.
#[must_use]
pub(super) fn id_of(body: &[u8]) -> String {
    Message::decode(body)
        .map(|message| message.id.into_owned())
        .unwrap_or_default()
}

/// The ids of the hooks in these deliveries, in order.
#[must_use]
pub(super) fn ids_of(deliveries: &[Box<dyn Delivery>]) -> Vec<String> {
    let deliveries = deliveries.iter();
    deliveries
        .map(|delivery| id_of(delivery.received().body()))
        .collect()
}

/// All of them once, in any order.
pub(super) fn check_same(step: &str, expected: &[String], observed: &[String]) -> Checked {
    let (wanted, seen): (BTreeSet<_>, BTreeSet<_>) =
        (expected.iter().collect(), observed.iter().collect());
    check(
        wanted == seen && observed.len() == expected.len(),
        step,
        format!("{} messages, each once", expected.len()),
        format!(
            "{} messages, {} of them missing, {} of them of others, {} in all",
            observed.len(),
            wanted.difference(&seen).count(),
            seen.difference(&wanted).count(),
            observed.len(),
        ),
    )
}
