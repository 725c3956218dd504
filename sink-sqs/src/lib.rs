#![doc = include_str!("../README.md")]

mod answer;
mod batch;
mod classify;
mod client;
mod config;
mod credentials;
mod digest;
mod endpoint;
mod entry;
mod group;
mod plugin;
mod preflight;
mod prepared;
mod protocol;
mod retry_after;
mod scratch;
mod sink;
mod telemetry;

pub use crate::config::{SqsSinkConfig, SqsSinkConfigBuilder};
pub use crate::plugin::{PLUGIN, REGISTRATION};
pub use crate::sink::SqsSink;
