//! The way to a broker, on which its replies can be held.

use std::io;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::frame::{read, with_port};

/// A port that leads to a broker of this machine, until it is dropped.
pub(crate) struct Relay {
    port: u16,
    is_held: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// To the broker at this port.
    pub(crate) async fn start(broker: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_held, watched) = watch::channel(false);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let watched = watched.clone();
                connections.spawn(async move {
                    // What ends one side ends the other.
                    let _ = serve(client, (broker, port), watched).await;
                });
            }
        });
        Self {
            port,
            is_held,
            accepting,
        }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Replies go no further while it is set.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The connections end with it.
        self.accepting.abort();
    }
}

async fn serve(
    client: TcpStream,
    (broker, port): (u16, u16),
    mut watched: watch::Receiver<bool>,
) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", broker)).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let replies = async {
        while let Some(frame) = read(&mut from_server).await? {
            if watched.wait_for(|is_held| !is_held).await.is_err() {
                break;
            }
            // The client finds the broker where it is told, which is here.
            let frame = with_port(&frame, broker, port);
            to_client.write_all(&frame).await?;
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        ended = requests => ended.map(drop),
        ended = replies => ended,
    }
}
