//! A proxy before a server, which knows messages from their replies.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use sink_testkit::conformance::Gate;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::wire::Frame;

/// Sees what comes by, and says what becomes of it.
pub(crate) trait Watch: Send + Sync + 'static {
    /// A message on its way to the server, of this user.
    fn published(&self, frame: &Frame, user: Option<&str>) -> Play;

    /// A message on its way to the client.
    fn delivered(&self, _frame: &Frame) {}
}

/// What the proxy does with one message.
pub(crate) enum Play {
    /// Hands it on.
    Pass,
    /// Holds it, and then hands it on; others overtake it.
    HoldRequest(Arc<Gate>),
    /// Holds it, and whatever the connection sends after it, as a slow line does.
    HoldLine(Arc<Gate>),
    /// Hands it on, and does this with its reply.
    AtReply(AtReply),
    /// Ends the connection.
    Close,
    /// Neither hands it on nor answers.
    Swallow,
    /// Answers in the server's place.
    Answer(Reply),
}

/// Makes the payload that stands in the place of a reply's.
pub(crate) type Replacement = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// What the proxy does with a reply.
pub(crate) enum AtReply {
    /// Holds it and those after it to the same message, and then hands them on in order.
    Hold(Arc<Gate>),
    /// Ends the connection in its place.
    Lose,
    /// Puts another payload in its place.
    Replace(Replacement),
}

/// A reply of the proxy's own.
pub(crate) enum Reply {
    /// A payload.
    Payload(Vec<u8>),
    /// A status and its words, without a payload.
    Status(u16, String),
}

type Connections = Arc<Mutex<Vec<JoinHandle<()>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that leads to the server, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    connections: Connections,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(
        runtime: &Handle,
        server: String,
        watch: Arc<dyn Watch>,
    ) -> io::Result<Self> {
        let listening = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = listening.await.map_err(io::Error::other)??;
        let port = listener.local_addr()?.port();
        let connections = Connections::default();
        let opened = Arc::clone(&connections);
        let accepting = runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let serving = serve(client, server.clone(), Arc::clone(&watch));
                lock(&opened).push(tokio::spawn(serving));
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

/// What one connection's two directions share.
struct Connection {
    watch: Arc<dyn Watch>,
    to_server: UnboundedSender<Bytes>,
    to_client: UnboundedSender<Bytes>,
    /// What to do with replies, by [`Subscriptions::key`].
    at_reply: Mutex<HashMap<String, Due>>,
}

enum Due {
    Play(AtReply),
    /// Replies before this one are held.
    Queue(UnboundedSender<Bytes>),
}

impl Connection {
    fn at_reply(&self) -> MutexGuard<'_, HashMap<String, Due>> {
        lock(&self.at_reply)
    }

    /// What is due at a reply, with its key.
    fn due(&self, reply: &Frame) -> Option<(String, Due)> {
        let mut at_reply = self.at_reply();
        let by_id = at_reply.remove_entry(reply.word(2));
        by_id.or_else(|| at_reply.remove_entry(reply.word(1)))
    }
}

