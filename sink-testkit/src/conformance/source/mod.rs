//! The conformance suite for sources: what is received and how it is settled.
//!
//! An adapter's author implements [`SourceAdapter`] and [`SourceFixture`], declares in a
//! [`SourceProfile`] what the source promises, and calls [`main`] from a test without a
//! harness. Messages are put, and what is left is counted, past the source.
//! [`write_a_source`](crate::write_a_source) shows how.

mod case;
pub mod cases;
mod context;
mod fault;
mod fixture;
mod ids;
mod profile;
mod run;
mod runner;

pub use case::{SourceCase, SourceCaseFn};
pub use context::SourceContext;
pub use fault::{Operation, SourceFault, SourceFaultKind, SourceFaultScript};
pub use fixture::{BoxedHandler, RawMessage, SourceAdapter, SourceFixture, SourceOptions};
pub use profile::{SourceCapability, SourceProfile};
pub use run::run_source_case;
pub use runner::main;
