//! The sink against an SQS server in this process, and against broken ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod batching;
mod bench;
mod certificates;
mod confirmation;
mod delivery;
mod lifecycle;
mod raw;
mod refusals;
mod registration;
mod secrets;
mod skew;
mod tls;
mod transport;
