//! How a reference source is set up.

use std::fmt;
use std::time::Duration;

use super::place::{MAX_HOLD, PlaceKind};
use crate::conformance::source::SourceOptions;

/// What a reference source is told.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReferenceSourceSettings {
    /// The place's name.
    pub place: String,
    /// The group that it consumes for.
    pub group: String,
    /// Whose requests it sends.
    pub key_id: String,
    /// The secret that belongs to the key. Never shown.
    pub secret: String,
    /// What the place is.
    pub kind: PlaceKind,
    /// How long a delivery is held without an extension.
    pub hold: Duration,
    /// How long a receive waits for a first message.
    pub wait: Duration,
    /// How long a call may take; a receive may take this longer than its wait.
    pub timeout: Duration,
    /// Whether settlements share requests.
    pub is_batched: bool,
    /// Whether holds are extended.
    pub extends: bool,
    /// Whether a plan may have a redrive policy.
    pub redrives: bool,
}

impl ReferenceSourceSettings {
    /// The settings of these options for a place of this kind: one request for each
    /// settlement, holds extended, redrive policies taken where the kind has holds.
    ///
    /// # Errors
    ///
    /// What is wrong with the options.
    pub fn new(
        place: impl Into<String>,
        kind: PlaceKind,
        (key_id, secret): (&str, &str),
        options: &SourceOptions,
    ) -> Result<Self, String> {
        let has_holds = kind != PlaceKind::Log;
        if has_holds && (options.hold.is_zero() || options.hold > MAX_HOLD) {
            return Err(format!(
                "hold: {:?} is out of range; expected more than 0 s and at most {} s (12 hours)",
                options.hold,
                MAX_HOLD.as_secs()
            ));
        }
        Ok(Self {
            place: place.into(),
            group: options.group.clone(),
            key_id: key_id.to_owned(),
            secret: secret.to_owned(),
            kind,
            hold: options.hold,
            wait: options.wait,
            timeout: Duration::from_secs(5),
            is_batched: false,
            extends: has_holds,
            redrives: has_holds,
        })
    }
}

impl fmt::Debug for ReferenceSourceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceSourceSettings")
            .field("place", &self.place)
            .field("group", &self.group)
            .field("key_id", &self.key_id)
            .field("kind", &self.kind)
            .field("hold", &self.hold)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
