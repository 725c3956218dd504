//! The sink against an SQS server in this process, and against broken ones.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

mod batch_bench;
mod batch_owners;
mod batching;
mod bench;
mod certificates;
mod confirmation;
mod consuming;
mod consuming_secrets;
mod consuming_soak;
mod consuming_telemetry;
#[cfg(feature = "default-chain")]
mod credentials;
mod delivery;
mod drain;
mod extension;
mod lifecycle;
mod live_queues;
mod log;
#[cfg(feature = "default-chain")]
mod metadata;
mod queue_options;
mod raw;
mod receiving;
mod redrive;
mod refusals;
mod registration;
mod resending;
mod secrets;
mod settlement;
mod skew;
mod soak;
#[cfg(feature = "default-chain")]
mod sources;
mod stop;
mod telemetry;
mod tls;
mod transport;
