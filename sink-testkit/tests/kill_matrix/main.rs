//! The proof that the suites bite: every mutant is noticed by the case that it is for,
//! and every case notices one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod matrix;
mod sinks;
mod sources;

/// One seed for all, so that the matrices can be compared.
const SEED: u64 = 1;
