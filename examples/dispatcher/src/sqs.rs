//! `dispatcher sqs`: the embedded SQS server on a port.

use std::net::SocketAddr;

use sink_testkit::sqs::{RecordLimit, SqsServer};

use crate::run::{Exit, could_not_start};
use crate::signals::Signals;
use crate::terminal::print;

pub(crate) async fn serve(address: SocketAddr, queues: &[String]) -> Exit {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return could_not_start(&format!("cannot listen for signals: {error}")),
    };
    let server = SqsServer::builder()
        .address(address)
        // Nobody reads the record of a server that runs for days.
        .record_limit(RecordLimit::new(0, 0))
        .start()
        .await;
    let server = match server {
        Ok(server) => server,
        Err(error) => return could_not_start(&format!("cannot listen on {address}: {error}")),
    };
    let mut lines = format!(
        "SQS at {} (access key test, secret test, region us-east-1)\n",
        server.endpoint()
    );
    for queue in queues {
        match make_queue(&server, queue).await {
            Ok(url) => lines.push_str(&format!("queue {url}\n")),
            Err(problem) => return could_not_start(&problem),
        }
    }
    print(&lines);
    signals.next().await;
    server.shutdown().await;
    Exit::Done
}

/// Makes a queue, FIFO where its name says so.
pub(crate) async fn make_queue(server: &SqsServer, name: &str) -> Result<String, String> {
    let fifo = name.ends_with(".fifo").then_some(("FifoQueue", "true"));
    server
        .create_queue(name, fifo)
        .await
        .map_err(|error| format!("cannot make the queue {name}: {error}"))
}
