//! A proxy between the sink and its brokers, which knows requests from their replies and
//! keeps the sink from going past it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use sink_testkit::conformance::{FixtureError, Gate};
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::brokers::Brokers;
use crate::script::{Play, Script};
use crate::wire::{METADATA, PRODUCE, correlation, head, read, records, with_port};

/// A port that leads to the brokers, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(
        runtime: &Handle,
        brokers: Brokers,
        script: Arc<Script>,
    ) -> Result<Self, FixtureError> {
        let listening = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = listening.await??;
        let port = listener.local_addr()?.port();
        let (_, broker) = brokers.address().rsplit_once(':').unwrap();
        let ports = (broker.parse()?, port);
        let accepting = runtime.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let connection = Connection {
                    ports,
                    brokers: brokers.clone(),
                    script: Arc::clone(&script),
                    awaited: Mutex::default(),
                };
                connections.spawn(async move {
                    // What ends one side ends the other.
                    let _ = connection.serve(client).await;
                });
            }
        });
        Ok(Self { port, accepting })
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections end with it.
        self.accepting.abort();
    }
}

struct Connection {
    /// The broker's, and the proxy's.
    ports: (u16, u16),
    brokers: Brokers,
    script: Arc<Script>,
    /// What to do with replies.
    awaited: Mutex<HashMap<i32, AtReply>>,
}

enum AtReply {
    /// It names brokers.
    Rewrite,
    Hold(Arc<Gate>),
}

impl Connection {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", self.ports.0)).await?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            ended = self.requests(from_client, to_server) => ended,
            ended = self.replies(from_server, to_client) => ended,
        }
    }

    fn at_reply(&self, correlation: i32, what: AtReply) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.insert(correlation, what);
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        while let Some(frame) = read(&mut from).await? {
            let head = head(&frame)?;
            if head.api == METADATA {
                self.at_reply(head.correlation, AtReply::Rewrite);
            }
            if head.api == PRODUCE {
                let topics = records(&frame, &head);
                let topics = topics.expect("the client writes what the proxy reads");
                match self.script.request(&topics) {
                    Play::Pass => {}
                    Play::HoldRequest(gate) => gate.pass().await,
                    Play::HoldReply(gate) => self.at_reply(head.correlation, AtReply::Hold(gate)),
                    Play::Refuse(error) => {
                        let told = self.brokers.refuse(error).await;
                        told.map_err(|error| io::Error::other(error.to_string()))?;
                    }
                }
            }
            to.write_all(&frame).await?;
        }
        Ok(())
    }

    async fn replies(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        while let Some(frame) = read(&mut from).await? {
            let what = {
                let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
                awaited.remove(&correlation(&frame))
            };
            let frame = match what {
                Some(AtReply::Rewrite) => with_port(&frame, self.ports.0, self.ports.1),
                // Replies behind it wait too: they come in turns.
                Some(AtReply::Hold(gate)) => {
                    gate.pass().await;
                    frame
                }
                None => frame,
            };
            to.write_all(&frame).await?;
        }
        Ok(())
    }
}
