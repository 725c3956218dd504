//! Connections, shared by sinks with the same connection settings.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use dispatch_api::{ErrorChain, Fingerprint, HostServices, Problems};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use reqwest::{Certificate, ClientBuilder, Method, Proxy, Request, redirect, retry};
use url::Url;

use crate::config::Connection;

/// The key under which problems with certificates are reported.
const ROOTS: &str = "http.root_certificates";

/// More than any answer but that to a receive.
pub(super) const MAX_ANSWER_BYTES: usize = 1_024 * 1_024;

const USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// A pool of connections.
pub(crate) struct Transport {
    client: reqwest::Client,
    identity: String,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    /// The transport of these settings, shared with every sink of the host that has
    /// the same. Reads certificates, and needs no network.
    ///
    /// # Errors
    ///
    /// Certificates that cannot be read, and a system without any.
    pub(crate) fn shared(
        config: &Connection,
        services: &HostServices,
    ) -> Result<Arc<Self>, Problems> {
        let roots = Roots::read(config)?;
        // What certificates say counts, not the names of their files.
        let key = format!(
            "{:?} {:?} {} {}",
            config.http(),
            config.timeout(),
            needs_tls(config),
            roots.fingerprint.to_hex(),
        );
        services
            .pool()
            .get_or_try_create(&key, || Self::new(config, roots, key.clone()))
    }

    /// What tells these connections from others.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    fn new(config: &Connection, roots: Roots, identity: String) -> Result<Self, Problems> {
        let http = config.http();
        let builder = builder(config, roots, needs_tls(config), Route::Proxied)?
            .connect_timeout(config.timeout())
            .pool_idle_timeout(http.pool_idle_timeout)
            .pool_max_idle_per_host(http.pool_max_idle_per_host);
        let client = build(builder)?;
        Ok(Self { client, identity })
    }

    /// Sends one request and reads the whole answer. `sending` tells afterwards, or
    /// when the future is dropped, how far it came.
    pub(super) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
        sending: &Sending,
        max_answer_bytes: usize,
    ) -> Result<Received, TransportError> {
        headers.insert(http::header::CONTENT_LENGTH, body.len().into());
        let mut request = Request::new(Method::POST, url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(reqwest::Body::wrap(sending.observe(body)));
        let sent = self.client.execute(request).await;
        let mut response = sent.map_err(TransportError::before)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut received = Received {
            status,
            headers,
            body: Vec::new(),
        };
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(received),
                Ok(Some(chunk)) if received.body.len() + chunk.len() > max_answer_bytes => {
                    return Err(TransportError::TooLong(received));
                }
                Ok(Some(chunk)) => received.body.extend_from_slice(&chunk),
                Err(error) => return Err(TransportError::Cut(received, error.without_url())),
            }
        }
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Why there is no complete answer.
#[derive(Debug)]
pub(super) enum TransportError {
    /// No answer began.
    NoAnswer(reqwest::Error),
    /// An answer began and broke off.
    Cut(Received, reqwest::Error),
    /// An answer is longer than any of the service's.
    TooLong(Received),
}

impl TransportError {
    fn before(error: reqwest::Error) -> Self {
        Self::NoAnswer(error.without_url())
    }
}

/// How far the sending of one request came.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending {
    began: Arc<AtomicBool>,
}

impl Sending {
    /// Whether a byte of the body may have left. Before that the service cannot
    /// have stored anything.
    pub(super) fn began(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    fn observe(&self, body: Bytes) -> ObservedBody {
        ObservedBody {
            body: Some(body),
            sending: self.clone(),
        }
    }
}

/// A body that notes when it is first asked for, which is when its connection
/// stands. It can be asked once, so that no layer below can send it twice.
struct ObservedBody {
    body: Option<Bytes>,
    sending: Sending,
}

impl Body for ObservedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sending.began.store(true, Ordering::Release);
        Poll::Ready(self.body.take().map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }
}

/// Whether requests go through the configured proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Proxied,
    /// Addresses of the host or its neighbourhood, which no proxy knows.
    #[cfg(feature = "default-chain")]
    Direct,
}

/// A client for the sources of credentials, with the sink's certificates.
///
/// # Errors
///
/// As for [`Transport::shared`].
#[cfg(feature = "default-chain")]
pub(crate) fn side_client(
    config: &Connection,
    tls: bool,
    route: Route,
) -> Result<reqwest::Client, Problems> {
    const CONNECT: std::time::Duration = std::time::Duration::from_secs(1);
    let proxied = route == Route::Proxied && config.http().proxy.is_some();
    let tls = tls || (proxied && needs_tls(config));
    let builder = builder(config, Roots::read(config)?, tls, route)?;
    build(builder.connect_timeout(CONNECT))
}

