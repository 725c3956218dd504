//! Many deliveries, few requests, one answer each.

mod driver;
mod queue;
mod reconcile;
mod settings;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::queue::{Arrival, Queue, Ticket};
pub use self::reconcile::Reconciliation;
pub use self::settings::{BatchSettings, FlushReason, QueueFull};
use crate::drain::DrainReport;
use crate::error::{Outcome, SinkError};
use crate::runtime::{Mutex, MutexGuard, now, timeout_at};
use crate::sink::Receipt;

/// With every which admission the load is told.
const TOLD_EVERY: u64 = 16;

/// The answer to one delivery.
pub type Answer = Result<Receipt, SinkError>;

/// Sends the requests of a [`Batcher`].
pub trait BatchSender: Send + Sync + 'static {
    /// What is sent for one delivery.
    type Entry: Send + 'static;

    /// Sends one request and answers its entries, by position. [`Reconciliation`] helps
    /// to be complete. An entry without an answer gets `Transient`, `Unknown`,
    /// `BatchEntryMissing`; so do all of a request that panics, as `SinkPanicked`.
    ///
    /// The future is not dropped before it is done, unless the runtime ends. It has to
    /// end on its own, by a timeout.
    fn send(
        &self,
        entries: Vec<Self::Entry>,
        flush: Flush,
    ) -> impl Future<Output = Vec<Answer>> + Send;

    /// Whether whoever submitted this takes no answer but `SinkClosed` for what still
    /// waits: one of several owners of a batcher, whose time is over. Asked at admission,
    /// and by [`Batcher::withdraw`] of all that waits; under the batcher's lock, so it has
    /// to be quick and must not use the batcher.
    fn is_withdrawn(&self, _entry: &Self::Entry) -> bool {
        false
    }

    /// Told, for telemetry, how many entries are unanswered, and how many requests are in
    /// flight: whenever a request leaves or is answered, when entries begin to wait or are
    /// taken out, and with every sixteenth admission.
    fn load_changed(&self, _entries: usize, _requests: usize) {}
}

/// How a request came about, for telemetry.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Flush {
    /// Why it left when it did.
    pub reason: FlushReason,
    /// The bytes of its entries.
    pub bytes: usize,
    /// How long its oldest entry waited.
    pub waited: Duration,
}

/// One delivery for a [`Batcher`].
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchEntry<E> {
    /// Whose it is: tenants take turns.
    pub tenant: Arc<str>,
    /// Entries of one key leave in the order of their admission, with one request in
    /// flight.
    pub ordering_key: Option<Arc<str>>,
    /// What it weighs.
    pub bytes: usize,
    /// When its caller has to have an answer.
    pub deadline: Option<Instant>,
    /// What is sent.
    pub entry: E,
}

impl<E> BatchEntry<E> {
    /// An entry without an ordering key and without a deadline.
    pub fn new(tenant: impl Into<Arc<str>>, bytes: usize, entry: E) -> Self {
        Self {
            tenant: tenant.into(),
            ordering_key: None,
            bytes,
            deadline: None,
            entry,
        }
    }

