//! Running a handler over a subscription.

mod driver;
mod groups;
mod handler;
mod log;
mod report;
mod settings;

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

pub use self::handler::{Handler, NoObserver, Observer};
pub use self::log::LogObserver;
pub use self::report::ConsumerReport;
pub use self::settings::ConsumerSettings;
use super::registration::Subscription;

/// Runs a handler over the deliveries of a subscription, and settles each by its answer.
///
/// # What it does
///
/// - At most [`concurrency`](ConsumerSettings::concurrency) handlers run at once, and no
///   more is received than handlers are free. Settlements go on beside them: ten deliveries
///   for each handler may be in hand.
/// - Of an [ordered](Subscription::is_ordered) subscription, the deliveries of one group are
///   handled one at a time and in order, and groups beside each other. When one of a group
///   comes back, the rest of the group that is in hand goes back unhandled; where the broker
///   [locks no groups](Subscription::locks_groups), also what a receive under way brings of it.
/// - A handler that panics, or takes longer than its time, is a retry.
/// - A receive that fails is repeated after a pause that doubles up to
///   [`max_pause`](ConsumerSettings::max_pause): begun with
///   [`pause`](ConsumerSettings::pause), with five times that for `Config` and `Permanent`
///   errors, and no shorter than a `RetryAfter` asks for. One that brings nothing at once is
///   repeated no sooner than after the first such pause. Only stopping ends the loop.
///
/// # How it stops
///
/// Nothing more is received; a receive under way is let finish, and what it brings goes
/// back. What was not started goes back at once. Handlers that run have until the deadline,
/// and are then dropped, their deliveries a retry. A receive that is still open then is
/// dropped too: give it the source's own waiting time. Then the subscription is closed, and
/// the report counts what happened to every delivery.
pub struct Consumer {
    settings: ConsumerSettings,
    observer: Arc<dyn Observer>,
}

impl Consumer {
    /// A consumer of these settings, which logs by a [`LogObserver`].
    #[must_use]
    pub fn new(settings: ConsumerSettings) -> Self {
        Self {
            settings,
            observer: Arc::new(LogObserver::new()),
        }
    }

    /// Tells of settlements and failures, instead of logging them.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Consumes until it is stopped, or, with
    /// [`until_empty`](ConsumerSettings::until_empty), until nothing is left.
    ///
    /// Dropping the future drops handlers and deliveries: use `stop`.
    pub async fn run(
        &self,
        subscription: Arc<dyn Subscription>,
        handler: impl Handler,
        stop: Stop,
    ) -> ConsumerReport {
        let span = tracing::error_span!("consumer", source = subscription.name());
        driver::Driver::new(
            self.settings.clone(),
            Arc::clone(&self.observer),
            subscription,
            Arc::new(handler),
        )
        .run(stop)
        .instrument(span)
        .await
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Asks a [`Consumer`] to stop. A clone asks the same; a consumer whose every `Stop` was
/// dropped goes on.
#[derive(Clone, Debug)]
pub struct Stop {
    deadline: Arc<watch::Sender<Option<Instant>>>,
}

impl Stop {
    /// Nobody asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            deadline: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Asks to stop, handlers having until `deadline`. An earlier deadline than one given
    /// before counts; a later one changes nothing.
    pub fn by(&self, deadline: Instant) {
        self.deadline.send_if_modified(|known| match known {
            Some(known) if *known <= deadline => false,
            _ => {
                *known = Some(deadline);
                true
            }
        });
    }

    /// Whether somebody asked, and until when handlers have.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        *self.deadline.borrow()
    }

    fn watch(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
