//! What all connections of a server have in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::clock::{Clock, Timestamp};
use super::credentials::Credentials;
use super::error::ServiceError;
use super::fault::FaultBook;
use super::lock;
use super::operation::Operation;
use super::queue_url::Site;
use super::record::RecordBook;
use super::signature::{self, SignedRequest};
use super::state::State;

pub(crate) struct Shared {
    pub(crate) site: Site,
    pub(crate) clock: Clock,
    pub(crate) verify_signatures: bool,
    state: Mutex<State>,
    /// Counts changes, so that receives that wait look again.
    changes: watch::Sender<u64>,
    credentials: Mutex<HashMap<String, Credentials>>,
    faults: Mutex<FaultBook>,
    records: Mutex<RecordBook>,
    date_header: Mutex<DateHeader>,
    connections: AtomicU64,
    open_connections: watch::Sender<usize>,
    idle_limit: watch::Sender<Option<Duration>>,
    /// Counts the times at which all connections were cut.
    cuts: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    request_ids: Mutex<fastrand::Rng>,
}

/// What the `Date` header of answers says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum DateHeader {
    /// There is none.
    Absent,
    /// Always this time.
    Fixed(SystemTime),
    /// The time on the server's clock.
    #[default]
    FollowsClock,
}

/// What a server starts with.
pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) verify_signatures: bool,
    pub(crate) credentials: Vec<Credentials>,
    pub(crate) records: RecordBook,
    pub(crate) state: State,
    pub(crate) seed: u64,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            site: parts.state.site.clone(),
            clock: parts.clock,
            verify_signatures: parts.verify_signatures,
            state: Mutex::new(parts.state),
            changes: watch::Sender::new(0),
            credentials: Mutex::new(by_key(parts.credentials)),
            faults: Mutex::new(FaultBook::default()),
            records: Mutex::new(parts.records),
            date_header: Mutex::new(DateHeader::default()),
            connections: AtomicU64::new(0),
            open_connections: watch::Sender::new(0),
            idle_limit: watch::Sender::new(None),
            cuts: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            request_ids: Mutex::new(fastrand::Rng::with_seed(parts.seed.rotate_left(32))),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, FaultBook> {
        lock(&self.faults)
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, RecordBook> {
        lock(&self.records)
    }

    pub(crate) fn set_credentials(&self, credentials: Vec<Credentials>) {
        *lock(&self.credentials) = by_key(credentials);
    }

    /// Refuses a request that nobody known has signed, unless the server does not look.
    pub(crate) fn authenticate(&self, request: SignedRequest<'_>) -> Result<(), ServiceError> {
        if !self.verify_signatures {
            return Ok(());
        }
        let known = lock(&self.credentials);
        signature::verify(request, &known, &self.site.region, self.now())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// Wakes the receives that wait.
    pub(crate) fn announce(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn set_date_header(&self, date: DateHeader) {
        *lock(&self.date_header) = date;
    }

    pub(crate) fn date(&self) -> Option<String> {
        let time = match *lock(&self.date_header) {
            DateHeader::Absent => return None,
            DateHeader::Fixed(time) => Timestamp::from_system(time).to_system(),
            DateHeader::FollowsClock => self.clock.now(),
        };
        // Years of five digits have no HTTP date, and formatting one would panic.
        let last = Timestamp::from_seconds(253_402_300_799).to_system();
        Some(httpdate::fmt_http_date(time.min(last)))
    }

    pub(crate) fn request_id(&self) -> String {
        super::state::uuid_from(lock(&self.request_ids).u128(..))
    }

    pub(crate) fn count_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) const fn open_connections(&self) -> &watch::Sender<usize> {
        &self.open_connections
    }

    pub(crate) const fn idle_limit(&self) -> &watch::Sender<Option<Duration>> {
        &self.idle_limit
    }

    pub(crate) const fn cuts(&self) -> &watch::Sender<u64> {
        &self.cuts
    }

    pub(crate) const fn stop(&self) -> &watch::Sender<bool> {
        &self.stop
    }
}

/// One line of log for a request.
pub(crate) fn log(
    operation: Option<Operation>,
    status: Option<u16>,
    connection: u64,
    faulted: bool,
) {
    tracing::debug!(
        operation = operation.map(Operation::name),
        status,
        connection,
        faulted,
        "request"
    );
}

fn by_key(credentials: Vec<Credentials>) -> HashMap<String, Credentials> {
    credentials
        .into_iter()
        .map(|credentials| (credentials.access_key.clone(), credentials))
        .collect()
}
