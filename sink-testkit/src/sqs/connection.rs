//! One connection, from its first request to its end.

use std::error::Error as _;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::departure::Departure;
use super::server::stopped;
use super::service;
use super::shared::Shared;

pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let id = shared.count_connection();
    let _open = Open::new(&shared);
    let idle_since = watch::Sender::new(Some(Instant::now()));
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        let idle_since = idle_since.clone();
        Box::pin(async move {
            idle_since.send_replace(None);
            let answer = service::respond(&shared, id, request).await;
            idle_since.send_replace(Some(Instant::now()));
            answer
        })
    });
    let mut connection = http1::Builder::new()
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut stop = shared.stop().subscribe();
    let mut cuts = shared.cuts().subscribe();
    let ended = tokio::select! {
        ended = &mut connection => ended,
        // Dropping the connection closes it, without a word to the client.
        () = idle_too_long(&shared, &idle_since) => return,
        () = stopped(&mut stop) => return,
        _ = cuts.changed() => return,
    };
    if let Err(error) = ended {
        let departure = error
            .source()
            .and_then(|source| source.downcast_ref::<Departure>())
            .cloned();
        if let Some(departure) = departure {
            let stream = connection.into_parts().io.into_inner();
            if let Err(error) = departure.carry_out(stream).await {
                tracing::debug!(connection = id, %error, "the client was gone first");
            }
        }
    }
}

/// Returns once the connection has been without a request for as long as the server lets it be.
async fn idle_too_long(shared: &Shared, idle_since: &watch::Sender<Option<Instant>>) {
    let mut limit = shared.idle_limit().subscribe();
    let mut since = idle_since.subscribe();
    loop {
        let due = match (*since.borrow_and_update(), *limit.borrow_and_update()) {
            (Some(since), Some(limit)) => Some(since + limit),
            _ => None,
        };
        tokio::select! {
            () = sleep_until(due) => return,
            _ = since.changed() => {}
            _ = limit.changed() => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Counts a connection as open while it lives.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open_connections().send_modify(|count| *count += 1);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0
            .open_connections()
            .send_modify(|count| *count = count.saturating_sub(1));
    }
}
