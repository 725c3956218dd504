//! A proxy between a client and its brokers, which knows requests from their replies, asks
//! clients who they are, and keeps them from going past it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rdkafka::types::RDKafkaRespErr as Error;
use sink_testkit::conformance::{FixtureError, Garbage, Gate};
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::brokers::Brokers;
use crate::frame::{read, with_port};
use crate::wire::{self, Head, correlation, head};

type Connections = Arc<Mutex<Vec<JoinHandle<()>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a proxy does with one request.
pub(crate) enum Play {
    /// Hands it on.
    Pass,
    /// Holds it and what comes behind it, as a broker does that takes its time.
    HoldRequest(Arc<Gate>),
    /// Hands it on, and holds its reply.
    HoldReply(Arc<Gate>),
    /// Hands it on, and ends the connection in the place of its reply.
    LoseReply,
    /// Hands it on, and spoils its reply.
    Garble(Garbage),
    /// Hands it on to brokers that refuse it.
    Refuse(Error),
    /// Ends the connection.
    Close,
    /// Says this in the place of a reply, and ends the connection.
    Answer(Vec<u8>),
    /// Says this in the place of a reply.
    Instead(Bytes),
    /// Hands it on, and asks what becomes of its reply.
    Look,
    /// Hands on and answers nothing any more.
    Silence,
}

/// Says what happens to what comes by.
pub(crate) trait Watch: Send + Sync {
    /// Whether it is the user's password.
    fn is_known(&self, user: &str, password: &str) -> bool;

    /// A user's request comes by.
    fn asked(&self, user: Option<&str>, head: Head, frame: &Bytes) -> Play;

    /// The reply to a request that is looked at, and what is told in its place.
    fn answered(&self, _head: Head, frame: Bytes) -> Bytes {
        frame
    }

    /// The latest versions of requests that clients hear of, where brokers know later ones.
    fn latest(&self) -> &'static [(i16, i16)] {
        &[]
    }
}

/// A port that leads to the brokers, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    connections: Connections,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(
        runtime: &Handle,
        brokers: Brokers,
        watch: Arc<dyn Watch>,
    ) -> Result<Self, FixtureError> {
        let listening = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = listening.await??;
        let port = listener.local_addr()?.port();
        let (_, broker) = brokers.address().rsplit_once(':').unwrap();
        let ports = (broker.parse()?, port);
        let connections = Connections::default();
        let opened = Arc::clone(&connections);
        let accepting = runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (brokers, watch) = (brokers.clone(), Arc::clone(&watch));
                let serving = tokio::spawn(async move {
                    // What ends one side ends the other.
                    let _ = serve(client, ports, brokers, watch).await;
                });
                lock(&opened).push(serving);
            }
        });
        Ok(Self {
            port,
            connections,
            accepting,
        })
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Proxy {
    /// Ends every connection, and returns when they have ended.
    pub(crate) async fn cut(&self) {
        let connections = std::mem::take(&mut *lock(&self.connections));
        for connection in connections {
            connection.abort();
            // It was aborted, or had ended.
            let _ = connection.await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        for connection in &*lock(&self.connections) {
            connection.abort();
        }
    }
}

async fn serve(
    client: TcpStream,
    ports: (u16, u16),
    brokers: Brokers,
    watch: Arc<dyn Watch>,
) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", ports.0)).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let connection = Connection {
        ports,
        brokers,
        watch,
        awaited: Mutex::default(),
        to_client: tokio::sync::Mutex::new(to_client),
    };
    tokio::select! {
        ended = connection.requests(from_client, to_server) => ended,
        ended = connection.replies(from_server) => ended,
    }
}

struct Connection {
    /// The broker's, and the proxy's.
    ports: (u16, u16),
    brokers: Brokers,
    watch: Arc<dyn Watch>,
    /// What to do with replies.
    awaited: Mutex<HashMap<i32, AtReply>>,
    to_client: tokio::sync::Mutex<OwnedWriteHalf>,
}

