//! Credentials that end: kept, and replaced before they do.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use dispatch_api::{HostServices, SinkError, SparseLog};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Credentials, ProvideCredentials, unavailable};

/// How long before their end credentials are replaced, if they live long enough.
const AHEAD: Duration = Duration::from_secs(300);

/// A quarter of a shorter life is left when credentials are replaced.
const AHEAD_OF_SHORT_LIVES: u32 = 4;

/// After this time credentials without an end are looked up again: a profile's keys can
/// have been changed.
const LIFE_WITHOUT_END: Duration = Duration::from_secs(900);

/// The least time between two refreshes while valid credentials are held, and between
/// two refreshes for credentials that the service refuses.
const PAUSE: Duration = Duration::from_secs(15);

/// How long a failure answers those who come after it.
const FAILURE_KEPT: Duration = Duration::from_secs(1);

/// The longest that one refresh may take.
const LONGEST_REFRESH: Duration = Duration::from_secs(15);

/// Where new credentials come from.
#[async_trait]
pub(crate) trait Source: fmt::Debug + Send + Sync + 'static {
    /// Asks once for credentials.
    async fn fetch(&self) -> Result<Credentials, SinkError>;
}

type Fetched = Result<Credentials, SinkError>;

/// The credentials of one identity. Shared by everybody who signs with them, so that
/// there is one refresh at a time.
#[derive(Debug)]
pub(crate) struct Refreshing {
    source: Box<dyn Source>,
    services: HostServices,
    state: Mutex<State>,
    given_up: SparseLog,
    not_replaced: SparseLog,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    failed: Option<(Instant, SinkError)>,
    running: Option<watch::Receiver<Option<Fetched>>>,
    /// When credentials were last given up because the service refused them.
    gave_up_at: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    credentials: Credentials,
    refresh_at: SystemTime,
    /// When they were obtained or their replacement last failed, by both clocks.
    tried: (SystemTime, Instant),
}

impl Held {
    fn new(credentials: Credentials, now: SystemTime) -> Self {
        let refresh_at = match credentials.expiry() {
            None => now + LIFE_WITHOUT_END,
            Some(end) => {
                let life = end.duration_since(now).unwrap_or_default();
                end - AHEAD.min(life / AHEAD_OF_SHORT_LIVES)
            }
        };
        Self {
            credentials,
            refresh_at,
            tried: (now, Instant::now()),
        }
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.credentials.expiry().is_none_or(|end| now < end)
    }

    /// Whether it is time for others. The pause keeps a source that goes on handing out
    /// credentials near their end from being asked again and again.
    fn is_due(&self, now: SystemTime) -> bool {
        let (wall, instant) = self.tried;
        now >= self.refresh_at && (now >= wall + PAUSE || instant.elapsed() >= PAUSE)
    }
}

impl Refreshing {
    pub(crate) fn new(source: impl Source, services: &HostServices) -> Self {
        Self {
            source: Box::new(source),
            services: services.clone(),
            state: Mutex::default(),
            given_up: SparseLog::new(),
            not_replaced: SparseLog::new(),
        }
    }

    /// Valid credentials: those that are held, else those of the refresh under way.
    pub(crate) async fn provide(self: &Arc<Self>) -> Fetched {
        let mut running = {
            let mut state = self.state();
            let now = self.services.now();
            if let Some(held) = &state.held
                && held.is_valid(now)
            {
                let credentials = held.credentials.clone();
                if held.is_due(now) {
                    self.join(&mut state);
                }
                return Ok(credentials);
            }
            state.held = None;
            match &state.failed {
                Some((at, error)) if at.elapsed() < FAILURE_KEPT => return Err(error.clone()),
                _ => self.join(&mut state),
            }
        };
        let fetched = running.wait_for(Option::is_some).await;
        match fetched.as_deref() {
            Ok(Some(fetched)) => fetched.clone(),
            // Its runtime has ended.
            _ => Err(unavailable("the refresh of the credentials was broken off")),
        }
    }

    /// Gives up credentials that the service refuses. Whether others can be had.
    pub(crate) fn give_up(&self, refused: &Credentials) -> bool {
        let mut state = self.state();
        match &state.held {
            Some(held) if held.credentials.fingerprint() == refused.fingerprint() => {}
            // Somebody else was refused with them before.
            _ => return true,
        }
        if state.gave_up_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return false;
        }
        if let Some(count) = self.given_up.due() {
            tracing::warn!(
                count,
                "the service refuses the credentials at hand: others are obtained"
            );
        }
        state.gave_up_at = Some(Instant::now());
        state.held = None;
        state.failed = None;
        true
    }

    /// The refresh under way, started now if there is none. It is a task of its own: it
    /// goes on when the delivery that began it is over.
    fn join(self: &Arc<Self>, state: &mut State) -> watch::Receiver<Option<Fetched>> {
        if let Some(running) = &state.running
            // A sender that is gone without a result was a task of a runtime that ended.
            && running.has_changed().is_ok()
        {
            return running.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.running = Some(receiver.clone());
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let fetched = timeout(LONGEST_REFRESH, this.source.fetch()).await;
            let fetched = fetched.unwrap_or_else(|_| {
                Err(unavailable(
                    "the sources of credentials did not answer in time",
                ))
            });
            let fetched = this.keep(fetched);
            sender.send_replace(Some(fetched));
        });
        receiver
    }

    fn keep(&self, fetched: Fetched) -> Fetched {
        let now = self.services.now();
        let fetched = fetched.and_then(|credentials| {
            let held = Held::new(credentials, now);
            match held.is_valid(now) {
                true => Ok(held),
                false => Err(unavailable(
                    "the credentials obtained are past their end: compare the host's clock with \
                     their source's",
                )),
            }
        });
        crate::telemetry::credentials_refreshed(fetched.as_ref().err());
        let mut state = self.state();
        state.running = None;
        match fetched {
            Ok(held) => {
                let credentials = held.credentials.clone();
                state.held = Some(held);
                state.failed = None;
                Ok(credentials)
            }
            Err(error) => {
                match &mut state.held {
                    Some(held) if held.is_valid(now) => {
                        held.tried = (now, Instant::now());
                        if let Some(count) = self.not_replaced.due() {
                            tracing::warn!(
                                code = error.code(),
                                error = error.text(),
                                count,
                                "the credentials could not be replaced: those at hand are used on"
                            );
                        }
                    }
                    _ => state.failed = Some((Instant::now(), error.clone())),
                }
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment: a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ProvideCredentials for Arc<Refreshing> {
    async fn provide(&self) -> Fetched {
        Refreshing::provide(self).await
    }

    fn give_up(&self, refused: &Credentials) -> bool {
        Refreshing::give_up(self, refused)
    }
}

#[cfg(test)]
mod tests;
