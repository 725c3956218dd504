//! The sink against an SQS server in this process, and against broken ones.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

mod batching;
mod bench;
mod certificates;
mod confirmation;
#[cfg(feature = "default-chain")]
mod credentials;
mod delivery;
mod lifecycle;
mod raw;
mod refusals;
mod registration;
mod secrets;
mod skew;
mod soak;
#[cfg(feature = "default-chain")]
mod sources;
mod telemetry;
mod tls;
mod transport;