enum AtReply {
    /// It names brokers.
    Rewrite,
    /// It names what brokers understand.
    AddSasl,
    Hold(Arc<Gate>),
    /// The connection ends in its place.
    Lose,
    Garble(Garbage, Head),
    Look(Head),
}

impl Connection {
    fn at_reply(&self, correlation: i32, what: AtReply) {
        lock(&self.awaited).insert(correlation, what);
    }

    async fn tell(&self, frame: &[u8]) -> io::Result<()> {
        self.to_client.lock().await.write_all(frame).await
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut user = None;
        while let Some(frame) = read(&mut from).await? {
            let frame = Bytes::from(frame);
            let head = head(&frame)?;
            match head.api {
                wire::API_VERSIONS => self.at_reply(head.correlation, AtReply::AddSasl),
                wire::METADATA | wire::FIND_COORDINATOR => {
                    self.at_reply(head.correlation, AtReply::Rewrite);
                }
                wire::SASL_HANDSHAKE => {
                    self.tell(&wire::handshaken(head.correlation)).await?;
                    continue;
                }
                wire::SASL_AUTHENTICATE => {
                    user = self.authenticate(&frame, head).await?;
                    continue;
                }
                _ => {
                    match self.watch.asked(user.as_deref(), head, &frame) {
                        Play::Pass => {}
                        Play::HoldRequest(gate) => gate.pass().await,
                        Play::HoldReply(gate) => {
                            self.at_reply(head.correlation, AtReply::Hold(gate));
                        }
                        Play::LoseReply => self.at_reply(head.correlation, AtReply::Lose),
                        Play::Garble(garbage) => {
                            self.at_reply(head.correlation, AtReply::Garble(garbage, head));
                        }
                        Play::Refuse(error) => {
                            let told = self.brokers.refuse(error).await;
                            told.map_err(|error| io::Error::other(error.to_string()))?;
                        }
                        Play::Close => return Ok(()),
                        Play::Answer(bytes) => return self.tell(&bytes).await,
                        Play::Instead(reply) => {
                            self.tell(&reply).await?;
                            continue;
                        }
                        Play::Look => self.at_reply(head.correlation, AtReply::Look(head)),
                        Play::Silence => {
                            // Nothing that comes behind it is answered either.
                            while read(&mut from).await?.is_some() {}
                            return Ok(());
                        }
                    }
                }
            }
            to.write_all(&frame).await?;
        }
        Ok(())
    }

    /// The user whose password it is; nobody else comes any further.
    async fn authenticate(&self, frame: &Bytes, head: Head) -> io::Result<Option<String>> {
        let credentials =
            wire::credentials(frame).filter(|(user, password)| self.watch.is_known(user, password));
        let answer = wire::authenticated(head.correlation, credentials.is_some());
        self.tell(&answer).await?;
        match credentials {
            Some((user, _)) => Ok(Some(user)),
            None => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    async fn replies(&self, mut from: OwnedReadHalf) -> io::Result<()> {
        while let Some(frame) = read(&mut from).await? {
            let frame = Bytes::from(frame);
            let what = lock(&self.awaited).remove(&correlation(&frame));
            let frame = match what {
                Some(AtReply::Rewrite) => with_port(&frame, self.ports.0, self.ports.1).into(),
                Some(AtReply::AddSasl) => wire::with_sasl(&frame, self.watch.latest()),
                Some(AtReply::Look(head)) => self.watch.answered(head, frame),
                // Replies behind it wait too: they come in turns.
                Some(AtReply::Hold(gate)) => {
                    gate.pass().await;
                    frame
                }
                Some(AtReply::Lose) => return Ok(()),
                Some(AtReply::Garble(garbage, head)) => wire::garbled(garbage, &frame, head),
                None => frame,
            };
            self.tell(&frame).await?;
        }
        Ok(())
    }
}
