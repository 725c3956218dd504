//! The loop of a consumer: one task decides, handlers run in tasks of their own.

use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument as _;

use super::Stop;
use super::groups::{Admitted, Groups};
use super::handler::{Handler, Observer};
use super::report::ConsumerReport;
use super::settings::ConsumerSettings;
use crate::error::ErrorClass;
use crate::retry::exponential;
use crate::settle::{Delivery, Received, SettleError, Settlement, SourceError, Subscription};
use crate::sink::tell_contained;

/// What an operator has to change is asked for less often.
const CONFIG_FACTOR: u32 = 5;

/// How much may be in hand for each handler, in groups that wait and in settlements: as much
/// as one receive of the largest batches brings. A source that goes on with a held group, or
/// that is slow to settle, would fill the memory.
const IN_HAND_FACTOR: usize = 10;

type Receiving = Pin<Box<dyn Future<Output = Result<Vec<Box<dyn Delivery>>, SourceError>> + Send>>;

/// What a task did with its delivery.
struct Done {
    group: Option<String>,
    received: Received,
    how: How,
    settlement: Settlement,
    is_settled: bool,
    /// The handler's place, which the next of a group takes.
    slot: Option<Slot>,
}

impl Done {
    /// Of a delivery that a panic took away.
    fn lost(group: Option<String>, received: Received, how: How) -> Self {
        Self {
            group,
            received,
            how,
            settlement: Settlement::Retry,
            is_settled: false,
            slot: None,
        }
    }
}

/// How a settlement came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Handled,
    GivenBack,
    Abandoned,
}

/// The handlers that run.
#[derive(Debug, Default)]
struct Handling {
    count: AtomicUsize,
    /// One of them ended.
    ended: Notify,
}

