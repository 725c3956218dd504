//! The sink and the source against servers of its own: real ones, and scripted ones that fail as told.
//!
//! The real ones need the program `nats-server` on the `PATH` (Debian: `apt-get install
//! nats-server`). Without it their tests say that they are skipped; with
//! `NATS_REQUIRE_LIVE=1` they fail.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

mod connection;
mod consuming;
mod delivery;
mod fake;
mod faults;
mod lifecycle;
mod refusals;
mod registration;
mod secrets;
mod support;
mod telemetry;
mod tls;
