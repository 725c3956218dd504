//! sink-sqs measured against other clients of the same service.
//!
//! `benchmark run` starts a server and, one after the other, the clients, each in a
//! process of its own, and compares the CPU that they use for one message.

mod client;
mod latency;
mod machine;
mod meter;
mod peers;
mod report;
mod run;
mod server;
mod stored;
mod tls;
mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// What went wrong, for a person at a terminal.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "Measures sink-sqs against other clients of SQS")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures everything and writes BENCHMARKS.md
    Run(run::Options),
    /// The server that answers, on a free port, until its standard input ends
    Server {
        /// The directory of certificate.pem and key.pem; plain HTTP without
        #[arg(long)]
        tls: Option<PathBuf>,
    },
    /// One client, which prints one line of JSON
    Client {
        /// Which one
        kind: client::Kind,
        /// Where the server listens
        #[arg(long)]
        addr: SocketAddr,
        /// Connect with TLS; SSL_CERT_FILE names the certificate to trust
        #[arg(long)]
        tls: bool,
        /// The size of a hook's body in bytes
        #[arg(long, default_value_t = 1_024)]
        size: usize,
        /// How many hooks
        #[arg(long, default_value_t = 50_000)]
        messages: usize,
    },
    /// How long deliveries wait for their answers, as one line of JSON
    Latency {
        /// Where the server listens
        #[arg(long)]
        addr: SocketAddr,
        /// How many lone messages, and how many seconds of a steady stream
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Writes the messages themselves, for clients of other languages
    Workload {
        /// The size of a hook's body in bytes
        #[arg(long, default_value_t = 1_024)]
        size: usize,
        /// How many hooks
        #[arg(long, default_value_t = 1_000)]
        messages: usize,
        /// The file to write
        #[arg(long)]
        output: PathBuf,
    },
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    // One thread, whoever the client is: what is compared is work, not its distribution.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match arguments.command {
        Command::Run(options) => run::run(&options),
        Command::Server { tls } => runtime.block_on(server::serve(tls.as_deref())),
        Command::Client {
            kind,
            addr,
            tls,
            size,
            messages,
        } => runtime.block_on(client::measure(kind, addr, tls, size, messages)),
        Command::Latency { addr, seconds } => runtime.block_on(latency::measure(addr, seconds)),
        Command::Workload {
            size,
            messages,
            output,
        } => workload::write(size, messages, &output),
    }
}