    /// Sets the ordering key.
    #[must_use]
    pub fn with_ordering_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets when its caller has to have an answer.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// Gathers deliveries to one destination into requests.
///
/// A request leaves when a batch is full, by entries or by bytes, or when its first
/// entry has lingered. Tenants take turns in it. What one batcher may hold is bounded
/// by [`BatchSettings`]; more is refused.
///
/// # Guarantees
///
/// - Every admitted entry gets exactly one answer, whatever the request's reply looks
///   like, and also when the sender panics or the runtime ends.
/// - Entries of one ordering key are sent in the order of their admission; the next
///   request with any of them leaves when the one before is answered.
/// - An entry is sent once. A retry is another submission.
///
/// # How it runs
///
/// All state is behind one lock and changes only in short functions without an await;
/// one task forms batches and drives their requests. It starts with the first
/// submission, on that submission's runtime, and starts again if that runtime ends.
///
/// # How it is checked
///
/// - What two threads can do to each other is checked by a model checker (shuttle), which
///   runs this very code with its own lock, task and clock, and chooses at random who goes
///   next (`tests/batcher_model`): submissions, deadlines, callers that go away, flushes,
///   drains, withdrawals and a runtime that is over, against the task that forms batches.
///   Two invariants of the lock carry all of it: an entry is in the queue, in a batch or
///   taken out, and moves only under the lock; who moves it answers it.
/// - What one thread can do in sequence is checked by 10,000 random cases
///   (`tests/batcher_properties`), instants and all.
pub struct Batcher<S: BatchSender> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: BatchSender> {
    sender: S,
    state: Mutex<State<S::Entry>>,
    /// The driver has something to look at.
    wake: Notify,
    /// Nothing is unanswered.
    idle: Notify,
}

struct State<E> {
    queue: Queue<Slot<E>>,
    /// A driver task runs.
    driven: bool,
    /// Nothing is admitted any more.
    closed: bool,
}

struct Slot<E> {
    entry: E,
    reply: oneshot::Sender<Answer>,
}

impl<S: BatchSender> Batcher<S> {
    /// A batcher that sends through `sender`. Nothing runs before the first submission.
    pub fn new(sender: S, settings: BatchSettings) -> Self {
        Self {
            shared: Arc::new(Shared {
                sender,
                state: Mutex::new(State {
                    queue: Queue::new(settings),
                    driven: false,
                    closed: false,
                }),
                wake: Notify::new(),
                idle: Notify::new(),
            }),
        }
    }

    /// Admits an entry on the first poll, and returns when it is answered.
    ///
    /// Must be polled within a tokio runtime. Dropping the future before the entry has
    /// left takes the entry out; dropping it later leaves the entry to be sent. Nobody
    /// else notices either.
    ///
    /// Give a deadline to the entry, and no timeout to this future: whoever drops it
    /// cannot know whether the entry had left.
    ///
    /// # Errors
    ///
    /// What the sender answers; `full` when the entry would pass a ceiling; `Transient`
    /// with code `SinkClosed` after [`Batcher::drain`] and for a withdrawn entry. At the entry's deadline
    /// `Transient` with code `Timeout`: `NotStored` if the entry still waited, and then it
    /// is never sent; `Unknown` if it was in a request.
    pub async fn submit(
        &self,
        entry: BatchEntry<S::Entry>,
        full: impl FnOnce(QueueFull) -> SinkError + Send,
    ) -> Answer {
        let deadline = entry.deadline;
        let (reply, mut answer) = oneshot::channel();
        let arrival = Arrival {
            tenant: entry.tenant,
            ordering_key: entry.ordering_key,
            bytes: entry.bytes,
            entry: Slot {
                entry: entry.entry,
                reply,
            },
        };
        let ticket = self.admit(arrival)?.map_err(full)?;
        let mut place = Place {
            shared: &self.shared,
            ticket: Some(ticket),
        };
        let answered = match deadline {
            None => Some((&mut answer).await),
            Some(deadline) => timeout_at(deadline, &mut answer).await.ok(),
        };
        match answered {
            Some(answer) => {
                place.ticket = None;
                answer.unwrap_or_else(|_| Err(stopped()))
            }
            None if place.leave() => Err(SinkError::transient(
                Outcome::NotStored,
                "Timeout",
                "the delivery's deadline came while it waited for its batch",
            )),
            // The answer may have come in this moment.
            None => answer.try_recv().unwrap_or_else(|_| {
                Err(SinkError::transient(
                    Outcome::Unknown,
                    "Timeout",
                    "no answer to its batch by the delivery's deadline",
                ))
            }),
        }
    }

    fn admit(
        &self,
        arrival: Arrival<Slot<S::Entry>>,
    ) -> Result<Result<Ticket, QueueFull>, SinkError> {
        let (ticket, starts) = {
            let mut state = self.shared.state();
            if state.closed || self.shared.sender.is_withdrawn(&arrival.entry.entry) {
                return Err(closed());
            }
            let ticket = match state.queue.admit(arrival, now()) {
                Ok(ticket) => ticket,
                Err(full) => return Ok(Err(full)),
            };
            let starts = !state.driven;
            state.driven = true;
            // A queue that only grows has no news, and is told of all the same.
            let is_due = ticket.number().is_multiple_of(TOLD_EVERY);
            if !starts && (is_due || state.queue.has_news()) {
                self.shared.wake.notify_one();
            }
            (ticket, starts)
        };
        if starts {
            // Not under the lock: a runtime that is over drops the task at once, and the
            // task's end takes the lock.
            driver::start(Arc::clone(&self.shared));
        }
        Ok(Ok(ticket))
    }

