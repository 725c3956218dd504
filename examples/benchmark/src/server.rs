//! A server that answers as cheaply as it can. Of sends it takes the digests that the answer
//! has to show, and forgets the messages; receives get messages that lie ready, always the
//! same, and deletes take nothing away.
//!
//! It checks neither signatures nor limits. That is the testkit's server's part.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use md5::{Digest as _, Md5};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::Failure;
use crate::stored::{AttributesDigest, Stored};
use crate::tls::acceptor;

/// Serves on a free port, whose address is the first line printed, until the standard
/// input ends: the parent is gone then.
pub(crate) async fn serve(tls: Option<&Path>) -> Result<(), Failure> {
    let acceptor = tls.map(acceptor).transpose()?;
    let stored = Rc::new(Stored::new()?);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let mut output = std::io::stdout();
    writeln!(output, "{}", listener.local_addr()?)?;
    output.flush()?;
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    tokio::task::LocalSet::new()
        .run_until(async {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let (acceptor, stored) = (acceptor.clone(), Rc::clone(&stored));
                tokio::task::spawn_local(async move {
                    match acceptor {
                        None => connection(stream, &stored).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection(stream, &stored).await,
                            Err(error) => eprintln!("server: no TLS: {error}"),
                        },
                    }
                });
            }
        })
        .await
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, stored: &Stored) {
    let served = http1::Builder::new()
        .serve_connection(
            TokioIo::new(stream),
            service_fn(|request| answer(stored, request)),
        )
        .await;
    // A client that goes away is no fault.
    drop(served);
}

async fn answer(
    stored: &Stored,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let target = head.headers.get("x-amz-target");
    let operation = target
        .and_then(|target| target.to_str().ok()?.strip_prefix("AmazonSQS."))
        .unwrap_or_default();
    let reply = match body.collect().await {
        Ok(body) => reply(stored, operation, &body.to_bytes()),
        Err(_) => None,
    };
    let (status, reply) = match reply {
        Some(reply) => (StatusCode::OK, reply),
        None => (
            StatusCode::BAD_REQUEST,
            Bytes::from_static(b"{\"__type\":\"com.amazonaws.sqs#InvalidParameterValue\"}"),
        ),
    };
    let mut response = Response::new(Full::new(reply));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-amz-json-1.0"),
    );
    headers.insert(
        "x-amzn-requestid",
        HeaderValue::from_static("5ad1f5a3-3d2c-5b1e-9d10-6f2a7c55e901"),
    );
    Ok(response)
}

#[derive(Deserialize)]
struct BatchRequest<'a> {
    #[serde(rename = "Entries", borrow)]
    entries: Vec<BatchEntry<'a>>,
}

#[derive(Deserialize)]
struct BatchEntry<'a> {
    #[serde(rename = "Id", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "MessageBody", borrow)]
    body: Cow<'a, str>,
    #[serde(rename = "MessageAttributes", borrow, default)]
    attributes: Attributes<'a>,
}

#[derive(Deserialize)]
struct SingleRequest<'a> {
    #[serde(rename = "MessageBody", borrow)]
    body: Cow<'a, str>,
    #[serde(rename = "MessageAttributes", borrow, default)]
    attributes: Attributes<'a>,
}

#[derive(Deserialize)]
struct ChangeRequest<'a> {
    #[serde(rename = "Entries", borrow)]
    entries: Vec<ChangeEntry<'a>>,
}

#[derive(Deserialize)]
struct ChangeEntry<'a> {
    #[serde(rename = "Id", borrow)]
    id: Cow<'a, str>,
}

/// By name, which is the order of their digest. Names never need an escape.
type Attributes<'a> = BTreeMap<&'a str, Attribute<'a>>;

#[derive(Deserialize)]
struct Attribute<'a> {
    #[serde(rename = "DataType", borrow)]
    data_type: Cow<'a, str>,
    #[serde(rename = "StringValue", borrow)]
    value: Cow<'a, str>,
}

fn reply(stored: &Stored, operation: &str, body: &[u8]) -> Option<Bytes> {
    match operation {
        "SendMessage" => sent(body),
        "SendMessageBatch" => batch_sent(body),
        "ReceiveMessage" => stored.answer(body),
        "DeleteMessage" | "ChangeMessageVisibility" => Some(Bytes::from_static(b"{}")),
        "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => batch_changed(body),
        "GetQueueAttributes" => Some(Bytes::from_static(
            b"{\"Attributes\":{\"QueueArn\":\"arn:aws:sqs:us-east-1:000000000000:hooks\",\
              \"VisibilityTimeout\":\"30\"}}",
        )),
        _ => None,
    }
}

fn sent(body: &[u8]) -> Option<Bytes> {
    let request: SingleRequest<'_> = serde_json::from_slice(body).ok()?;
    let mut out = String::with_capacity(256);
    out.push('{');
    push_stored(&mut out, &request.body, &request.attributes);
    out.push('}');
    Some(out.into())
}

fn batch_sent(body: &[u8]) -> Option<Bytes> {
    let request: BatchRequest<'_> = serde_json::from_slice(body).ok()?;
    let mut out = String::with_capacity(2_048);
    out.push_str("{\"Successful\":[");
    for (index, entry) in request.entries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"Id\":\"{}\",", entry.id);
        push_stored(&mut out, &entry.body, &entry.attributes);
        out.push('}');
    }
    out.push_str("]}");
    Some(out.into())
}

/// Whatever is changed about messages, it is done.
fn batch_changed(body: &[u8]) -> Option<Bytes> {
    let request: ChangeRequest<'_> = serde_json::from_slice(body).ok()?;
    let mut out = String::with_capacity(256);
    out.push_str("{\"Successful\":[");
    for (index, entry) in request.entries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"Id\":\"{}\"}}", entry.id);
    }
    out.push_str("]}");
    Some(out.into())
}

fn push_stored(out: &mut String, body: &str, attributes: &Attributes<'_>) {
    thread_local! {
        static STORED: Cell<u64> = const { Cell::new(0) };
    }
    let number = STORED.replace(STORED.get() + 1);
    let _ = write!(
        out,
        "\"MessageId\":\"b81f4f5c-0000-4000-8000-{number:012x}\",\"MD5OfMessageBody\":\"{}\"",
        hex::encode(Md5::digest(body))
    );
    if attributes.is_empty() {
        return;
    }
    let mut digest = AttributesDigest::default();
    for (name, attribute) in attributes {
        digest.update(name, &attribute.data_type, &attribute.value);
    }
    let _ = write!(out, ",\"MD5OfMessageAttributes\":\"{}\"", digest.finish());
}
