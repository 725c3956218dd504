//! One hook to one sink: attempts, pauses, and the end of it.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{
    Admission, ClaimRef, DeliveryContext, Envelope, HostServices, InFlight, Ordering, Origin,
    Outcome, Receipt, RetryPolicy, SinkError, TenantRoutes, deliver_contained, shown,
};
use futures_util::FutureExt as _;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep};

use crate::lanes::Turn;
use crate::notices::Notices;
use crate::stop::Stop;
use crate::telemetry;

/// What a host needs to deliver hooks.
#[derive(Debug)]
pub struct Deliverer {
    routes: TenantRoutes,
    retry: RetryPolicy,
    services: HostServices,
    origin: Option<Arc<Origin>>,
    /// Places for deliveries at sinks that do not bound themselves, by name.
    places: Places,
    /// Places for hooks that are to be tried again; none where that is not limited.
    retrying: Option<Places>,
    notices: Notices,
    /// Deliveries in the pause before another attempt.
    waiting: InFlight,
    stop: Stop,
}

/// So many places at each sink.
#[derive(Debug)]
struct Places {
    each: NonZeroUsize,
    by_sink: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Places {
    fn new(each: NonZeroUsize) -> Self {
        Self {
            each,
            by_sink: Mutex::default(),
        }
    }

    fn at(&self, sink: &str) -> Arc<Semaphore> {
        // Nothing is left half done under this lock.
        let mut by_sink = self.by_sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = by_sink.get(sink) {
            return Arc::clone(places);
        }
        let places = Arc::new(Semaphore::new(self.each.get()));
        by_sink.insert(sink.to_owned(), Arc::clone(&places));
        places
    }
}

/// A hook on its way, shared by the deliveries to its sinks.
#[derive(Debug)]
pub struct Journey {
    /// What is delivered.
    pub envelope: Envelope,
    /// Where the body is stored, once any sink needed that.
    claim: OnceCell<ClaimRef>,
}

impl Journey {
    /// A hook that sets out.
    #[must_use]
    pub fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            claim: OnceCell::new(),
        }
    }
}

/// How a delivery ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The sink's name; `None` when no route leads to any.
    pub sink: Option<String>,
    /// How many attempts were made.
    pub attempts: u32,
    /// The confirmation, or the last error: a dead letter.
    pub result: Result<Receipt, SinkError>,
    /// Whether the destination may hold the message although the delivery was given
    /// up: unknown as soon as it was unknown after any attempt.
    pub outcome: Outcome,
}

impl Verdict {
    /// A delivery that was given up before any attempt.
    #[must_use]
    pub fn refused(sink: Option<String>, error: SinkError) -> Self {
        Self {
            sink,
            attempts: 0,
            outcome: error.outcome(),
            result: Err(error),
        }
    }
}

/// A sink that receives a hook.
#[derive(Debug)]
#[non_exhaustive]
pub struct Receiver {
    /// The sink's name.
    pub sink: String,
    /// Whether its deliveries have an order.
    pub is_ordered: bool,
}

impl Deliverer {
    /// Delivers by these routes and this policy, until `stop`.
    #[must_use]
    pub fn new(
        routes: TenantRoutes,
        retry: RetryPolicy,
        services: HostServices,
        origin: Option<Arc<Origin>>,
        stop: Stop,
    ) -> Self {
        Self {
            routes,
            retry,
            places: Places::new(services.sink_concurrency()),
            retrying: None,
            services,
            origin,
            notices: Notices::default(),
            waiting: InFlight::new(),
            stop,
        }
    }

    /// Limits how many hooks of one sink can be on their way to another attempt. One more
    /// is given up after its first, so that a sink that is down does not hold all the room
    /// there is.
    #[must_use]
    pub fn with_retrying_per_sink(mut self, most: Option<NonZeroUsize>) -> Self {
        self.retrying = most.map(Places::new);
        self
    }

    /// The routes, to swap sinks while hooks are delivered.
    #[must_use]
    pub fn routes(&self) -> &TenantRoutes {
        &self.routes
    }

