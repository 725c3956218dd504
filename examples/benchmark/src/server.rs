//! A server that answers sends as cheaply as it can: it reads a request, takes the digests
//! that the answer has to show, and forgets the messages.
//!
//! It checks neither signatures nor limits. That is the testkit's server's part.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

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
use crate::tls::acceptor;

/// Serves on a free port, whose address is the first line printed, until the standard
/// input ends: the parent is gone then.
pub(crate) async fn serve(tls: Option<&Path>) -> Result<(), Failure> {
    let acceptor = tls.map(acceptor).transpose()?;
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
                let acceptor = acceptor.clone();
                tokio::task::spawn_local(async move {
                    match acceptor {
                        None => connection(stream).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection(stream).await,
                            Err(error) => eprintln!("server: no TLS: {error}"),
                        },
                    }
                });
            }
        })
        .await
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let served = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
    // A client that goes away is no fault.
    drop(served);
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_batch = request
        .headers()
        .get("x-amz-target")
        .is_some_and(|target| target == "AmazonSQS.SendMessageBatch");
    let reply = match request.into_body().collect().await {
        Ok(body) => reply(&body.to_bytes(), is_batch),
        Err(_) => None,
    };
    let (status, reply) = match reply {
        Some(reply) => (StatusCode::OK, reply),
        None => (
            StatusCode::BAD_REQUEST,
            "{\"__type\":\"com.amazonaws.sqs#InvalidParameterValue\"}".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(reply)));
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

/// By name, which is the order of their digest. Names never need an escape.
type Attributes<'a> = BTreeMap<&'a str, Attribute<'a>>;

#[derive(Deserialize)]
struct Attribute<'a> {
    #[serde(rename = "DataType", borrow)]
    data_type: Cow<'a, str>,
    #[serde(rename = "StringValue", borrow)]
    value: Cow<'a, str>,
}

fn reply(body: &[u8], is_batch: bool) -> Option<String> {
    let mut out = String::with_capacity(2_048);
    if is_batch {
        let request: BatchRequest<'_> = serde_json::from_slice(body).ok()?;
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
    } else {
        let request: SingleRequest<'_> = serde_json::from_slice(body).ok()?;
        out.push('{');
        push_stored(&mut out, &request.body, &request.attributes);
        out.push('}');
    }
    Some(out)
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
    let mut digest = Md5::new();
    for (name, attribute) in attributes {
        update_with_length(&mut digest, name);
        update_with_length(&mut digest, &attribute.data_type);
        digest.update([1]);
        update_with_length(&mut digest, &attribute.value);
    }
    let _ = write!(
        out,
        ",\"MD5OfMessageAttributes\":\"{}\"",
        hex::encode(digest.finalize())
    );
}

fn update_with_length(digest: &mut Md5, text: &str) {
    digest.update(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    digest.update(text);
}
