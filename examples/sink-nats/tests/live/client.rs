//! Streams, made and read with plain requests that share no code with the sink.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sink_testkit::conformance::FixtureError;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::wire::{Frame, headers};

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
        self.answered(api, frame.as_bytes()).await
    }

    /// Sends a frame and reads what comes to the inbox.
    async fn answered(&mut self, what: &str, frame: &[u8]) -> Result<Value, FixtureError> {
        self.socket.get_mut().write_all(frame).await?;
        loop {
            let Some(frame) = Frame::read(&mut self.socket).await? else {
                return Err(FixtureError::new(format!("{what}: the connection ended")));
            };
            match frame.verb() {
                "MSG" => return Ok(serde_json::from_slice(&frame.payload())?),
                "PING" => self.socket.get_mut().write_all(b"PONG\r\n").await?,
                "-ERR" => {
                    let text = String::from_utf8_lossy(&frame.bytes).into_owned();
                    return Err(FixtureError::new(format!("{what}: {text}")));
                }
                _ => {}
            }
        }
    }

    /// Publishes a message to a stream, which has to store it.
    pub(crate) async fn publish(
        &mut self,
        subject: &str,
        attributes: &[(String, String)],
        body: &[u8],
    ) -> Result<(), FixtureError> {
        let mut head = String::new();
        if !attributes.is_empty() {
            head.push_str("NATS/1.0\r\n");
            for (name, value) in attributes {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
        }
        let bytes = head.len() + body.len();
        let line = match head.len() {
            0 => format!("PUB {subject} {INBOX} {bytes}\r\n"),
            head => format!("HPUB {subject} {INBOX} {head} {bytes}\r\n"),
        };
        let frame = [line.as_bytes(), head.as_bytes(), body, b"\r\n"].concat();
        let answer = self.answered("publish", &frame).await?;
        match answer["seq"].as_u64() {
            Some(_) => Ok(()),
            None => Err(FixtureError::new(format!("publish: {answer}"))),
        }
    }

    /// How the server describes a consumer; `None` where there is none.
    pub(crate) async fn consumer(
        &mut self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<Value>, FixtureError> {
        const NO_CONSUMER: u64 = 10014;
        let api = format!("CONSUMER.INFO.{stream}.{durable}");
        let info = self.call(&api, &json!({})).await?;
        match info["error"]["err_code"].as_u64() {
            None => Ok(Some(info)),
            Some(NO_CONSUMER) => Ok(None),
            Some(_) => Err(FixtureError::new(format!("{api}: {}", info["error"]))),
        }
    }

    /// Changes the configuration of a durable consumer.
    pub(crate) async fn change_consumer(
        &mut self,
        stream: &str,
        durable: &str,
        config: &Value,
    ) -> Result<(), FixtureError> {
        let api = format!("CONSUMER.DURABLE.CREATE.{stream}.{durable}");
        let request = json!({ "stream_name": stream, "config": config });
        let changed = self.call(&api, &request).await?;
        match changed.get("error") {
            None => Ok(()),
            Some(error) => Err(FixtureError::new(format!("{api}: {error}"))),
        }
    }

    /// How many messages are in a stream.
    pub(crate) async fn count(&mut self, stream: &str) -> Result<usize, FixtureError> {
        let api = format!("STREAM.INFO.{stream}");
        let info = self.call(&api, &json!({})).await?;
        let count = info["state"]["messages"].as_u64();
        let count = count.ok_or_else(|| FixtureError::new(format!("{api}: {}", info["error"])))?;
        Ok(usize::try_from(count)?)
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
