#![doc = include_str!("../README.md")]
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "these panic when nobody reads: use the functions of `dispatcher`"
)]

mod cli;
mod command;
mod config;
mod dedupe;
mod hook;
mod report;
mod run;

pub use crate::cli::Cli;
pub use crate::config::{Config, HandlerConfig};
pub use crate::run::run;
