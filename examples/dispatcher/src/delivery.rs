//! One hook to one sink: attempts, pauses, and the end of it.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex, PoisonError};

use dispatch_api::{
    Admission, ClaimRef, DeliveryContext, Envelope, HostServices, Ordering, Origin, Outcome,
    Receipt, RetryPolicy, SinkError, TenantRoutes, deliver_contained,
};
use tokio::sync::{OnceCell, Semaphore, oneshot};
use tokio::time::{Instant, sleep};

use crate::stop::Stop;

/// What a host needs to deliver hooks.
#[derive(Debug)]
pub struct Deliverer {
    routes: TenantRoutes,
    retry: RetryPolicy,
    services: HostServices,
    origin: Option<Arc<Origin>>,
    /// Places for deliveries at sinks that do not bound themselves, by name.
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
    stop: Stop,
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
    /// The sink's name.
    pub sink: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The confirmation, or the last error: a dead letter.
    pub result: Result<Receipt, SinkError>,
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
            services,
            origin,
            places: Mutex::default(),
            stop,
        }
    }

    /// The routes, to swap sinks while hooks are delivered.
    #[must_use]
    pub fn routes(&self) -> &TenantRoutes {
        &self.routes
    }

    /// The names of the sinks that receive a hook now, and whether each keeps the
    /// order only of deliveries that wait for one another.
    #[must_use]
    pub fn receivers(&self, envelope: &Envelope) -> Option<Vec<(String, bool)>> {
        let selection = self
            .routes
            .select(envelope.source_id(), envelope.tenant_id())?;
        let leases = selection.leases.iter();
        Some(
            leases
                .map(|lease| {
                    let in_turn = lease.guarantees().ordering == Ordering::PerKeyWhenAwaited;
                    (lease.name().to_owned(), in_turn)
                })
                .collect(),
        )
    }

    /// Delivers a hook to the sink of this name: attempts by the retry policy until it is
    /// stored, refused for good, or the host stops.
    ///
    /// The first attempt waits for `turn`; a later one is a later send and waits for
    /// nobody.
    pub async fn deliver(&self, journey: &Journey, sink: &str, turn: Turn) -> Verdict {
        let mut turn = Some(turn);
        let mut attempt = NonZeroU32::MIN;
        let (attempts, result) = loop {
            let result = self.attempt(journey, sink, attempt, turn.take()).await;
            let error = match result {
                Ok(receipt) => break (attempt.get(), Ok(receipt)),
                Err(Failure::Interrupted(error)) => break (attempt.get(), Err(error)),
                Err(Failure::NeverStarted) => break (attempt.get() - 1, Err(never_started())),
                Err(Failure::Refused(error)) => error,
            };
            let pause = self
                .retry
                .pause(attempt, error.class(), self.services.draw());
            let Some(pause) = pause else {
                break (attempt.get(), Err(error));
            };
            tracing::debug!(
                sink,
                id = %journey.envelope.id(),
                attempt,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                class = error.class().as_str(),
                code = error.code(),
                "will try again"
            );
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.requested() => break (attempt.get(), Err(error)),
            }
            attempt = attempt.saturating_add(1);
        };
        Verdict {
            sink: sink.to_owned(),
            attempts,
            result,
        }
    }

    async fn attempt(
        &self,
        journey: &Journey,
        sink: &str,
        attempt: NonZeroU32,
        turn: Option<Turn>,
    ) -> Result<Receipt, Failure> {
        let _turn = match turn {
            Some(turn) => Some(
                self.unless_stopped(turn.come())
                    .await
                    .ok_or(Failure::NeverStarted)?,
            ),
            None => None,
        };
        let place = self.place(sink);
        let envelope = &journey.envelope;
        let permit = self
            .unless_stopped(place.acquire())
            .await
            .ok_or(Failure::NeverStarted)?
            .expect("the semaphore is never closed");
        let selection = self
            .routes
            .select(envelope.source_id(), envelope.tenant_id())
            .ok_or_else(|| Failure::Refused(no_route(envelope.source_id())))?;
        let lease = selection
            .leases
            .iter()
            .find(|lease| lease.name() == sink)
            .ok_or_else(|| Failure::Refused(route_removed(sink)))?;
        // A sink that bounds itself is handed deliveries freely.
        let _permit = (lease.admission() == Admission::HostLimited).then_some(permit);
        let mut ctx = DeliveryContext::attempt(attempt)
            .with_forward_headers(Arc::clone(&selection.forward_headers));
        if let Some(origin) = &self.origin {
            ctx = ctx.with_origin(Arc::clone(origin));
        }
        let delivering = async {
            if let Some(claim) = self.claim(journey, lease.inline_max_bytes()).await? {
                ctx = ctx.with_claim(claim);
            }
            deliver_contained(&**lease, envelope, &ctx).await
        };
        tokio::select! {
            biased;
            result = delivering => result.map_err(Failure::Refused),
            () = self.stop.deadline_passed() => Err(Failure::Interrupted(SinkError::transient(
                Outcome::Unknown,
                "Interrupted",
                "the host stopped before the sink answered",
            ))),
        }
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

    fn place(&self, sink: &str) -> Arc<Semaphore> {
        // Nothing is left half done under this lock.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(sink) {
            return Arc::clone(place);
        }
        let place = Arc::new(Semaphore::new(self.services.sink_concurrency().get()));
        places.insert(sink.to_owned(), Arc::clone(&place));
        place
    }

    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop.requested() => None,
            done = wait => Some(done),
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

fn never_started() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "Interrupted",
        "the host stopped before this attempt began",
    )
}

/// Nobody receives the hooks of this source.
pub(crate) fn no_route(source_id: &str) -> SinkError {
    SinkError::config(
        "NoRoute",
        format!("no sink receives the hooks of source `{source_id}`: add [sources.{source_id}]"),
    )
}

fn route_removed(sink: &str) -> SinkError {
    SinkError::config(
        "RouteRemoved",
        format!("no route leads to the sink `{sink}` any more: deliver the hook again"),
    )
}

/// The order of first attempts at sinks that keep the order of awaited deliveries
/// only: those of one sink, source and tenant go one after the other.
#[derive(Debug, Default)]
pub struct Lanes {
    last: HashMap<(String, String, Option<String>), oneshot::Receiver<()>>,
}

impl Lanes {
    /// A place behind those that joined before.
    pub fn join(&mut self, sink: &str, envelope: &Envelope) -> Turn {
        let (done, next) = oneshot::channel();
        let key = (
            sink.to_owned(),
            envelope.source_id().to_owned(),
            envelope.tenant_id().map(str::to_owned),
        );
        let before = self.last.insert(key, next);
        Turn {
            before,
            _done: Some(done),
        }
    }
}

/// A place in the order of first attempts. Dropping it lets the next one go.
#[derive(Debug, Default)]
pub struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _done: Option<oneshot::Sender<()>>,
}

impl Turn {
    /// A turn that waits for nobody.
    #[must_use]
    pub fn free() -> Self {
        Self::default()
    }

    async fn come(mut self) -> Self {
        if let Some(before) = self.before.take() {
            // The one before says that it is done by dropping its end.
            let _ = before.await;
        }
        self
    }
}

/// How long hooks in flight may take once the host was told to stop.
pub const DRAIN_TIME: std::time::Duration = std::time::Duration::from_secs(10);

/// The moment by which a host that stops now is done.
pub(crate) fn drain_deadline() -> Instant {
    Instant::now() + DRAIN_TIME
}
