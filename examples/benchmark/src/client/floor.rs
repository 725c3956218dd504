//! The least that a client can do: the same messages, the same digests and the same
//! signature, over sockets written by hand. No batcher, no pool, no library of HTTP, and
//! no answer to anything but the expected.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use dispatch_api::{Envelope, push_json_string};
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use memchr::memmem;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{IN_FLIGHT, Job, KEY_ID, REGION, SECRET, workers};
use crate::Failure;
use crate::workload::{context, message, per_request};

const TARGET: &str = "AmazonSQS.SendMessageBatch";
const SIGNED: &str = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode";

pub(super) async fn run(job: Job) -> Result<(), Failure> {
    let per_request = per_request(job.size);
    workers(IN_FLIGHT, || {
        let job = job.clone();
        async move {
            let mut connection = Connection::open(&job).await?;
            loop {
                let hooks = job.workload.take_some(per_request);
                if hooks.is_empty() {
                    return Ok(());
                }
                connection.write_body(hooks)?;
                connection.sign()?;
                connection.exchange().await?;
                connection.check()?;
                job.meter.answered(hooks.len());
            }
        }
    })
    .await
}

/// One connection with its buffers, which live as long as it does.
struct Connection {
    stream: TcpStream,
    host: String,
    queue_url: String,
    signer: Signer,
    body: String,
    head: String,
    request: Vec<u8>,
    reply: Vec<u8>,
    reply_body: usize,
    digests: Vec<Digests>,
}

/// What the answer has to show for one message.
struct Digests {
    body: [u8; 32],
    attributes: [u8; 32],
}

impl Connection {
    async fn open(job: &Job) -> Result<Self, Failure> {
        let stream = TcpStream::connect(job.addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            host: job.addr.to_string(),
            queue_url: job.queue_url(),
            signer: Signer::default(),
            body: String::new(),
            head: String::new(),
            request: Vec::new(),
            reply: Vec::new(),
            reply_body: 0,
            digests: Vec::new(),
        })
    }

    fn write_body(&mut self, hooks: &[Envelope]) -> Result<(), Failure> {
        let ctx = context();
        let out = &mut self.body;
        out.clear();
        self.digests.clear();
        out.push_str("{\"QueueUrl\":");
        push_json_string(out, &self.queue_url);
        out.push_str(",\"Entries\":[");
        for (index, hook) in hooks.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write!(out, "{{\"Id\":\"{index}\",\"MessageBody\":")?;
            let message = message(hook, &ctx)?;
            let text = message.encode();
            push_json_string(out, &text);
            out.push_str(",\"MessageAttributes\":{");
            let mut attributes = message.attributes();
            for (index, (name, value)) in attributes.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_json_string(out, name);
                out.push_str(":{\"DataType\":\"String\",\"StringValue\":");
                push_json_string(out, value);
                out.push('}');
            }
            out.push_str("}}");
            attributes.sort_unstable_by_key(|(name, _)| *name);
            let mut digest = Md5::new();
            for (name, value) in &attributes {
                update_with_length(&mut digest, name);
                update_with_length(&mut digest, "String");
                digest.update([1]);
                update_with_length(&mut digest, value);
            }
            self.digests.push(Digests {
                body: hex(Md5::digest(text.as_bytes()).into()),
                attributes: hex(digest.finalize().into()),
            });
        }
        out.push_str("]}");
        Ok(())
    }

    fn sign(&mut self) -> Result<(), Failure> {
        let time = Timestamp::now();
        let hash = hex::encode(Sha256::digest(self.body.as_bytes()));
        let canonical = format!(
            "POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{}\nx-amz-date:{time}\n\
             x-amz-target:{TARGET}\nx-amzn-query-mode:true\n\n{SIGNED}\n{hash}",
            self.host
        );
        let scope = format!("{}/{REGION}/sqs/aws4_request", time.date);
        let text = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hex::encode(Sha256::digest(canonical.as_bytes()))
        );
        let signature = hex::encode(hmac(self.signer.key(&time.date)?, text.as_bytes())?);
        self.head.clear();
        write!(
            self.head,
            "POST / HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-amz-json-1.0\r\n\
             x-amz-target: {TARGET}\r\nx-amzn-query-mode: true\r\nx-amz-date: {time}\r\n\
             authorization: AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, \
             SignedHeaders={SIGNED}, Signature={signature}\r\ncontent-length: {}\r\n\r\n",
            self.host,
            self.body.len()
        )?;
        Ok(())
    }

    async fn exchange(&mut self) -> Result<(), Failure> {
        self.request.clear();
        self.request.extend_from_slice(self.head.as_bytes());
        self.request.extend_from_slice(self.body.as_bytes());
        self.stream.write_all(&self.request).await?;
        self.reply.clear();
        loop {
            if self.stream.read_buf(&mut self.reply).await? == 0 {
                return Err("the connection ended within the answer".into());
            }
            if let Some(end) = memmem::find(&self.reply, b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.reply[..end])?;
                if !head.starts_with("HTTP/1.1 200 ") {
                    return Err("the request is refused".into());
                }
                let length: usize = head
                    .split("\r\n")
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .ok_or("an answer without a length")?
                    .parse()?;
                if self.reply.len() == end + 4 + length {
                    self.reply_body = end + 4;
                    return Ok(());
                }
            }
        }
    }

    /// Finds the digests in the order in which the messages were sent.
    fn check(&self) -> Result<(), Failure> {
        let mut rest = &self.reply[self.reply_body..];
        for digests in &self.digests {
            for digest in [&digests.body, &digests.attributes] {
                let at = memmem::find(rest, digest).ok_or("a digest differs")?;
                rest = &rest[at + digest.len()..];
            }
        }
        Ok(())
    }
}

fn update_with_length(digest: &mut Md5, text: &str) {
    digest.update(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    digest.update(text);
}

fn hex(bytes: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 32];
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    out
}

/// The key of the day.
#[derive(Default)]
struct Signer {
    date: String,
    key: Vec<u8>,
}

impl Signer {
    fn key(&mut self, date: &str) -> Result<&[u8], Failure> {
        if self.date != date {
            let mut key = format!("AWS4{SECRET}").into_bytes();
            for part in [date, REGION, "sqs", "aws4_request"] {
                key = hmac(&key, part.as_bytes())?.to_vec();
            }
            date.clone_into(&mut self.date);
            self.key = key;
        }
        Ok(&self.key)
    }
}

fn hmac(key: &[u8], text: &[u8]) -> Result<[u8; 32], Failure> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(text);
    Ok(mac.finalize().into_bytes().into())
}

/// A moment as a signature writes it.
struct Timestamp {
    date: String,
    seconds: u64,
}

impl Timestamp {
    fn now() -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let (mut days, mut year) = (unix / 86_400, 1970);
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        while days >= 365 + u64::from(is_leap(year)) {
            days -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let february = 28 + u64::from(is_leap(year));
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        Self {
            date: format!("{year:04}{month:02}{:02}", days + 1),
            seconds: unix % 86_400,
        }
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.seconds;
        write!(
            f,
            "{}T{:02}{:02}{:02}Z",
            self.date,
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}