impl Handling {
    fn begin(this: &Arc<Self>) -> Slot {
        this.count.fetch_add(1, Ordering::Relaxed);
        Slot(Arc::clone(this))
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// One handler's, given back also when it panics.
struct Slot(Arc<Handling>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

pub(super) struct Driver<H> {
    settings: ConsumerSettings,
    observer: Arc<dyn Observer>,
    subscription: Arc<dyn Subscription>,
    handler: Arc<H>,
    is_ordered: bool,
    tasks: JoinSet<Done>,
    /// Deliveries that are handled, or whose settlement is under way.
    running: usize,
    handling: Arc<Handling>,
    groups: Groups,
    /// How many receives have begun.
    receives: u64,
    report: ConsumerReport,
    /// True once handlers have to give up.
    abandon: watch::Sender<bool>,
}

impl<H: Handler> Driver<H> {
    pub(super) fn new(
        settings: ConsumerSettings,
        observer: Arc<dyn Observer>,
        subscription: Arc<dyn Subscription>,
        handler: Arc<H>,
    ) -> Self {
        let locks_groups = subscription.locks_groups();
        Self {
            settings,
            observer,
            is_ordered: subscription.is_ordered(),
            subscription,
            handler,
            tasks: JoinSet::new(),
            running: 0,
            handling: Arc::default(),
            groups: Groups::new(locks_groups),
            receives: 0,
            report: ConsumerReport::default(),
            abandon: watch::Sender::new(false),
        }
    }

    pub(super) async fn run(mut self, stop: Stop) -> ConsumerReport {
        let mut stopping = stop.watch();
        let mut deadline: Option<Instant> = None;
        let mut receiving: Option<Receiving> = None;
        let mut failures: u64 = 0;
        let mut not_before = Instant::now();
        let mut began = not_before;
        loop {
            if let Some(asked) = *stopping.borrow_and_update()
                && deadline != Some(asked)
            {
                deadline = Some(asked);
                self.give_back_waiting();
            }
            // What is on its way back comes first.
            let room = match self.groups.are_returning() {
                true => 0,
                false => self.room(),
            };
            if deadline.is_none()
                && receiving.is_none()
                && not_before <= Instant::now()
                && let Some(room) = NonZeroUsize::new(room)
            {
                began = Instant::now();
                self.receives += 1;
                let subscription = Arc::clone(&self.subscription);
                receiving = Some(Box::pin(async move { subscription.receive(room).await }));
            }
            if deadline.is_some() && receiving.is_none() && self.tasks.is_empty() {
                break;
            }
            let has_paused = receiving.is_none() && deadline.is_none() && room > 0;
            let received = async {
                match &mut receiving {
                    Some(receiving) => receiving.await,
                    None => std::future::pending().await,
                }
            };
            let over = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                Ok(()) = stopping.changed() => {}
                () = sleep_until(over), if deadline.is_some() && !*self.abandon.borrow() => {
                    self.abandon.send_replace(true);
                    // A receive that is still open then is the source's to end.
                    receiving = None;
                }
                Some(done) = self.tasks.join_next() => {
                    if let Ok(done) = done {
                        self.finish(done, deadline.is_some());
                    }
                }
                () = self.handling.ended.notified() => {}
                result = received => {
                    receiving = None;
                    match result {
                        Ok(deliveries) => {
                            if failures > 0 {
                                self.tell(|observer| observer.receive_recovered(failures));
                                failures = 0;
                            }
                            let is_empty = deliveries.is_empty();
                            if is_empty {
                                // A source that does not wait by itself is not asked all the time.
                                not_before = began + self.settings.pause;
                            }
                            self.take(deliveries, deadline.is_some());
                            if is_empty && self.settings.until_empty && self.tasks.is_empty() {
                                stop.by(Instant::now());
                            }
                        }
                        Err(error) => {
                            failures += 1;
                            self.report.failed_receives += 1;
                            let pause = self.pause(&error, failures);
                            not_before = Instant::now() + pause;
                            self.tell(|observer| observer.receive_failed(&error, failures, pause));
                        }
                    }
                }
                () = sleep_until(not_before), if has_paused => {}
            }
        }
        self.subscription.close().await;
        self.report
    }

    /// How many more deliveries there is room for.
    fn room(&self) -> usize {
        let concurrency = self.settings.concurrency.get();
        let in_hand = self.running + self.groups.waiting();
        match in_hand < concurrency.saturating_mul(IN_HAND_FACTOR) {
            true => concurrency.saturating_sub(self.handling.count()),
            false => 0,
        }
    }

    fn pause(&self, error: &SourceError, in_a_row: u64) -> Duration {
        let attempt = u32::try_from(in_a_row).ok().and_then(NonZeroU32::new);
        let attempt = attempt.unwrap_or(NonZeroU32::MAX);
        let ConsumerSettings {
            pause, max_pause, ..
        } = self.settings;
        match error.class() {
            ErrorClass::RetryAfter(asked) => exponential(pause, max_pause, attempt).max(asked),
            ErrorClass::Config | ErrorClass::Permanent => {
                exponential(pause * CONFIG_FACTOR, max_pause, attempt)
            }
            ErrorClass::Transient => exponential(pause, max_pause, attempt),
        }
    }

    /// Starts what may start, and gives back what comes too late.
    fn take(&mut self, deliveries: Vec<Box<dyn Delivery>>, is_stopping: bool) {
        // One is under way at a time.
        let receive = self.receives;
        self.groups.received(receive);
        for delivery in deliveries {
            self.report.received += 1;
            if is_stopping {
                self.give_back(None, vec![delivery]);
                continue;
            }
            let group = match self.is_ordered {
                true => delivery.received().group().map(str::to_owned),
                false => None,
            };
            let Some(group) = group else {
                self.start(None, delivery);
                continue;
            };
            match self.groups.admit(&group, receive, delivery) {
                Admitted::Starts(delivery) => self.start(Some(group), delivery),
                Admitted::Waits => {}
                Admitted::GoesBack(delivery) => self.give_back(Some(&group), vec![delivery]),
            }
        }
    }

    fn start(&mut self, group: Option<String>, delivery: Box<dyn Delivery>) {
        self.running += 1;
        let handler = Arc::clone(&self.handler);
        let observer = Arc::clone(&self.observer);
        let slot = Handling::begin(&self.handling);
        let mut abandon = self.abandon.subscribe();
        let limit = self.settings.handler_timeout;
        let mut lost = Done::lost(group.clone(), delivery.received().clone(), How::Handled);
        // The rest of a group waits for the settlement, and so does the place of its handler.
        let free = match group {
            Some(_) => {
                lost.slot = Some(slot);
                None
            }
            None => Some(slot),
        };
        let handling = async move {
            let received = delivery.received().clone();
            let (how, settlement) = tokio::select! {
                biased;
                settlement = handled(&*handler, &*observer, received, limit) => {
                    (How::Handled, settlement)
                }
                _ = abandon.wait_for(|abandon| *abandon) => (How::Abandoned, Settlement::Retry),
            };
            // What comes now waits for the source alone, and the next may be handled meanwhile.
            drop(free);
            settle(&*observer, delivery, group, how, settlement).await
        };
        self.tasks
            .spawn(contained(lost, handling).in_current_span());
    }

    /// Gives deliveries back unhandled, those of a group that waits for it.
    fn give_back(&mut self, group: Option<&str>, deliveries: Vec<Box<dyn Delivery>>) {
        for delivery in deliveries {
            let observer = Arc::clone(&self.observer);
            self.running += 1;
            let how = How::GivenBack;
            let group = group.map(str::to_owned);
            let lost = Done::lost(group.clone(), delivery.received().clone(), how);
            let settling =
                async move { settle(&*observer, delivery, group, how, Settlement::Retry).await };
            self.tasks
                .spawn(contained(lost, settling).in_current_span());
        }
    }

    fn give_back_waiting(&mut self) {
        let waiting = self.groups.take_waiting();
        self.give_back(None, waiting);
    }

    fn finish(&mut self, done: Done, is_stopping: bool) {
        self.running -= 1;
        let report = &mut self.report;
        let count = match (done.is_settled, done.how, done.settlement) {
            (false, _, _) => &mut report.unsettled,
            (true, How::GivenBack, _) => &mut report.given_back,
            (true, How::Abandoned, _) => &mut report.abandoned,
            (true, How::Handled, Settlement::Ack) => &mut report.acked,
            (true, How::Handled, Settlement::Drop) => &mut report.dropped,
            (true, How::Handled, Settlement::Retry | Settlement::RetryAfter(_)) => {
                &mut report.retried
            }
        };
        *count += 1;
        let Some(group) = done.group else {
            return;
        };
        if done.how == How::GivenBack {
            self.groups.is_back(&group);
            return;
        }
        let is_gone = done.is_settled && !done.settlement.brings_it_back();
        if !is_gone {
            let behind = self
                .groups
                .comes_back(&group, &done.received, self.receives);
            self.give_back(Some(&group), behind);
        }
        if is_stopping {
            return;
        }
        if let Some(next) = self.groups.next(&group) {
            self.start(Some(group), next);
        }
    }

    fn tell(&self, what: impl FnOnce(&dyn Observer)) {
        tell(&*self.observer, what);
    }
}

/// Every task ends with a count, also when a source or the end of a handler's future panics.
async fn contained(lost: Done, task: impl Future<Output = Done>) -> Done {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(done) => Done {
            slot: lost.slot,
            ..done
        },
        Err(_) => lost,
    }
}

/// Runs the handler for at most `limit`, and turns a panic into a retry.
async fn handled<H: Handler>(
    handler: &H,
    observer: &dyn Observer,
    received: Received,
    limit: Duration,
) -> Settlement {
    let seen = received.clone();
    // The call itself may panic too, before there is a future.
    let handling = AssertUnwindSafe(async { handler.handle(received).await }).catch_unwind();
    match timeout(limit, handling).await {
        Ok(Ok(settlement)) => settlement,
        Ok(Err(_)) => {
            tell(observer, |observer| observer.handler_panicked(&seen));
            Settlement::Retry
        }
        Err(_) => {
            tell(observer, |observer| observer.handler_timed_out(&seen));
            Settlement::Retry
        }
    }
}

async fn settle(
    observer: &dyn Observer,
    delivery: Box<dyn Delivery>,
    group: Option<String>,
    how: How,
    settlement: Settlement,
) -> Done {
    let received = delivery.received().clone();
    let settling = match how {
        How::Handled => delivery.settle(settlement),
        How::GivenBack | How::Abandoned => delivery.give_back(),
    };
    let settling = AssertUnwindSafe(settling).catch_unwind();
    let result = settling.await.unwrap_or_else(|_| {
        Err(SettleError::Unknown(SourceError::transient(
            "SourcePanicked",
            "the source panicked during this settlement",
        )))
    });
    tell(observer, |observer| {
        observer.settled(&received, settlement, result.as_ref().copied());
    });
    Done {
        group,
        received,
        how,
        settlement,
        is_settled: result.is_ok(),
        slot: None,
    }
}

/// An observer's panic is its own affair.
fn tell(observer: &dyn Observer, what: impl FnOnce(&dyn Observer)) {
    tell_contained(|| what(observer));
}
