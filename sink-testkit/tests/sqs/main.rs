//! The server, over HTTP, against what the service is known to do.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing it did not expect"
)]

mod batches;
mod faults;
mod fifo;
mod framing;
mod queues;
mod receive;
mod redrive;
mod send;
mod signature;
mod support;
