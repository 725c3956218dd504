//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Deliver hooks through sinks picked by name from a configuration.
#[derive(Debug, Parser)]
#[command(name = "dispatcher", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Deliver sample hooks of three tenants to an embedded SQS server, and show what arrived where
    Demo,
    /// Deliver hooks, one JSON object a line, and exit: 0 all delivered, 3 some were not
    Send(SendArgs),
    /// Check a configuration and print everything wrong with it; needs no network
    Check {
        /// The configuration, in TOML
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// List the linked plugins and their options
    Sinks {
        /// Print JSON: a list of kind, summary and the JSON schema of the options
        #[arg(long)]
        json: bool,
    },
    /// Run the embedded SQS server until Ctrl-C (access key `test`, secret `test`, region us-east-1)
    Sqs {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:9324")]
        addr: SocketAddr,
        /// Make this queue at the start; may be repeated; a name that ends in .fifo makes a FIFO queue
        #[arg(long = "queue", value_name = "NAME")]
        queues: Vec<String>,
    },
}

/// What `send` is told.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The hooks, one JSON object a line; `-` reads standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub input: PathBuf,
    /// Print one JSON object per hook and sink on standard output
    #[arg(long)]
    pub json: bool,
    /// Append what could not be delivered, as hooks that `--input` takes again
    #[arg(long, value_name = "FILE")]
    pub dead_letters: Option<PathBuf>,
    /// Serve metrics as Prometheus text at this address while the run lasts
    #[arg(
        long,
        value_name = "ADDR",
        help = "Serve metrics as Prometheus text at this address, such as 127.0.0.1:9090, while the run lasts"
    )]
    pub metrics_addr: Option<SocketAddr>,
}
