//! Many deliveries, few requests, one answer each.

mod driver;
mod queue;
mod reconcile;
mod settings;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use self::queue::{Arrival, Queue, Ticket};
pub use self::reconcile::Reconciliation;
pub use self::settings::{BatchSettings, FlushReason, QueueFull};
use crate::drain::DrainReport;
use crate::error::{Outcome, SinkError};
use crate::sink::Receipt;

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

    /// Told, for telemetry, whenever a request leaves or is answered: how many entries
    /// are unanswered, and how many requests are in flight.
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
    /// What is sent.
    pub entry: E,
}

impl<E> BatchEntry<E> {
    /// An entry without an ordering key.
    pub fn new(tenant: impl Into<Arc<str>>, bytes: usize, entry: E) -> Self {
        Self {
            tenant: tenant.into(),
            ordering_key: None,
            bytes,
            entry,
        }
    }

    /// Sets the ordering key.
    #[must_use]
    pub fn with_ordering_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.ordering_key = Some(key.into());
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
    /// # Errors
    ///
    /// What the sender answers; `full` when the entry would pass a ceiling; `Transient`
    /// with code `SinkClosed` after [`Batcher::drain`].
    pub async fn submit(
        &self,
        entry: BatchEntry<S::Entry>,
        full: impl FnOnce(QueueFull) -> SinkError + Send,
    ) -> Answer {
        let (reply, answer) = oneshot::channel();
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
        let mut waiting = CancelOnDrop {
            shared: &self.shared,
            ticket: Some(ticket),
        };
        let answer = answer.await;
        waiting.ticket = None;
        answer.unwrap_or_else(|_| {
            Err(SinkError::transient(
                Outcome::Unknown,
                "BatcherStopped",
                "the runtime that sends the batches ended before the answer came",
            ))
        })
    }

    fn admit(
        &self,
        arrival: Arrival<Slot<S::Entry>>,
    ) -> Result<Result<Ticket, QueueFull>, SinkError> {
        let mut state = self.shared.state();
        if state.closed {
            return Err(closed());
        }
        let ticket = match state.queue.admit(arrival, Instant::now()) {
            Ok(ticket) => ticket,
            Err(full) => return Ok(Err(full)),
        };
        if state.driven {
            if state.queue.has_news() {
                self.shared.wake.notify_one();
            }
            return Ok(Ok(ticket));
        }
        state.driven = true;
        // Without a runtime the task is dropped at once, and takes the lock to clean up.
        drop(state);
        driver::start(Arc::clone(&self.shared));
        Ok(Ok(ticket))
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
        let (unanswered, waiting) = {
            let mut state = self.shared.state();
            let unanswered = state.queue.unanswered().entries;
            (unanswered, state.queue.take_waiting())
        };
        for slot in waiting {
            let _ = slot.reply.send(Err(closed()));
        }
        DrainReport::new(before.saturating_sub(unanswered) as u64, unanswered as u64)
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

/// Takes a waiting entry out when its caller goes away.
struct CancelOnDrop<'a, S: BatchSender> {
    shared: &'a Shared<S>,
    ticket: Option<Ticket>,
}

impl<S: BatchSender> Drop for CancelOnDrop<'_, S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut state = self.shared.state();
            let cancelled = state.queue.cancel(&ticket);
            self.shared.tell_if_idle(&state);
            drop(state);
            drop(cancelled);
        }
    }
}

fn closed() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "SinkClosed",
        "the sink is drained and takes no more deliveries",
    )
}
