//! Streams, made and read with plain requests that share no code with the sink.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sink_testkit::conformance::FixtureError;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::wire::{Frame, headers};

const INBOX: &str = "reader.inbox";

/// One connection of the user `reader`.
pub(crate) struct Client {
    socket: BufReader<TcpStream>,
}

/// A message of a stream.
pub(crate) struct Raw {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    pub(crate) headers: Vec<(String, Bytes)>,
    pub(crate) payload: Bytes,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Result<Self, FixtureError> {
        let mut socket = BufReader::new(TcpStream::connect(address).await?);
        Frame::read(&mut socket).await?;
        let connect = json!({
            "verbose": false, "pedantic": false, "user": "reader", "pass": "reader",
            "lang": "rust", "version": "0", "headers": true, "protocol": 1,
        });
        let lines = format!("CONNECT {connect}\r\nSUB {INBOX} 1\r\n");
        socket.get_mut().write_all(lines.as_bytes()).await?;
        Ok(Self { socket })
    }

    /// Asks the JetStream API.
    async fn call(&mut self, api: &str, request: &Value) -> Result<Value, FixtureError> {
        let request = request.to_string();
        let frame = format!(
            "PUB $JS.API.{api} {INBOX} {}\r\n{request}\r\n",
            request.len()
        );
        self.socket.get_mut().write_all(frame.as_bytes()).await?;
        loop {
            let Some(frame) = Frame::read(&mut self.socket).await? else {
                return Err(FixtureError::new(format!("{api}: the connection ended")));
            };
            match frame.verb() {
                "MSG" => return Ok(serde_json::from_slice(&frame.payload())?),
                "PING" => self.socket.get_mut().write_all(b"PONG\r\n").await?,
                "-ERR" => {
                    let text = String::from_utf8_lossy(&frame.bytes).into_owned();
                    return Err(FixtureError::new(format!("{api}: {text}")));
                }
                _ => {}
            }
        }
    }

    /// Creates a stream.
    pub(crate) async fn create(&mut self, config: &Value) -> Result<(), FixtureError> {
        let name = config["name"].as_str().unwrap_or_default();
        let created = self.call(&format!("STREAM.CREATE.{name}"), config).await?;
        match created.get("error") {
            None => Ok(()),
            Some(error) => Err(FixtureError::new(format!("create {name}: {error}"))),
        }
    }

    /// The names of all streams.
    pub(crate) async fn names(&mut self) -> Result<Vec<String>, FixtureError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let request = json!({ "offset": names.len() });
            let page = self.call("STREAM.NAMES", &request).await?;
            let listed = page["streams"].as_array().cloned().unwrap_or_default();
            if listed.is_empty() {
                return Ok(names);
            }
            let listed = listed.iter().filter_map(Value::as_str);
            names.extend(listed.map(str::to_owned));
        }
    }

    /// The sequence of the last message of a stream; `None` where there is no stream.
    pub(crate) async fn last(&mut self, stream: &str) -> Result<Option<u64>, FixtureError> {
        let info = self
            .call(&format!("STREAM.INFO.{stream}"), &json!({}))
            .await?;
        Ok(info["state"]["last_seq"].as_u64())
    }

    /// One message of a stream.
    pub(crate) async fn message(
        &mut self,
        stream: &str,
        sequence: u64,
    ) -> Result<Raw, FixtureError> {
        let api = format!("STREAM.MSG.GET.{stream}");
        let answer = self.call(&api, &json!({ "seq": sequence })).await?;
        if let Some(error) = answer.get("error") {
            return Err(FixtureError::new(format!("{stream}/{sequence}: {error}")));
        }
        let message = &answer["message"];
        let bytes = |key: &str| -> Result<Bytes, FixtureError> {
            let text = message[key].as_str().unwrap_or_default();
            Ok(Bytes::from(STANDARD.decode(text)?))
        };
        Ok(Raw {
            sequence,
            subject: message["subject"].as_str().unwrap_or_default().to_owned(),
            headers: headers(&bytes("hdrs")?),
            payload: bytes("data")?,
        })
    }
}