    /// Sets other bounds, from now on, and returns those that held. Nothing that was
    /// admitted is refused for it.
    pub fn reconfigure(&self, settings: BatchSettings) -> BatchSettings {
        let before = self.shared.state().queue.reconfigure(settings);
        self.shared.wake.notify_one();
        before
    }

    /// Lets nothing that waits now linger any longer.
    pub fn flush(&self) {
        self.shared.state().queue.flush();
        self.shared.wake.notify_one();
    }

    /// Admits nothing more, sends what waits, and returns when all is answered or the
    /// deadline has come. What still waits then is answered `Transient`, `NotStored`,
    /// `SinkClosed`; what is in flight ends by the sender's own timeout.
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        let before = {
            let mut state = self.shared.state();
            state.closed = true;
            state.queue.flush();
            state.queue.unanswered().entries
        };
        self.shared.wake.notify_one();
        let all_answered = async {
            loop {
                let mut idle = std::pin::pin!(self.shared.idle.notified());
                idle.as_mut().enable();
                if self.shared.state().queue.unanswered().entries == 0 {
                    return;
                }
                idle.await;
            }
        };
        if timeout_at(deadline, all_answered).await.is_ok() {
            return DrainReport::new(before as u64, 0);
        }
        let unanswered = self.load().0;
        self.refuse(|_| true);
        DrainReport::new(before.saturating_sub(unanswered) as u64, unanswered as u64)
    }

    /// Takes out what waits of those that [`BatchSender::is_withdrawn`], and answers it
    /// `Transient`, `NotStored`, `SinkClosed`. Nobody else notices.
    pub fn withdraw(&self) {
        self.refuse(|entry| self.shared.sender.is_withdrawn(entry));
    }

    fn refuse(&self, meant: impl Fn(&S::Entry) -> bool) {
        let refused = {
            let mut state = self.shared.state();
            let refused = state.queue.take_waiting(|slot| meant(&slot.entry));
            self.shared.tell_if_idle(&state);
            refused
        };
        self.shared.wake.notify_one();
        for slot in refused {
            let _ = slot.reply.send(Err(closed()));
        }
    }

    /// How many entries were admitted and are not answered, and how many requests are in
    /// flight.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.queue.unanswered().entries, state.queue.requests())
    }
}

impl<S: BatchSender> Drop for Batcher<S> {
    fn drop(&mut self) {
        // Whoever waits for an answer holds the batcher: nobody waits now.
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
    }
}

impl<S: BatchSender> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, requests) = self.load();
        f.debug_struct("Batcher")
            .field("unanswered", &entries)
            .field("requests", &requests)
            .finish_non_exhaustive()
    }
}

impl<S: BatchSender> Shared<S> {
    fn state(&self) -> MutexGuard<'_, State<S::Entry>> {
        // Every change under the lock is complete or none: a panic is a fault of this
        // module, and what it leaves is still the best state there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_if_idle(&self, state: &State<S::Entry>) {
        if state.queue.unanswered().entries == 0 {
            self.idle.notify_waiters();
        }
    }
}

/// A caller's place among what waits, given up when the caller goes away.
struct Place<'a, S: BatchSender> {
    shared: &'a Shared<S>,
    ticket: Option<Ticket>,
}

impl<S: BatchSender> Place<'_, S> {
    /// Takes the entry out, if it still waits. Entries enter a batch under the same lock:
    /// one that was taken out is never sent, and one that was not has left.
    fn leave(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else {
            return false;
        };
        let taken_out = {
            let mut state = self.shared.state();
            let taken_out = state.queue.cancel(&ticket);
            self.shared.tell_if_idle(&state);
            taken_out
        };
        if taken_out.is_some() {
            self.shared.wake.notify_one();
        }
        taken_out.is_some()
    }
}

impl<S: BatchSender> Drop for Place<'_, S> {
    fn drop(&mut self) {
        self.leave();
    }
}

fn closed() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "SinkClosed",
        "the sink is drained and takes no more deliveries",
    )
}

fn stopped() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "BatcherStopped",
        "the runtime that sends the batches ended before the answer came",
    )
}

#[cfg(test)]
mod tests;
