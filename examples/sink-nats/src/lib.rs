#![doc = include_str!("../README.md")]

mod ack;
mod classify;
mod config;
mod connection;
mod credentials;
mod link;
mod plugin;
mod record;
mod sink;
mod source;
mod subject;
mod telemetry;

pub use crate::config::NatsSinkConfig;
pub use crate::plugin::{PLUGIN, REGISTRATION};
pub use crate::sink::NatsSink;
pub use crate::source::{NatsSource, NatsSourceBuilder};
