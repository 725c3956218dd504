//! The in-process SQS server on a port, for clients in other processes.
//!
//! Prints its endpoint on one line, and stops when its standard input ends. A line `advance SECONDS` moves the
//! server's clock and is answered with `ok`, so that a script need not wait for time to pass.

use std::time::Duration;

use sink_testkit::sqs::SqsServer;
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let server = SqsServer::start().await?;
    println!("{}", server.endpoint());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.strip_prefix("advance ").map(str::parse) {
            Some(Ok(seconds)) => {
                server.clock().advance(Duration::from_secs(seconds));
                println!("ok");
            }
            _ => println!("unknown command"),
        }
    }
    server.shutdown().await;
    Ok(())
}
