//! Encrypted connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use dispatch_api::{Outcome, Sink as _};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use sink_testkit::sqs::SqsServer;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::bench::{QUEUE, config, ctx, envelope, parts, sink};

/// Takes encrypted connections for a server that speaks plainly.
struct TlsFront {
    address: SocketAddr,
    certificate: tempfile::Pem,
    protocols: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
    _accepting: JoinSet<()>,
}

impl TlsFront {
    async fn start(behind: SocketAddr) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let mut tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocols = Arc::<Mutex<Vec<Option<Vec<u8>>>>>::default();
        let seen = Arc::clone(&protocols);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let protocol = stream.get_ref().1.alpn_protocol().map(ToOwned::to_owned);
                seen.lock().unwrap().push(protocol);
                let mut plain = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut plain).await;
            }
        });
        Self {
            address,
            certificate: tempfile::Pem::write(&cert.pem()),
            protocols,
            _accepting: accepting,
        }
    }

    fn endpoint(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }
}

/// A file that is gone when the test is over.
mod tempfile {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) struct Pem(PathBuf);

    impl Pem {
        pub(super) fn write(text: &str) -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("sink-sqs-test-{}-{number}.pem", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            Self(path)
        }

        pub(super) fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Pem {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

#[tokio::test]
async fn a_configured_root_certificate_is_trusted_and_http_1_is_spoken() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let front = TlsFront::start(server.address()).await;
    let trusting = config(&queue_url)
        .endpoint(front.endpoint())
        .root_certificates([front.certificate.path()]);
    sink(trusting).deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(server.messages(QUEUE).unwrap().len(), 1);
    let protocols = front.protocols.lock().unwrap().clone();
    assert_eq!(protocols, [Some(b"http/1.1".to_vec())]);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_a_failed_connection() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue(QUEUE, []).await.unwrap();
    let front = TlsFront::start(server.address()).await;
    let other = TlsFront::start(server.address()).await;
    let distrusting = config(&queue_url)
        .endpoint(front.endpoint())
        .root_certificates([other.certificate.path()]);
    let error = sink(distrusting)
        .deliver(&envelope(), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
    assert!(error.text().contains("http.root_certificates"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let front = TlsFront::start(address).await;
    let sink = sink(
        config(&format!("https://{address}/000000000000/hooks"))
            .root_certificates([front.certificate.path()]),
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "ConnectFailed")
    );
}
