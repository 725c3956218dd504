//! An honest source in memory, and ways to break it.
//!
//! The broker hands out messages like a queue's service or a log, and the reference source
//! consumes them; together they pass every case that their profile claims. [`mutants`] break
//! them one rule at a time, to prove that a case notices.

mod adapter;
mod client;
mod copies;
mod delivery;
mod extender;
mod lease;
pub mod mutants;
mod place;
mod queue;
mod script;
mod settings;
mod settler;
// The source itself, beside its broker.
#[allow(clippy::module_inception, reason = "it holds the source")]
mod source;
mod subscription;
#[cfg(test)]
mod tests;
mod wire;

pub use adapter::{ReferenceSourceAdapter, ReferenceSourceFixture};
pub use copies::CopySink;
pub use mutants::{SourceMutant, SourceParts, SourceSeam};
pub use place::PlaceKind;
pub use queue::QueueBroker;
pub use settings::ReferenceSourceSettings;
pub use source::ReferenceSource;
pub use wire::{
    EntryAnswer, HoldChange, QueueCall, QueueFailure, QueueMessage, QueueReply, QueueRequest,
    QueueWire, ReceiveCall, RedrivePolicy,
};
