//! The server as a test holds it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::builder::SqsServerBuilder;
use super::clock::Clock;
use super::connection;
use super::credentials::Credentials;
use super::entry_fault::EntryFaults;
use super::error::{ErrorCode, ServiceError};
use super::fault::{Fault, FaultRule};
use super::hold::Hold;
use super::message::PeekedMessage;
use super::operation::Operation;
use super::operations::{self, Call, Output};
use super::record::RecordedRequest;
use super::shared::{DateHeader, Shared};

/// An SQS server in this process, on a port of its own.
///
/// It stops when it is dropped; [`shutdown`](Self::shutdown) also waits until it has.
pub struct SqsServer {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl SqsServer {
    /// Starts a server with the default settings on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::builder().start().await
    }

    /// Settings to change before the start.
    pub fn builder() -> SqsServerBuilder {
        SqsServerBuilder::new()
    }

    pub(crate) fn run(listener: TcpListener, shared: Arc<Shared>) -> Self {
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { shared, accepting }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.site.address
    }

    /// The endpoint to give to a client, such as `http://127.0.0.1:9324`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.shared.site.endpoint()
    }

    /// The URL of a queue of this name, whether there is one or not.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        self.shared.site.queue_url(name)
    }

    /// The ARN of a queue of this name, whether there is one or not.
    #[must_use]
    pub fn queue_arn(&self, name: &str) -> String {
        self.shared.site.queue_arn(name)
    }

    /// The clock it lives by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Makes a queue, or finds the one that has these attributes already, and returns its URL.
    ///
    /// # Errors
    ///
    /// What CreateQueue answers to such a name or such attributes.
    pub async fn create_queue<'a>(
        &self,
        name: &str,
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<String, ServiceError> {
        let attributes: BTreeMap<String, String> = attributes
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let now = self.shared.now();
        operations::create_queue(&mut self.shared.state(), name, &attributes, now)
    }

    /// Carries an operation out without HTTP, signature, faults or record. What answers with no body gives null.
    ///
    /// # Errors
    ///
    /// What the operation answers to such a request.
    pub async fn call(&self, operation: Operation, request: Value) -> Result<Value, ServiceError> {
        let members = match request {
            Value::Object(members) => members,
            Value::Null => Map::new(),
            _ => {
                return Err(ServiceError::new(
                    ErrorCode::Serialization,
                    "the request must be a JSON object",
                ));
            }
        };
        let call = Call {
            now: self.shared.now(),
            host: None,
            path_queue: None,
            entry_faults: &EntryFaults::none(),
        };
        match operations::run(&self.shared, operation, call, members).await? {
            Output::Json(answer) => Ok(answer),
            Output::Void => Ok(Value::Null),
        }
    }

    /// Everything that a queue holds, in the order in which it came, without touching it. The queue is named
    /// by its name or its URL.
    ///
    /// # Errors
    ///
    /// When there is no such queue.
    pub fn messages(&self, queue: &str) -> Result<Vec<PeekedMessage>, ServiceError> {
        let now = self.shared.now();
        let state = &mut *self.shared.state();
        let name = state.site.name_in_url(Some(queue), None)?.to_owned();
        let sender = state.site.account.clone();
        let queue = state.queue(&name, now)?;
        Ok(queue
            .messages()
            .map(|message| message.peek(now, &sender))
            .collect())
    }

    /// Ends the visibility timeout of every message of a queue that is in flight, as its time would. The
    /// queue is named by its name or its URL.
    ///
    /// # Errors
    ///
    /// When there is no such queue.
    pub fn end_holds(&self, queue: &str) -> Result<(), ServiceError> {
        let now = self.shared.now();
        {
            let state = &mut *self.shared.state();
            let name = state.site.name_in_url(Some(queue), None)?.to_owned();
            state.queue(&name, now)?.end_holds(now);
        }
        self.shared.announce();
        Ok(())
    }

    /// Plays a fault at the next request of an operation.
    pub fn fault(&self, operation: Operation, fault: Fault) {
        self.add_fault(FaultRule::on(operation, fault));
    }

    /// Plays a fault when a rule says. Rules are tried in the order in which they were added.
    pub fn add_fault(&self, rule: FaultRule) {
        self.shared.faults().push(rule);
    }

    /// Forgets all faults that were not played.
    pub fn clear_faults(&self) {
        self.shared.faults().clear();
    }

    /// How many rules still have faults to play. Those that play always do not count.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.shared.faults().pending()
    }

    /// Holds the next request of an operation before it is carried out.
    #[must_use = "a hold that is dropped holds nothing"]
    pub fn hold(&self, operation: Operation) -> Hold {
        let hold = Hold::new();
        self.fault(operation, Fault::hold_before_storing(&hold));
        hold
    }

    /// Holds the answer to the next request of an operation after it was carried out.
    #[must_use = "a hold that is dropped holds nothing"]
    pub fn hold_answer(&self, operation: Operation) -> Hold {
        let hold = Hold::new();
        self.fault(operation, Fault::hold_after_storing(&hold));
        hold
    }

    /// The requests that came in, the oldest first, as far back as they are kept.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.records().all().cloned().collect()
    }

    /// The requests of one operation.
    #[must_use]
    pub fn requests_of(&self, operation: Operation) -> Vec<RecordedRequest> {
        self.shared
            .records()
            .all()
            .filter(|request| request.operation == Some(operation))
            .cloned()
            .collect()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.records().clear();
    }

    /// How many requests were dropped from the record because it was full.
    #[must_use]
    pub fn dropped_requests(&self) -> u64 {
        self.shared.records().dropped()
    }

    /// How many connections were opened since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        *self.shared.open_connections().borrow()
    }

    /// Returns once no connection is open.
    pub async fn all_connections_closed(&self) {
        let mut open = self.shared.open_connections().subscribe();
        // The sender lives in what is borrowed here, so the wait cannot fail.
        let _ = open.wait_for(|count| *count == 0).await;
    }

    /// Closes connections, without notice, that have been idle for so long; `None` leaves them open.
    pub fn close_idle_after(&self, limit: Option<Duration>) {
        self.shared.idle_limit().send_replace(limit);
    }

    /// Closes every connection that is open, without notice and with whatever is under way on it, as a
    /// restart does. A receive that waits takes nothing; other requests that have come in are carried out.
    pub fn cut_connections(&self) {
        self.shared
            .cuts()
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Says what the `Date` header shows from now on.
    pub fn set_date_header(&self, date: DateHeader) {
        self.shared.set_date_header(date);
    }

    /// Replaces all that may call, as a rotation of keys does.
    pub fn set_credentials(&self, credentials: impl IntoIterator<Item = Credentials>) {
        self.shared
            .set_credentials(credentials.into_iter().collect());
    }

    /// Stops to listen, closes all connections, and returns once that is done.
    pub async fn shutdown(mut self) {
        self.shared.stop().send_replace(true);
        // The task ends by itself; that it was aborted or panicked changes nothing about its end.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for SqsServer {
    fn drop(&mut self) {
        self.shared.stop().send_replace(true);
        self.accepting.abort();
    }
}

impl fmt::Debug for SqsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsServer")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut stop = shared.stop().subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Small answers would wait for an acknowledgement otherwise.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(connection::serve(Arc::clone(&shared), stream));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    // Out of file handles, most likely: some time must pass before it gets better.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Returns once the server is to stop.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A server that is gone has stopped too.
    let _ = stop.wait_for(|stop| *stop).await;
}
