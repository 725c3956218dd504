//! Setting a server up.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;

use super::clock::Clock;
use super::credentials::Credentials;
use super::limits::IN_FLIGHT;
use super::queue_url::Site;
use super::record::{RecordBook, RecordLimit};
use super::server::SqsServer;
use super::shared::{Parts, Shared};
use super::state::State;

/// Settings of a server, each with a default.
#[derive(Clone)]
#[must_use = "the settings do nothing until a server is started with them"]
pub struct SqsServerBuilder {
    address: SocketAddr,
    credentials: Vec<Credentials>,
    region: String,
    account: String,
    verify_signatures: bool,
    clock: Option<Clock>,
    in_flight_limit: usize,
    record_limit: RecordLimit,
    seed: Option<u64>,
}

impl SqsServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credentials: vec![Credentials::new("test", "test")],
            region: "us-east-1".into(),
            account: "000000000000".into(),
            verify_signatures: true,
            clock: None,
            in_flight_limit: IN_FLIGHT,
            record_limit: RecordLimit::default(),
            seed: None,
        }
    }

    /// Where to listen. The default is a free port of the loopback address; port 0 is any free one.
    ///
    /// On a loopback address, queue URLs with `127.0.0.1`, `localhost` and `[::1]` and the port are its own;
    /// on the unspecified address also those with the `Host` that a request came with.
    pub const fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Who may call, in place of the key `test` with the secret `test`.
    pub fn credentials(mut self, credentials: impl IntoIterator<Item = Credentials>) -> Self {
        self.credentials = credentials.into_iter().collect();
        self
    }

    /// The region that requests must be signed for and that ARNs show. The default is `us-east-1`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// The account in queue URLs and ARNs. The default is `000000000000`.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self
    }

    /// Whether to refuse requests that are not signed well. The default is to.
    pub const fn verify_signatures(mut self, verify: bool) -> Self {
        self.verify_signatures = verify;
        self
    }

    /// The clock to live by. The default is one of its own that starts at the machine's time.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How many messages of one queue may be in flight. The default is the service's 120,000.
    pub const fn in_flight_limit(mut self, messages: usize) -> Self {
        self.in_flight_limit = messages;
        self
    }

    /// How many requests to remember. The default is enough for any test.
    pub const fn record_limit(mut self, limit: RecordLimit) -> Self {
        self.record_limit = limit;
        self
    }

    /// Makes message ids, receipt handles and request ids the same from run to run.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    pub async fn start(self) -> io::Result<SqsServer> {
        let listener = TcpListener::bind(self.address).await?;
        let site = Site {
            address: listener.local_addr()?,
            account: self.account,
            region: self.region,
        };
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let shared = Shared::new(Parts {
            clock: self.clock.unwrap_or_else(Clock::system),
            verify_signatures: self.verify_signatures,
            credentials: self.credentials,
            records: RecordBook::new(self.record_limit),
            state: State::new(site, self.in_flight_limit, seed),
            seed,
        });
        Ok(SqsServer::run(listener, Arc::new(shared)))
    }
}

impl fmt::Debug for SqsServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsServerBuilder")
            .field("address", &self.address)
            .field("credentials", &self.credentials)
            .field("region", &self.region)
            .field("account", &self.account)
            .field("verify_signatures", &self.verify_signatures)
            .finish_non_exhaustive()
    }
}
