#![doc = include_str!("../README.md")]
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "these panic when nobody reads: use the functions of `terminal`"
)]

mod claims;
mod cli;
mod config;
mod dead_letters;
mod delivery;
mod demo;
mod hook;
mod input;
mod lanes;
pub mod log_sink;
mod notices;
mod report;
mod run;
mod send;
mod signals;
mod sinks;
mod sqs;
mod stop;
mod telemetry;
mod terminal;

// Links the plugins: their registration is all that is used of them.
#[cfg(feature = "kafka")]
use sink_kafka as _;
use sink_nats as _;
use sink_sqs as _;

pub use crate::claims::DirectoryClaimCheck;
pub use crate::cli::{Cli, Command, SendArgs};
pub use crate::config::{Config, InFlightLimits};
pub use crate::dead_letters::DeadLetters;
pub use crate::delivery::{DRAIN_TIME, Deliverer, Journey, Receiver, Verdict};
pub use crate::hook::Hook;
pub use crate::input::{Input, Line, MAX_LINE_BYTES};
pub use crate::lanes::{Lanes, Turn};
pub use crate::report::Summary;
pub use crate::run::{Exit, run};
pub use crate::send::{Output, send};
pub use crate::stop::Stop;

/// The code of the workspace's README, compiled and run with this crate's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadme;
