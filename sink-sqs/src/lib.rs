#![doc = include_str!("../README.md")]
#![expect(dead_code, reason = "the sink that uses these modules follows")]

mod classify;
mod config;
mod credentials;
mod digest;
mod endpoint;
mod entry;
mod group;
mod protocol;
mod retry_after;

pub use crate::config::{SqsSinkConfig, SqsSinkConfigBuilder};
