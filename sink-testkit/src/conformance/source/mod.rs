//! The conformance suite for sources.

mod fault;
mod fixture;
mod profile;

pub use fault::{Operation, SourceFault, SourceFaultKind, SourceFaultScript};
pub use fixture::{BoxedHandler, RawMessage, SourceAdapter, SourceFixture, SourceOptions};
pub use profile::{SourceCapability, SourceProfile};