async fn serve(client: TcpStream, server: String, watch: Arc<dyn Watch>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, client) = client.into_split();
    let (from_server, server) = server.into_split();
    let (to_server, for_server) = unbounded_channel();
    let (to_client, for_client) = unbounded_channel();
    let connection = Arc::new(Connection {
        watch,
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

/// The subscriptions of a connection: what they listen to, and the id of each.
#[derive(Default)]
struct Subscriptions(HashMap<String, String>);

impl Subscriptions {
    fn add(&mut self, frame: &Frame) {
        // An inbox of many replies is listened to by all but its last token, which is a
        // reply's own.
        let inbox = frame.word(1).trim_end_matches('*').to_owned();
        let id = frame.words.last().cloned().unwrap_or_default();
        self.0.insert(inbox, id);
    }

    /// The id of the one that a reply to this subject goes to, and whether nothing else goes
    /// there.
    fn of(&self, subject: &str) -> (&str, bool) {
        if let Some(id) = self.0.get(subject) {
            return (id, true);
        }
        let (inbox, _) = subject.rsplit_once('.').unwrap_or_default();
        let shared = self.0.get(&format!("{inbox}."));
        (shared.map_or("", |id| &**id), false)
    }

    /// By what the replies to this subject are known. What a consumer delivers has the
    /// subject that it was published to, so that only the subscription tells.
    fn key(&self, subject: &str) -> String {
        match self.of(subject) {
            (id, true) => id.to_owned(),
            (_, false) => subject.to_owned(),
        }
    }
}

async fn requests(from: OwnedReadHalf, connection: &Arc<Connection>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut user = None;
    let mut subscriptions = Subscriptions::default();
    while let Some(frame) = Frame::read(&mut from).await? {
        match frame.verb() {
            "CONNECT" => user = name_of(&frame),
            "SUB" => subscriptions.add(&frame),
            "PUB" | "HPUB" => {
                // Without one the second word of a message is a size.
                let reply_to = frame.word(2).to_owned();
                match connection.watch.published(&frame, user.as_deref()) {
                    Play::Pass => {}
                    Play::Close => return Ok(()),
                    Play::Swallow => continue,
                    Play::HoldLine(gate) => gate.pass().await,
                    Play::AtReply(play) => {
                        let key = subscriptions.key(&reply_to);
                        connection.at_reply().insert(key, Due::Play(play));
                    }
                    Play::Answer(reply) => {
                        let answer = reply.to_frame(&reply_to, subscriptions.of(&reply_to).0);
                        send(&connection.to_client, answer);
                        continue;
                    }
                    Play::HoldRequest(gate) => {
                        let to_server = connection.to_server.clone();
                        tokio::spawn(async move {
                            gate.pass().await;
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
        let due = match frame.verb() {
            "MSG" | "HMSG" => {
                connection.watch.delivered(&frame);
                connection.due(&frame)
            }
            _ => None,
        };
        match due {
            None => send(&connection.to_client, frame.bytes),
            Some((_, Due::Play(AtReply::Lose))) => return,
            Some((_, Due::Play(AtReply::Replace(replaced)))) => {
                let reply = Reply::Payload(replaced(&frame.payload()));
                let reply = reply.to_frame(frame.word(1), frame.word(2));
                send(&connection.to_client, reply);
            }
            Some((key, Due::Play(AtReply::Hold(gate)))) => {
                let (queue, mut queued) = unbounded_channel();
                send(&queue, frame.bytes);
                connection.at_reply().insert(key, Due::Queue(queue));
                let to_client = connection.to_client.clone();
                tokio::spawn(async move {
                    gate.pass().await;
                    while let Some(bytes) = queued.recv().await {
                        send(&to_client, bytes);
                    }
                });
            }
            Some((key, Due::Queue(queue))) => {
                send(&queue, frame.bytes);
                connection.at_reply().insert(key, Due::Queue(queue));
            }
        }
    }
    send(&connection.to_client, Bytes::new());
    std::future::pending::<()>().await;
}

impl Reply {
    fn to_frame(&self, subject: &str, id: &str) -> Vec<u8> {
        match self {
            Self::Payload(payload) => {
                let line = format!("MSG {subject} {id} {}\r\n", payload.len());
                [line.as_bytes(), payload, b"\r\n"].concat()
            }
            Self::Status(status, words) => {
                let status = format!("NATS/1.0 {status} {words}");
                let headers = format!("{}\r\n\r\n", status.trim_end());
                let length = headers.len();
                format!("HMSG {subject} {id} {length} {length}\r\n{headers}\r\n").into_bytes()
            }
        }
    }
}

/// The user of a `CONNECT`.
fn name_of(frame: &Frame) -> Option<String> {
    let text = String::from_utf8_lossy(&frame.bytes).into_owned();
    let (_, options) = text.split_once(' ')?;
    let options: Value = serde_json::from_str(options.trim()).ok()?;
    options["user"].as_str().map(str::to_owned)
}
