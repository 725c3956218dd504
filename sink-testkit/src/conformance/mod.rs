//! The conformance suite of sinks, and in [`source`] that of sources: what a host may rely
//! on, whatever the broker.
//!
//! An adapter's author implements [`Adapter`] and [`SinkFixture`], writes down what the
//! adapter promises as a [`Profile`], and calls [`main`] from a test target with
//! `harness = false`. Every case becomes a test of its own in cargo's output, once for
//! each mode of the adapter, and its verdict is compared with the ledger that is checked
//! in beside it. [`write_a_sink`](crate::write_a_sink) leads there step by step.
//!
//! # Rules
//!
//! - The subject runs bare: nothing here retries a delivery or puts a time limit on it.
//! - What arrived is read back past the adapter, by [`SinkFixture::stored`].
//! - The expected value is the suite's. A fixture can declare what an adapter does; it
//!   cannot judge.
//! - A case that cannot run says why, and the ledger holds that too.

mod case;
pub mod cases;
mod context;
mod failure;
mod fault;
mod fixture;
mod history;
mod ledger;
mod nowhere;
mod observe;
mod panics;
mod profile;
mod run;
mod runner;
mod scan;
pub mod source;
mod verdict;
mod watchdog;

pub use case::{Case, CaseFn, Needs};
pub use context::Context;
pub use failure::{Checked, Failure, FailureKind, check, check_eq};
pub use fault::{EntryFault, Fault, FaultKind, FaultScript, Garbage, Rule, SeenRequest};
pub use fixture::{Adapter, Destination, Divergence, FixtureError, SinkFixture, StoredMessage};
pub use history::{Duplicates, History};
pub use ledger::{Ledger, LedgerError};
pub use nowhere::{Nowhere, Unreachable};
pub use observe::{Listening, Observer};
pub use profile::{Batching, Capability, Clock, ErrorRow, KeyParts, Profile};
pub use run::{CaseReport, run_case, run_case_within};
pub use runner::main;
pub use scan::Scanner;
pub use verdict::Verdict;

pub use crate::sqs::{Gate, Hold};

/// The version of the suite: raised when a case is added, removed or made stricter. A
/// ledger names the version that it was written for.
pub const SUITE_VERSION: u32 = 1;
