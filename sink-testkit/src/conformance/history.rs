//! What was attempted and what became of it, and the judgement over what arrived.

use std::collections::{BTreeMap, BTreeSet};

use dispatch_api::{Outcome, Receipt, SinkError};

use super::failure::{Checked, Failure, check};
use super::fixture::StoredMessage;

/// Every delivery of a case in one of four states: attempted (no answer yet, or its caller
/// went away), acknowledged, refused (known not to be stored), unknown.
///
/// Over what arrived: lost is acknowledged and not observed; phantom is observed and
/// never attempted; leaked is observed and only refused; [recovered](Self::recovered) is
/// observed and unknown, which is fine; a duplicate is observed more often than the adapter
/// declares.
#[derive(Debug, Default)]
pub struct History {
    deliveries: BTreeMap<String, Fate>,
}

/// How many deliveries of one envelope are in each state.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    attempted: usize,
    acknowledged: usize,
    refused: usize,
    unknown: usize,
}

impl Fate {
    /// How many copies may be there: one for each delivery that was not refused.
    fn may_be_stored(self) -> usize {
        self.attempted + self.acknowledged + self.unknown
    }
}

/// How often a message may be observed.
///
/// Closed on purpose: a case forbids copies or expects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Once, however often it was attempted.
    Forbidden,
    /// As often as attempts of it may have been stored.
    OnePerAttempt,
}

impl History {
    /// Nothing was attempted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A delivery begins.
    pub fn attempted(&mut self, envelope_id: &str) {
        self.fate(envelope_id).attempted += 1;
    }

    /// A delivery was answered.
    pub fn answered(&mut self, envelope_id: &str, answer: &Result<Receipt, SinkError>) {
        let fate = self.fate(envelope_id);
        // It is in one state at a time.
        fate.attempted = fate.attempted.saturating_sub(1);
        match answer.as_ref().map_err(SinkError::outcome) {
            Ok(_) => fate.acknowledged += 1,
            Err(Outcome::NotStored) => fate.refused += 1,
            Err(_) => fate.unknown += 1,
        }
    }

    fn fate(&mut self, envelope_id: &str) -> &mut Fate {
        self.deliveries.entry(envelope_id.to_owned()).or_default()
    }

    /// How many distinct envelopes were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        let fates = self.deliveries.values();
        fates.filter(|fate| fate.acknowledged > 0).count()
    }

    /// How many distinct envelopes arrived of which no delivery was acknowledged and one is
    /// unknown.
    #[must_use]
    pub fn recovered(&self, observed: &[StoredMessage]) -> usize {
        let observed: BTreeSet<String> = observed.iter().map(StoredMessage::envelope_id).collect();
        self.ids(|id, fate| fate.acknowledged == 0 && fate.unknown > 0 && observed.contains(id))
            .len()
    }

    /// Judges what arrived, by sets and counts and never by totals alone, so that a copy
    /// of one cannot hide the loss of another.
    ///
    /// # Errors
    ///
    /// The first of: lost, phantom, leaked refusal, duplicate.
    pub fn judge(&self, observed: &[StoredMessage], duplicates: Duplicates) -> Checked {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for message in observed {
            let message = message.message().map_err(|error| {
                Failure::new("what arrived", "only messages of the wire format", error)
            })?;
            *counts.entry(message.id.into_owned()).or_default() += 1;
        }
        let none = |step: &str, expected: &str, found: BTreeSet<&str>| {
            let shown: Vec<&str> = found.iter().copied().take(3).collect();
            check(
                found.is_empty(),
                step,
                expected,
                format!("{}, such as {}", found.len(), shown.join(", ")),
            )
        };
        none(
            "lost",
            "every acknowledged message arrives",
            self.ids(|id, fate| fate.acknowledged > 0 && !counts.contains_key(id)),
        )?;
        let phantoms = counts.keys().map(String::as_str);
        none(
            "phantom",
            "nothing arrives that was not attempted",
            phantoms
                .filter(|id| !self.deliveries.contains_key(*id))
                .collect(),
        )?;
        none(
            "leaked refusal",
            "no message arrives whose every attempt was refused",
            self.ids(|id, fate| {
                counts.contains_key(id) && fate.refused > 0 && fate.may_be_stored() == 0
            }),
        )?;
        none(
            "duplicate",
            match duplicates {
                Duplicates::Forbidden => "every message arrives once",
                Duplicates::OnePerAttempt => {
                    "a message arrives at most once for each attempt that was not refused"
                }
            },
            self.ids(|id, fate| {
                let allowed = match duplicates {
                    Duplicates::Forbidden => 1,
                    Duplicates::OnePerAttempt => fate.may_be_stored(),
                };
                counts.get(id).is_some_and(|count| *count > allowed)
            }),
        )
    }

    fn ids(&self, is_wrong: impl Fn(&str, Fate) -> bool) -> BTreeSet<&str> {
        self.deliveries
            .iter()
            .filter(|(id, fate)| is_wrong(id, **fate))
            .map(|(id, _)| &**id)
            .collect()
    }
}
