//! A listener that does what it is told with each connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What becomes of a connection whose first request has been read.
#[derive(Clone)]
pub(crate) enum Then {
    /// These bytes are answered and the connection is closed.
    Answer(Vec<u8>),
    /// Nothing is answered, ever.
    Silence,
    /// These bytes are answered, and nothing more, ever.
    Stall(Vec<u8>),
    /// The connection is closed without an answer.
    Close,
}

type Handler = dyn Fn(&str) -> Then + Send + Sync;

/// A server that reads one whole request of each connection.
pub(crate) struct RawServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _accepting: JoinSet<()>,
}

impl RawServer {
    /// A server that treats each connection alike.
    pub(crate) async fn start(then: Then) -> Self {
        Self::answering(move |_| then.clone()).await
    }

    /// A server that looks at each request, head and body.
    pub(crate) async fn answering(handler: impl Fn(&str) -> Then + Send + Sync + 'static) -> Self {
        let handler: Arc<Handler> = Arc::new(handler);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&handler), Arc::clone(&seen)));
            }
        });
        Self {
            address,
            requests,
            _accepting: accepting,
        }
    }

    /// Where this server is.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The URL of a queue that this server pretends to have.
    pub(crate) fn queue_url(&self) -> String {
        format!("{}/000000000000/hooks", self.origin())
    }

    /// The requests so far, head and body as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, seen: Arc<Mutex<Vec<String>>>) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    let then = handler(&request);
    seen.lock().unwrap().push(request);
    match then {
        Then::Close => {}
        Then::Answer(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Then::Silence => std::future::pending::<()>().await,
        Then::Stall(bytes) => {
            let _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        if let Some(head) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
            let length: usize = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
            if read.len() >= head + 4 + length {
                return Some(String::from_utf8_lossy(&read).into_owned());
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

/// An answer of this status and body, complete.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
