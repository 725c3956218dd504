//! Which deliveries may be started.

use std::collections::{HashMap, VecDeque};

use crate::settle::Delivery;

/// A delivery that waits behind one of its group.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) delivery: Box<dyn Delivery>,
    /// The receive that brought it.
    pub(super) receive: u64,
}

/// The groups that have a delivery under way, and what waits behind each.
#[derive(Debug, Default)]
pub(super) struct Groups {
    busy: HashMap<String, VecDeque<Waiting>>,
}

impl Groups {
    /// Hands a delivery back if it may start, and keeps it behind its group otherwise.
    pub(super) fn admit(
        &mut self,
        group: Option<String>,
        waiting: Waiting,
    ) -> Option<(Option<String>, Waiting)> {
        let Some(group) = group else {
            return Some((None, waiting));
        };
        if let Some(queue) = self.busy.get_mut(&group) {
            queue.push_back(waiting);
            return None;
        }
        self.busy.insert(group.clone(), VecDeque::new());
        Some((Some(group), waiting))
    }

    /// The next of a group whose delivery is gone for good.
    pub(super) fn next(&mut self, group: &str) -> Option<Waiting> {
        let queue = self.busy.get_mut(group)?;
        let next = queue.pop_front();
        if next.is_none() {
            self.busy.remove(group);
        }
        next
    }

    /// What a group's delivery that comes back takes with it: the rest of the same receive.
    /// What a later receive brought came after it was back, and is a beginning of its own.
    pub(super) fn behind(&mut self, group: &str, receive: u64) -> Vec<Waiting> {
        let Some(queue) = self.busy.get_mut(group) else {
            return Vec::new();
        };
        let (behind, later) = std::mem::take(queue)
            .into_iter()
            .partition(|waiting| waiting.receive <= receive);
        *queue = later;
        Vec::from_iter::<VecDeque<Waiting>>(behind)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.busy.values().map(VecDeque::len).sum()
    }

    /// Everything that waits, in order within each group. The groups stay busy.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        let queues = self.busy.values_mut();
        queues.flat_map(std::mem::take).collect()
    }
}
