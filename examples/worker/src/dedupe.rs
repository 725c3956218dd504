//! What was handled already.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

/// How many keys are remembered. The oldest is forgotten first.
const MOST_KEYS: usize = 65_536;

/// The idempotency keys of the hooks that this process handled last.
#[derive(Debug, Default)]
pub(crate) struct Handled {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    known: HashSet<String>,
    in_order: VecDeque<String>,
}

impl Handled {
    pub(crate) fn knows(&self, key: &str) -> bool {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.known.contains(key)
    }

    pub(crate) fn add(&self, key: &str) {
        self.add_up_to(key, MOST_KEYS);
    }

    fn add_up_to(&self, key: &str, most: usize) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.known.insert(key.to_owned()) {
            return;
        }
        keys.in_order.push_back(key.to_owned());
        if keys.in_order.len() > most
            && let Some(oldest) = keys.in_order.pop_front()
        {
            keys.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_key_is_forgotten_first() {
        let handled = Handled::default();
        for key in ["a", "b", "a", "c", "d"] {
            handled.add_up_to(key, 3);
        }
        let known = ["a", "b", "c", "d"].map(|key| handled.knows(key));
        assert_eq!(known, [false, true, true, true]);
    }
}