    /// How many deliveries failed and wait for another attempt now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.count()
    }

    /// The sinks that receive a hook now; `None` when nobody receives its source.
    #[must_use]
    pub fn receivers(&self, envelope: &Envelope) -> Option<Vec<Receiver>> {
        let selection = self
            .routes
            .select(envelope.source_id(), envelope.tenant_id())?;
        let leases = selection.leases.iter();
        Some(
            leases
                .map(|lease| Receiver {
                    sink: lease.name().to_owned(),
                    is_ordered: lease.guarantees().ordering != Ordering::None,
                })
                .collect(),
        )
    }

    /// Delivers a hook to the sink of this name: attempts by the retry policy until it is
    /// stored, refused for good, or the host stops.
    ///
    /// The hook waits for its `turn` until the sink has taken it, whatever it then says;
    /// a later attempt is a later send and waits for nobody. A refusal at a ceiling of the
    /// sink's own queue is no attempt: the hook waits on in its place.
    pub async fn deliver(&self, journey: &Journey, sink: &str, turn: Turn) -> Verdict {
        let mut turn = Some(turn);
        let mut attempts = 0;
        let mut outcome = Outcome::NotStored;
        let mut last: Option<SinkError> = None;
        let mut retrying = None;
        let result = loop {
            let number = NonZeroU32::MIN.saturating_add(attempts);
            let error = match self.attempt(journey, sink, number, &mut turn).await {
                Ok(receipt) => {
                    attempts = number.get();
                    break Ok(receipt);
                }
                Err(Failure::NeverStarted) => break Err(last.unwrap_or_else(never_started)),
                Err(Failure::Interrupted(error)) => {
                    attempts = number.get();
                    outcome = Outcome::Unknown;
                    break Err(error);
                }
                Err(Failure::Refused(error)) => error,
            };
            if error.outcome() == Outcome::Unknown {
                outcome = Outcome::Unknown;
            }
            let pause = match error.class() {
                dispatch_api::ErrorClass::RetryAfter(pause) if is_full(&error) => Some(pause),
                class => {
                    attempts = number.get();
                    self.retry.pause(number, class, self.services.draw())
                }
            };
            let Some(pause) = pause else {
                break Err(error);
            };
            if let Some(places) = &self.retrying
                && retrying.is_none()
                && !is_full(&error)
            {
                match places.at(sink).try_acquire_owned() {
                    Ok(place) => retrying = Some(place),
                    Err(_) => {
                        self.notices.will_not_wait(sink, &error);
                        break Err(error);
                    }
                }
            }
            self.notices.will_try_again(sink, &error, pause);
            let waiting = self.waiting.try_enter();
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.requested() => break Err(error),
            }
            drop(waiting);
            last = Some(error);
        };
        Verdict {
            sink: Some(sink.to_owned()),
            attempts,
            result,
            outcome,
        }
    }

    async fn attempt(
        &self,
        journey: &Journey,
        sink: &str,
        number: NonZeroU32,
        turn: &mut Option<Turn>,
    ) -> Result<Receipt, Failure> {
        if let Some(turn) = turn {
            self.unless_stopped(turn.come()).await?;
        }
        let place = self.places.at(sink);
        let envelope = &journey.envelope;
        let permit = self
            .unless_stopped(place.acquire())
            .await?
            .expect("the semaphore is never closed");
        let selection = self
            .routes
            .select_one(envelope.source_id(), envelope.tenant_id(), sink)
            .ok_or_else(|| Failure::Refused(no_route(envelope.source_id())))?;
        let lease = selection
            .leases
            .first()
            .ok_or_else(|| Failure::Refused(route_removed(sink)))?;
        // A sink that bounds itself is handed deliveries freely.
        let _permit = (lease.admission() == Admission::HostLimited).then_some(permit);
        let mut ctx = DeliveryContext::attempt(number)
            .with_forward_headers(Arc::clone(&selection.forward_headers));
        if let Some(origin) = &self.origin {
            ctx = ctx.with_origin(Arc::clone(origin));
        }
        let until_stop = self.stop.deadline_passed();
        let delivering = async {
            if let Some(claim) = self.claim(journey, lease.inline_max_bytes()).await? {
                ctx = ctx.with_claim(claim);
            }
            let mut delivery = pin!(deliver_contained(&**lease, envelope, &ctx));
            let admitted = delivery.as_mut().now_or_never();
            if lease.guarantees().ordering == Ordering::PerKey && admitted.is_none() {
                // The sink keeps the order of first polls: the next one may come.
                *turn = None;
            }
            match admitted {
                Some(result) => result,
                None => delivery.await,
            }
        };
        let result = tokio::select! {
            biased;
            result = delivering => result,
            () = until_stop => return Err(Failure::Interrupted(SinkError::transient(
                Outcome::Unknown,
                "Interrupted",
                "the host stopped before the sink answered",
            ))),
        };
        telemetry::attempt_ended(sink, &result);
        if !result.as_ref().is_err_and(is_full) {
            *turn = None;
        }
        result.map_err(Failure::Refused)
    }

    /// Stores the body once, for all sinks that want it by reference.
    async fn claim(
        &self,
        journey: &Journey,
        inline_max_bytes: Option<NonZeroUsize>,
    ) -> Result<Option<ClaimRef>, SinkError> {
        let goes_inside =
            inline_max_bytes.is_none_or(|max| journey.envelope.body().len() <= max.get());
        match self.services.claim_check() {
            Some(store) if !goes_inside => journey
                .claim
                .get_or_try_init(|| store.check_in(&journey.envelope))
                .await
                .map(|claim| Some(claim.clone())),
            _ => Ok(None),
        }
    }

    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.stop.requested() => Err(Failure::NeverStarted),
            done = wait => Ok(done),
        }
    }
}

enum Failure {
    /// The sink answered.
    Refused(SinkError),
    /// The host stops: no answer, and no further attempt.
    Interrupted(SinkError),
    /// The host stops: this attempt was not begun.
    NeverStarted,
}

/// The sink's own queue had no place: nothing was attempted.
fn is_full(error: &SinkError) -> bool {
    error.code() == "BatchQueueFull"
}

fn never_started() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "Interrupted",
        "the host stopped before the first attempt began",
    )
}

/// Nobody receives the hooks of this source.
pub(crate) fn no_route(source_id: &str) -> SinkError {
    let source = shown(source_id, 64);
    SinkError::config(
        "NoRoute",
        format!("no sink receives the hooks of source `{source}`: add [sources.{source}]"),
    )
}

fn route_removed(sink: &str) -> SinkError {
    SinkError::config(
        "RouteRemoved",
        format!("no route leads to the sink `{sink}` any more: deliver the hook again"),
    )
}

/// How long hooks in flight may take once the host was told to stop.
pub const DRAIN_TIME: std::time::Duration = std::time::Duration::from_secs(10);

/// The moment by which a host that stops now is done.
pub(crate) fn drain_deadline() -> Instant {
    Instant::now() + DRAIN_TIME
}
