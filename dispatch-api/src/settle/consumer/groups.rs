//! Which deliveries may be started.

use std::collections::{HashMap, VecDeque};

use crate::settle::{Delivery, Received};

/// A delivery that waits behind one of its group.
#[derive(Debug)]
struct Waiting {
    delivery: Box<dyn Delivery>,
    /// The receive that brought it.
    receive: u64,
}

/// A group that has a delivery under way.
#[derive(Debug)]
struct Busy {
    /// The receive that brought that one.
    receive: u64,
    waiting: VecDeque<Waiting>,
}

/// The groups that have a delivery under way, what waits behind each, and the groups that are
/// on their way back.
#[derive(Debug)]
pub(super) struct Groups {
    /// The broker hands out nothing of a group while a delivery of it is out.
    are_locked: bool,
    busy: HashMap<String, Busy>,
    returning: HashMap<String, Returning>,
}

/// A group of which a delivery came back: what a receive brings that was under way then comes
/// too early. The next begins when all of it is back.
#[derive(Debug)]
struct Returning {
    /// With what the group begins anew.
    first: Received,
    /// How many of it are not back yet.
    under_way: usize,
    /// The last receive that had begun.
    until: u64,
}

/// What becomes of a delivery that arrives.
pub(super) enum Admitted {
    Starts(Box<dyn Delivery>),
    Waits,
    /// Those before it are on their way back.
    GoesBack(Box<dyn Delivery>),
}

impl Groups {
    pub(super) fn new(are_locked: bool) -> Self {
        Self {
            are_locked,
            busy: HashMap::new(),
            returning: HashMap::new(),
        }
    }

    /// Keeps a delivery behind its group, where that is busy. `receive` is the number of the
    /// receive that brought it.
    pub(super) fn admit(
        &mut self,
        group: &str,
        receive: u64,
        delivery: Box<dyn Delivery>,
    ) -> Admitted {
        if let Some(busy) = self.busy.get_mut(group) {
            busy.waiting.push_back(Waiting { delivery, receive });
            return Admitted::Waits;
        }
        if let Some(returning) = self.returning.get_mut(group) {
            let is_first = delivery.received().id() == returning.first.id();
            if receive <= returning.until && (!is_first || returning.under_way > 0) {
                returning.under_way += 1;
                return Admitted::GoesBack(delivery);
            }
            self.returning.remove(group);
        }
        let waiting = VecDeque::new();
        self.busy
            .insert(group.to_owned(), Busy { receive, waiting });
        Admitted::Starts(delivery)
    }

    /// The delivery of a group that is under way comes back, and takes what waits with it.
    /// `receives` have begun so far.
    ///
    /// Of a locked group what a later receive brought came after it was back, and is a new
    /// beginning. Of others that is only what begins with the same message.
    pub(super) fn comes_back(
        &mut self,
        group: &str,
        first: &Received,
        receives: u64,
    ) -> Vec<Box<dyn Delivery>> {
        let Some(Busy { receive, waiting }) = self.busy.get_mut(group) else {
            return Vec::new();
        };
        let again = waiting.iter().position(|waiting| match self.are_locked {
            true => waiting.receive > *receive,
            false => waiting.delivery.received().id() == first.id(),
        });
        let behind = waiting.drain(..again.unwrap_or(waiting.len()));
        let behind: Vec<_> = behind.map(|waiting| waiting.delivery).collect();
        if again.is_none() && !self.are_locked {
            let returning = Returning {
                first: first.clone(),
                under_way: behind.len(),
                until: receives,
            };
            self.returning.insert(group.to_owned(), returning);
        }
        behind
    }

    /// A delivery of the group is back, of those that went back with the first or came too
    /// early.
    pub(super) fn is_back(&mut self, group: &str) {
        if let Some(returning) = self.returning.get_mut(group) {
            returning.under_way = returning.under_way.saturating_sub(1);
        }
    }

    /// Whether something is on its way back that the next receive has to begin with.
    pub(super) fn are_returning(&self) -> bool {
        let mut returning = self.returning.values();
        returning.any(|returning| returning.under_way > 0)
    }

    /// A receive ended. Forgets groups that were back when it began.
    pub(super) fn received(&mut self, receive: u64) {
        self.returning
            .retain(|_, returning| returning.until >= receive);
    }

    /// The next of a group whose delivery was settled.
    pub(super) fn next(&mut self, group: &str) -> Option<Box<dyn Delivery>> {
        let busy = self.busy.get_mut(group)?;
        let Some(Waiting { delivery, receive }) = busy.waiting.pop_front() else {
            self.busy.remove(group);
            return None;
        };
        busy.receive = receive;
        Some(delivery)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.busy.values().map(|busy| busy.waiting.len()).sum()
    }

    /// Everything that waits, in order within each group. The groups stay busy.
    pub(super) fn take_waiting(&mut self) -> Vec<Box<dyn Delivery>> {
        let busy = self.busy.values_mut();
        let waiting = busy.flat_map(|busy| std::mem::take(&mut busy.waiting));
        waiting.map(|waiting| waiting.delivery).collect()
    }
}
