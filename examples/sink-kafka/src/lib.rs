#![doc = include_str!("../README.md")]

mod classify;
mod config;
mod plugin;
mod producer;
mod record;
mod sink;
mod source;
mod telemetry;

pub use crate::config::KafkaSinkConfig;
pub use crate::plugin::{PLUGIN, REGISTRATION};
pub use crate::sink::KafkaSink;
pub use crate::source::{KafkaSource, KafkaSourceBuilder};
