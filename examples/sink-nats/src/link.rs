//! The connection of the sinks that agree on how it is made.

use std::fmt;
use std::sync::Arc;

use async_nats::Message;
use dispatch_api::{ErrorClass, HostServices, Outcome, SinkError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::ack::Answer;
use crate::config::LinkConfig;
use crate::connection::{Connection, Failure, Outgoing};
use crate::record::Record;

/// How many connections are tried for one message. One can end unnoticed while it is idle:
/// then the message never left, and goes by the next one.
const SENDS: u32 = 2;

fn never_left() -> SinkError {
    SinkError::transient(
        Outcome::NotStored,
        "ConnectionLost",
        "connections end before a message can be sent",
    )
}

/// Holds a connection, made when it is first needed and again when it is lost.
pub(crate) struct Link {
    config: LinkConfig,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    current: Option<Arc<Connection>>,
    /// The last failure to connect, for those who waited for it.
    failed: Option<(Instant, SinkError)>,
}

impl Link {
    fn new(config: LinkConfig) -> Self {
        Self {
            config,
            slot: Mutex::default(),
        }
    }

    /// The link of this configuration, one for all of a host that agree on it.
    pub(crate) fn shared(config: &LinkConfig, services: &HostServices) -> Arc<Self> {
        let make = || Ok::<_, std::convert::Infallible>(Self::new(config.clone()));
        let Ok(link) = services.pool().get_or_try_create(&Self::key(config), make);
        link
    }

    /// What tells this link from others. Holds no secret.
    fn key(config: &LinkConfig) -> String {
        format!("{config:?} {}", config.credentials.fingerprint().to_hex())
    }

    /// Publishes one message and returns the stream's answer.
    ///
    /// # Errors
    ///
    /// What went wrong, with the outcome.
    pub(crate) async fn publish(
        &self,
        record: &Record,
        deadline: Instant,
    ) -> Result<Answer, SinkError> {
        for _ in 0..SENDS {
            let connection = self.connection(deadline).await?;
            match connection.publish(record, deadline).await {
                Err(Failure::NotSent) => {}
                Err(Failure::Error(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(never_left())
    }

    /// Sends one message and returns the answer to it. `nobody` is the error where nobody
    /// listens on the subject.
    ///
    /// # Errors
    ///
    /// What went wrong, with the outcome.
    pub(crate) async fn request(
        &self,
        message: Outgoing<'_>,
        deadline: Instant,
        nobody: impl Fn() -> SinkError + Sync,
    ) -> Result<Message, SinkError> {
        for _ in 0..SENDS {
            let connection = self.connection(deadline).await?;
            match connection.request(&message, deadline, &nobody).await {
                Err(Failure::NotSent) => {}
                Err(Failure::Error(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(never_left())
    }

    /// Sends a message that is answered by up to `max` messages, and hands over each as it
    /// comes. See [`Connection::pull`].
    ///
    /// # Errors
    ///
    /// What went wrong; what was handed over stays so.
    pub(crate) async fn pull(
        &self,
        message: Outgoing<'_>,
        max: usize,
        deadline: Instant,
        take: &(dyn Fn(Message) + Send + Sync),
    ) -> Result<(), SinkError> {
        for _ in 0..SENDS {
            let connection = self.connection(deadline).await?;
            match connection.pull(&message, max, deadline, take).await {
                Err(Failure::NotSent) => {}
                Err(Failure::Error(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
        Err(never_left())
    }

    /// The open connection, or a new one. One caller connects, the others wait for it and
    /// share its failure.
    async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, SinkError> {
        let asked = Instant::now();
        let connecting = async {
            let mut slot = self.slot.lock().await;
            if let Some(connection) = slot.current.as_ref().filter(|current| current.is_open()) {
                return Ok(Arc::clone(connection));
            }
            slot.current = None;
            if let Some((at, error)) = &slot.failed
                && *at > asked
            {
                return Err(error.clone());
            }
            match self.connect().await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *slot = Slot {
                        current: Some(Arc::clone(&connection)),
                        failed: None,
                    };
                    Ok(connection)
                }
                Err(error) => {
                    slot.failed = Some((Instant::now(), error.clone()));
                    Err(error)
                }
            }
        };
        timeout_at(deadline, connecting).await.unwrap_or_else(|_| {
            Err(SinkError::transient(
                Outcome::NotStored,
                "ConnectFailed",
                "no connection by the deadline of the delivery: check servers and network",
            ))
        })
    }

    /// Tries the servers in their order. A refusal that an operator has to mend is told
    /// rather than one that time may heal.
    async fn connect(&self) -> Result<Connection, SinkError> {
        let mut failed: Option<SinkError> = None;
        for server in &self.config.servers {
            match Connection::open(server, &self.config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    let is_config = |error: &SinkError| matches!(error.class(), ErrorClass::Config);
                    if !failed.as_ref().is_some_and(is_config) {
                        failed = Some(error);
                    }
                }
            }
        }
        Err(failed.expect("a configuration has at least one server"))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
