//! A server that speaks just enough of the protocol, and answers messages as told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the server does with one message.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// Answers with this payload.
    Reply(String),
    /// Says nothing.
    Silence,
    /// Closes the connection.
    Close,
    /// Reports an error beside the protocol.
    Error(String),
}

/// What a stream answers.
pub(crate) fn ack(sequence: u64) -> Then {
    Then::Reply(format!(r#"{{"stream":"HOOKS","seq":{sequence}}}"#))
}

/// How a stream refuses.
pub(crate) fn refusal(code: u16, err_code: u32, description: &str) -> Then {
    let error = serde_json::json!({
        "error": {"code": code, "err_code": err_code, "description": description},
        "stream": "HOOKS", "seq": 0,
    });
    Then::Reply(error.to_string())
}

/// One message as it came.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) connection: usize,
    pub(crate) subject: String,
    pub(crate) headers: String,
}

#[derive(Default)]
struct Shared {
    script: Mutex<VecDeque<Then>>,
    published: Mutex<Vec<Published>>,
    connects: Mutex<Vec<Value>>,
    stalled: watch::Sender<bool>,
    /// Ends what runs on the connections so far.
    closed: watch::Sender<u64>,
    changed: watch::Sender<u64>,
    accepted: watch::Sender<usize>,
}

/// A server on a loopback port. Messages beyond its script are acknowledged.
pub(crate) struct FakeServer {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// The challenge that the server greets with.
pub(crate) const NONCE: &str = "challenge";

impl FakeServer {
    pub(crate) async fn start(script: impl IntoIterator<Item = Then>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into_iter().collect()),
            ..Shared::default()
        });
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let of_all = Arc::clone(&shared);
                let mut number = 0;
                while let Ok((socket, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move {
                        let mut closed = shared.closed.subscribe();
                        tokio::select! {
                            biased;
                            _ = closed.changed() => {}
                            _ = serve(socket, number, &shared) => {}
                        }
                    });
                    number += 1;
                    of_all.accepted.send_replace(number);
                }
            }
        });
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Every message that came, in order.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.shared.published.lock().unwrap().clone()
    }

    /// What clients said of themselves, in order.
    pub(crate) fn connects(&self) -> Vec<Value> {
        self.shared.connects.lock().unwrap().clone()
    }

    /// Reads no further, or goes on reading.
    pub(crate) fn stall(&self, stalled: bool) {
        self.shared.stalled.send_replace(stalled);
    }

    /// Closes every connection there is.
    pub(crate) fn close_all(&self) {
        self.shared.closed.send_modify(|count| *count += 1);
    }

    /// Waits until this many connections were made, those without a greeting included.
    pub(crate) async fn accepted_are(&self, count: usize) {
        let mut accepted = self.shared.accepted.subscribe();
        crate::support::soon(accepted.wait_for(|accepted| *accepted >= count))
            .await
            .unwrap();
    }

    /// Waits until this many messages have come.
    pub(crate) async fn published_are(&self, count: usize) {
        let mut changed = self.shared.changed.subscribe();
        crate::support::soon(async {
            while self.shared.published.lock().unwrap().len() < count {
                changed.changed().await.unwrap();
            }
        })
        .await;
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.close_all();
    }
}

async fn serve(socket: TcpStream, number: usize, shared: &Shared) -> std::io::Result<()> {
    let (reader, mut writer) = socket.into_split();
    let mut reader = BufReader::new(reader);
    let info = serde_json::json!({
        "server_id": "FAKE", "version": "2.9.10", "proto": 1, "headers": true,
        "max_payload": 1_048_576, "nonce": NONCE,
    });
    writer
        .write_all(format!("INFO {info}\r\n").as_bytes())
        .await?;
    let mut inbox = String::new();
    let mut stalled = shared.stalled.subscribe();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let _ = stalled.wait_for(|stalled| !stalled).await;
        let words: Vec<_> = line.split_whitespace().collect();
        match words.first().copied() {
            Some("CONNECT") => {
                let said = serde_json::from_str(line.trim_start_matches("CONNECT ")).unwrap();
                shared.connects.lock().unwrap().push(said);
            }
            Some("PING") => writer.write_all(b"PONG\r\n").await?,
            Some("SUB") => inbox = words.last().unwrap().to_string(),
            Some("HPUB") => {
                let then = message(&words, number, &mut reader, shared).await?;
                match then {
                    Then::Reply(payload) => reply(&mut writer, words[2], &inbox, &payload).await?,
                    Then::Silence => {}
                    Then::Close => return Ok(()),
                    Then::Error(text) => {
                        writer
                            .write_all(format!("-ERR '{text}'\r\n").as_bytes())
                            .await?;
                    }
                }
            }
            _ => {}
        }
    }
}

async fn message(
    words: &[&str],
    number: usize,
    reader: &mut BufReader<OwnedReadHalf>,
    shared: &Shared,
) -> std::io::Result<Then> {
    let [headers, total] = [words[3], words[4]].map(|word| word.parse::<usize>().unwrap());
    let mut content = vec![0; total + 2];
    reader.read_exact(&mut content).await?;
    let count = {
        let mut published = shared.published.lock().unwrap();
        published.push(Published {
            connection: number,
            subject: words[1].to_owned(),
            headers: String::from_utf8(content[..headers].to_vec()).unwrap(),
        });
        published.len() as u64
    };
    shared.changed.send_replace(count);
    let next = shared.script.lock().unwrap().pop_front();
    Ok(next.unwrap_or_else(|| ack(count)))
}

async fn reply(
    writer: &mut OwnedWriteHalf,
    to: &str,
    inbox: &str,
    payload: &str,
) -> std::io::Result<()> {
    let message = format!("MSG {to} {inbox} {}\r\n{payload}\r\n", payload.len());
    writer.write_all(message.as_bytes()).await
}
