#![doc = include_str!("../README.md")]

mod answer;
mod attempts;
mod batch;
mod calls;
mod classify;
mod client;
mod config;
mod credentials;
mod delivery;
mod digest;
mod endpoint;
mod entry;
mod group;
mod lease;
mod plugin;
mod preflight;
mod prepared;
mod protocol;
mod queue;
mod receive;
mod redrive;
mod requests;
mod retry_after;
mod scratch;
mod settler;
mod share;
mod sink;
mod telemetry;

pub use crate::config::{SqsSinkConfig, SqsSinkConfigBuilder};
pub use crate::plugin::{PLUGIN, REGISTRATION};
pub use crate::queue::{SqsError, SqsQueue, SqsQueueBuilder};
pub use crate::sink::SqsSink;