/// What every client of ours has in common.
fn builder(
    config: &Connection,
    roots: Roots,
    tls: bool,
    route: Route,
) -> Result<ClientBuilder, Problems> {
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .http1_only()
        // A signed request is for one host, and one delivery is one request.
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .no_proxy()
        .tcp_nodelay(true);
    builder = if tls {
        builder.tls_certs_merge(roots.certificates)
    } else {
        // Without TLS the system's certificates are not needed, and need not exist.
        builder.tls_certs_only([])
    };
    match &config.http().proxy {
        Some(proxy) if route == Route::Proxied => {
            let proxy = Proxy::all(proxy.as_str())
                .map_err(|error| problem("http.proxy", format!("refused: {}", chain(error))))?;
            Ok(builder.proxy(proxy))
        }
        _ => Ok(builder),
    }
}

fn build(builder: ClientBuilder) -> Result<reqwest::Client, Problems> {
    builder.build().map_err(|error| {
        problem(
            ROOTS,
            format!(
                "no usable root certificates ({}): install the system's, name their file in \
                 SSL_CERT_FILE, or list PEM files here",
                chain(error)
            ),
        )
    })
}

fn needs_tls(config: &Connection) -> bool {
    let proxy = config.http().proxy.as_ref();
    config.endpoint_url().scheme() == "https" || proxy.is_some_and(|url| url.scheme() == "https")
}

/// The configured root certificates.
struct Roots {
    certificates: Vec<Certificate>,
    fingerprint: Fingerprint,
}

impl Roots {
    fn read(config: &Connection) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let mut certificates = Vec::new();
        let mut contents = Vec::new();
        for (index, path) in config.http().root_certificates.iter().enumerate() {
            let read = std::fs::read(path).map_err(|error| error.to_string());
            let parsed = read.and_then(|pem| {
                let found = Certificate::from_pem_bundle(&pem).map_err(chain)?;
                contents.push(pem);
                match found.is_empty() {
                    true => Err("it holds no certificate".to_owned()),
                    false => Ok(found),
                }
            });
            match parsed {
                Ok(found) => certificates.extend(found),
                Err(why) => problems.add(
                    format!("{ROOTS}[{index}]"),
                    format!("expected a PEM file of certificates: {why}"),
                ),
            }
        }
        let fingerprint = Fingerprint::of(contents.iter().map(Vec::as_slice));
        problems.into_result(Self {
            certificates,
            fingerprint,
        })
    }
}

fn problem(path: &str, text: String) -> Problems {
    let mut problems = Problems::new();
    problems.add(path, text);
    problems
}

/// An error with its causes; without a URL, which is the caller's to show.
fn chain(error: reqwest::Error) -> String {
    ErrorChain(&error.without_url()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SqsSinkConfig;

    fn config(queue_url: &str, roots: &[&str]) -> SqsSinkConfig {
        SqsSinkConfig::builder(queue_url, "us-east-1")
            .root_certificates(roots.iter().copied())
            .build(&HostServices::new())
            .unwrap()
    }

    #[test]
    fn equal_settings_share_their_connections_within_a_host() {
        let services = HostServices::new();
        let first = config("http://127.0.0.1:1/0/a", &[]);
        let second = config("http://127.0.0.1:1/0/b", &[]);
        let shared = Transport::shared(first.connection(), &services).unwrap();
        assert!(Arc::ptr_eq(
            &shared,
            &Transport::shared(second.connection(), &services).unwrap()
        ));
        let elsewhere = Transport::shared(first.connection(), &HostServices::new()).unwrap();
        assert!(!Arc::ptr_eq(&shared, &elsewhere));
    }

    #[test]
    fn every_certificate_file_that_cannot_be_used_is_a_problem() {
        let empty = std::env::temp_dir().join(format!("no-certificate-{}.pem", std::process::id()));
        std::fs::write(&empty, "nothing here\n").unwrap();
        let config = config(
            "https://sqs.us-east-1.amazonaws.com/1/hooks",
            &["/does/not/exist.pem", empty.to_str().unwrap()],
        );
        let problems = Transport::shared(config.connection(), &HostServices::new()).unwrap_err();
        let _ = std::fs::remove_file(&empty);
        let found: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("http.root_certificates[0]: expected a PEM file"));
        assert!(found[1].starts_with("http.root_certificates[1]: expected a PEM file"));
    }
}
