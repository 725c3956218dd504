#![doc = include_str!("../README.md")]

mod claims;
mod cli;
mod config;
mod dead_letters;
mod delivery;
mod demo;
mod hook;
mod input;
pub mod log_sink;
mod report;
mod run;
mod send;
mod signals;
mod sinks;
mod sqs;
mod stop;

// Links the plugin: its registration is all that is used of it.
use sink_sqs as _;

pub use crate::claims::DirectoryClaimCheck;
pub use crate::cli::{Cli, Command, SendArgs};
pub use crate::config::Config;
pub use crate::dead_letters::DeadLetters;
pub use crate::delivery::{DRAIN_TIME, Deliverer, Journey, Lanes, Turn, Verdict};
pub use crate::hook::Hook;
pub use crate::input::{Input, Line, MAX_LINE_BYTES};
pub use crate::report::Summary;
pub use crate::run::{Exit, run};
pub use crate::send::{Output, send};
pub use crate::stop::Stop;

/// The code of the workspace's README, compiled and run with this crate's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadme;
