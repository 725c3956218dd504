//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Consume a queue of hooks: run a command a delivery, and settle by its exit status.
#[derive(Debug, Parser)]
#[command(name = "worker", version)]
pub struct Cli {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print one JSON object per delivery on standard output
    #[arg(long)]
    pub json: bool,
    /// End once a receive brought nothing and nothing is in hand
    #[arg(long)]
    pub until_empty: bool,
}
