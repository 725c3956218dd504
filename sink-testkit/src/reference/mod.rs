//! An honest adapter in memory, and ways to break it.
//!
//! The reference broker takes requests like a queue's service, and the reference sink
//! delivers to it; together they pass every case that their profile claims, also in modes
//! that promise little. [`mutants`] break them one rule at a time, to prove that a case
//! notices.

mod adapter;
mod bare;
mod broker;
mod config;
pub mod mutants;
mod plugin;
mod reply;
mod script;
mod sink;
pub mod source;
mod wire;

pub use adapter::{ReferenceAdapter, ReferenceFixture};
pub use broker::Broker;
pub use config::ReferenceConfig;
pub use mutants::{Mutant, Parts, Seam};
pub use plugin::PLUGIN;
pub use sink::ReferenceSink;
pub use wire::{Entry, Reply, Request, Wire, WireError};
