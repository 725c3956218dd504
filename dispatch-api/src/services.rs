//! What the plugins of one host share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::claim::{ClaimCheck, ClaimId};
use crate::envelope::EnvelopeId;
use crate::retry::Draw;

/// How many deliveries a host runs at once for a sink that does not bound
/// itself, unless configured otherwise.
pub const DEFAULT_SINK_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not zero");

type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What a host gives to every plugin it builds. Cheap to clone.
///
/// There is no process-wide state beside it: two hosts in one process share nothing.
#[derive(Clone)]
pub struct HostServices {
    claim_check: Option<Arc<dyn ClaimCheck>>,
    sink_concurrency: NonZeroUsize,
    clock: Arc<dyn Clock>,
    entropy: Arc<Mutex<fastrand::Rng>>,
    environment: Arc<Environment>,
    pool: Arc<Pool>,
}

impl Default for HostServices {
    fn default() -> Self {
        Self::new()
    }
}

impl HostServices {
    /// No claim check, 8 deliveries at once, the system's clock, random numbers
    /// and the environment of the process.
    #[must_use]
    pub fn new() -> Self {
        Self {
            claim_check: None,
            sink_concurrency: DEFAULT_SINK_CONCURRENCY,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(Mutex::new(fastrand::Rng::new())),
            environment: Arc::new(|name| std::env::var(name).ok()),
            pool: Arc::default(),
        }
    }

    /// Sets where bodies too large for a message are stored.
    #[must_use]
    pub fn with_claim_check(mut self, claim_check: Arc<dyn ClaimCheck>) -> Self {
        self.claim_check = Some(claim_check);
        self
    }

    /// Sets how many deliveries run at once for a sink that does not bound itself.
    #[must_use]
    pub fn with_sink_concurrency(mut self, concurrency: NonZeroUsize) -> Self {
        self.sink_concurrency = concurrency;
        self
    }

    /// Sets the clock of wall time.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes every random number follow from `seed`, for a run that can be repeated.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.entropy = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        self
    }

    /// Sets what stands for the environment of the process.
    #[must_use]
    pub fn with_environment(
        mut self,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// Where bodies too large for a message are stored.
    #[must_use]
    pub fn claim_check(&self) -> Option<&Arc<dyn ClaimCheck>> {
        self.claim_check.as_ref()
    }

    /// How many deliveries run at once for a sink that does not bound itself.
    #[must_use]
    pub fn sink_concurrency(&self) -> NonZeroUsize {
        self.sink_concurrency
    }

    /// The wall time.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// The wall time in unix milliseconds, 0 before 1970.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        self.now()
            .duration_since(UNIX_EPOCH)
            .map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            .unwrap_or(0)
    }

    /// A value of the environment; one that is blank counts as absent.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.trim().is_empty())
    }

    /// A fresh draw for jitter.
    #[must_use]
    pub fn draw(&self) -> Draw {
        Draw::new(self.rng(fastrand::Rng::f64))
    }

    /// A new envelope id of this moment.
    #[must_use]
    pub fn new_envelope_id(&self) -> EnvelopeId {
        let mut random = [0; 10];
        self.rng(|rng| rng.fill(&mut random));
        EnvelopeId::v7(self.unix_ms(), &random)
    }

    /// A new claim id of this moment, in position 0.
    #[must_use]
    pub fn new_claim_id(&self) -> ClaimId {
        ClaimId::new(self.unix_ms(), self.rng(|rng| rng.u64(..)), 0)
    }

    /// What plugins share by type and key.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn rng<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        // A generator has no invariant that a panic could break.
        draw(&mut self.entropy.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for HostServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostServices")
            .field("claim_check", &self.claim_check)
            .field("sink_concurrency", &self.sink_concurrency)
            .finish_non_exhaustive()
    }
}

/// A source of wall time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where wall time enters"
    )]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Things that plugins share, found by type and key, such as the batcher that
/// two sinks with the same queue and credentials send through.
///
/// An entry lives as long as somebody holds it. A key never holds a secret: put
/// a fingerprint in its place.
#[derive(Default)]
pub struct Pool {
    entries: Mutex<HashMap<(TypeId, String), Weak<dyn Any + Send + Sync>>>,
}

impl Pool {
    /// The entry of this type and key, made now if nobody holds one.
    ///
    /// `make` runs under the pool's lock: it must not use the pool.
    ///
    /// # Errors
    ///
    /// Those of `make`; then nothing is shared.
    pub fn get_or_try_create<T, E>(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E>
    where
        T: Any + Send + Sync,
    {
        // A panic of `make` leaves the map as it was.
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (TypeId::of::<T>(), key.to_owned());
        if let Some(shared) = entries.get(&id).and_then(Weak::upgrade)
            && let Ok(shared) = shared.downcast::<T>()
        {
            return Ok(shared);
        }
        let made = Arc::new(make()?);
        entries.retain(|_, entry| entry.strong_count() > 0);
        let shared: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(&made);
        entries.insert(id, Arc::downgrade(&shared));
        Ok(made)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn share(pool: &Pool, key: &str, value: u32) -> Arc<u32> {
        pool.get_or_try_create(key, || Ok::<_, Infallible>(value))
            .unwrap()
    }

    #[test]
    fn one_key_shares_one_entry_while_somebody_holds_it() {
        let pool = Pool::default();
        let first = share(&pool, "queue", 1);
        assert_eq!(*share(&pool, "queue", 2), 1);
        assert_eq!(*share(&pool, "other", 3), 3);
        drop(first);
        assert_eq!(*share(&pool, "queue", 4), 4);
    }

    #[test]
    fn types_do_not_meet_under_one_key() {
        let pool = Pool::default();
        let _number = share(&pool, "queue", 1);
        let text = pool
            .get_or_try_create("queue", || Ok::<_, Infallible>("text".to_owned()))
            .unwrap();
        assert_eq!(*text, "text");
    }

    #[test]
    fn a_seed_repeats_every_draw() {
        let (a, b) = (
            HostServices::new().with_seed(7),
            HostServices::new().with_seed(7),
        );
        assert_eq!(a.draw(), b.draw());
        assert_ne!(a.draw(), a.draw());
    }

    #[test]
    fn a_blank_variable_counts_as_absent() {
        let services = HostServices::new().with_environment(|name| match name {
            "SET" => Some("value".to_owned()),
            _ => Some("  ".to_owned()),
        });
        assert_eq!(services.env("SET").as_deref(), Some("value"));
        assert_eq!(services.env("BLANK"), None);
    }
}
