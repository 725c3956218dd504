//! What a FIFO queue remembers of the messages it took.

use std::collections::{HashMap, VecDeque};

use super::clock::Timestamp;
use super::limits::DEDUPLICATION_WINDOW;

/// The deduplication ids of the last five minutes. Receives and deletes do not touch it.
#[derive(Debug, Default)]
pub(crate) struct DeduplicationMemory {
    accepted: HashMap<DeduplicationKey, Accepted>,
    by_age: VecDeque<(Timestamp, DeduplicationKey)>,
}

/// An id, and the message group when only ids of one group are told apart.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct DeduplicationKey {
    pub(crate) group: Option<String>,
    pub(crate) id: String,
}

/// What the first send of an id was answered with; a duplicate gets the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) message_id: String,
    pub(crate) sequence_number: Option<String>,
}

impl DeduplicationMemory {
    /// The send that makes one with this key a duplicate now.
    pub(crate) fn find(&mut self, key: &DeduplicationKey, now: Timestamp) -> Option<&Accepted> {
        while let Some((at, oldest)) = self.by_age.front() {
            // The window counts from the accepted send; a clock set back keeps ids longer.
            if now.since(*at) < DEDUPLICATION_WINDOW {
                break;
            }
            self.accepted.remove(oldest);
            self.by_age.pop_front();
        }
        self.accepted.get(key)
    }

    pub(crate) fn remember(&mut self, key: DeduplicationKey, accepted: Accepted, now: Timestamp) {
        self.by_age.push_back((now, key.clone()));
        self.accepted.insert(key, accepted);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_id_is_remembered_for_five_minutes_from_its_accepted_send() {
        let mut memory = DeduplicationMemory::default();
        let start = Timestamp::from_seconds(1_000);
        let key = DeduplicationKey {
            group: None,
            id: "a".into(),
        };
        let accepted = Accepted {
            message_id: "m".into(),
            sequence_number: None,
        };
        memory.remember(key.clone(), accepted.clone(), start);
        let just_before = start.plus(Duration::from_millis(299_999));
        assert_eq!(memory.find(&key, just_before), Some(&accepted));
        assert_eq!(
            memory.find(&key, start.plus(Duration::from_secs(300))),
            None
        );
    }
}
