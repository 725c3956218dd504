//! A proxy between the sink and its server, which knows messages from their replies.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use sink_testkit::conformance::Fault;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::script::{Play, Script, garbled};
use crate::wire::Frame;

/// A port that leads to the server, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(
        runtime: &Handle,
        server: String,
        script: Arc<Script>,
    ) -> io::Result<Self> {
        let listening = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = listening.await.map_err(io::Error::other)??;
        let port = listener.local_addr()?.port();
        let accepting = runtime.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(serve(client, server.clone(), Arc::clone(&script)));
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

/// What one connection's two directions share.
struct Connection {
    script: Arc<Script>,
    to_server: UnboundedSender<Bytes>,
    to_client: UnboundedSender<Bytes>,
    /// What to do with replies, by the subject that they come to.
    at_reply: Mutex<HashMap<String, Arc<Fault>>>,
}

async fn serve(client: TcpStream, server: String, script: Arc<Script>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, client) = client.into_split();
    let (from_server, server) = server.into_split();
    let (to_server, for_server) = unbounded_channel();
    let (to_client, for_client) = unbounded_channel();
    let connection = Arc::new(Connection {
        script,
        to_server,
        to_client,
        at_reply: Mutex::default(),
    });
    let to_server = async {
        // A server that takes nothing any more may still have said why.
        let _ = write(server, for_server).await;
        std::future::pending::<()>().await;
    };
    // Whichever ends first ends the connection.
    tokio::select! {
        () = to_server => {}
        _ = write(client, for_client) => {}
        _ = requests(from_client, &connection) => {}
        () = replies(from_server, &connection) => {}
    }
}

/// Writes frames until an empty one.
async fn write(mut to: OwnedWriteHalf, mut frames: UnboundedReceiver<Bytes>) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        if frame.is_empty() {
            break;
        }
        to.write_all(&frame).await?;
    }
    Ok(())
}

/// Sends, unless the connection has ended.
fn send(to: &UnboundedSender<Bytes>, bytes: impl Into<Bytes>) {
    let _ = to.send(bytes.into());
}

async fn requests(from: OwnedReadHalf, connection: &Arc<Connection>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut user = None;
    // By the part of an inbox before its last token, which is a reply's own.
    let mut subscriptions: HashMap<String, String> = HashMap::new();
    while let Some(frame) = Frame::read(&mut from).await? {
        match frame.verb() {
            "CONNECT" => user = name_of(&frame),
            "SUB" => {
                let inbox = frame.word(1).trim_end_matches('*').to_owned();
                let id = frame.words.last().cloned().unwrap_or_default();
                subscriptions.insert(inbox, id);
            }
            "HPUB" => {
                let reply_to = frame.word(2).to_owned();
                match connection.script.message(&frame, user.as_deref()) {
                    Play::Pass => {}
                    Play::Close => return Ok(()),
                    Play::Swallow => continue,
                    Play::AtReply(fault) => {
                        let mut at_reply = connection
                            .at_reply
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner);
                        at_reply.insert(reply_to, fault);
                    }
                    Play::Answer(payload) => {
                        let inbox = reply_to.rsplit_once('.').map_or("", |(inbox, _)| inbox);
                        let id = subscriptions.get(&format!("{inbox}."));
                        let id = id.cloned().unwrap_or_default();
                        send(&connection.to_client, message(&reply_to, &id, &payload));
                        continue;
                    }
                    Play::HoldRequest(fault) => {
                        let to_server = connection.to_server.clone();
                        tokio::spawn(async move {
                            if let Fault::HoldRequest(gate) = &*fault {
                                gate.pass().await;
                            }
                            send(&to_server, frame.bytes);
                        });
                        continue;
                    }
                }
            }
            _ => {}
        }
        send(&connection.to_server, frame.bytes);
    }
    Ok(())
}

/// Ends at a reply that has to be lost. Whatever else ends it, what came before is told
/// first, and then the connection ends.
async fn replies(from: OwnedReadHalf, connection: &Connection) {
    let mut from = BufReader::new(from);
    while let Ok(Some(frame)) = Frame::read(&mut from).await {
        let fault = match frame.verb() {
            "MSG" | "HMSG" => connection
                .at_reply
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(frame.word(1)),
            _ => None,
        };
        let Some(fault) = fault else {
            send(&connection.to_client, frame.bytes);
            continue;
        };
        match &*fault {
            Fault::LoseReply => return,
            Fault::Garbage(garbage) => {
                let payload = garbled(*garbage, &frame.payload());
                let reply = message(frame.word(1), frame.word(2), payload);
                send(&connection.to_client, reply);
            }
            _ => {
                let to_client = connection.to_client.clone();
                tokio::spawn(async move {
                    if let Fault::HoldReply(gate) = &*fault {
                        gate.pass().await;
                    }
                    send(&to_client, frame.bytes);
                });
            }
        }
    }
    send(&connection.to_client, Bytes::new());
    std::future::pending::<()>().await;
}

fn message(subject: &str, id: &str, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut frame = format!("MSG {subject} {id} {}\r\n", payload.len()).into_bytes();
    frame.extend_from_slice(payload);
    frame.extend_from_slice(b"\r\n");
    frame
}

/// The user of a `CONNECT`.
fn name_of(frame: &Frame) -> Option<String> {
    let text = String::from_utf8_lossy(&frame.bytes).into_owned();
    let (_, options) = text.split_once(' ')?;
    let options: Value = serde_json::from_str(options.trim()).ok()?;
    options["user"].as_str().map(str::to_owned)
}
