//! The server, over HTTP, against what the service is known to do.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing it did not expect"
)]

mod batches;
mod entry_faults;
mod faults;
mod fifo;
mod fifo_groups;
mod fifo_order;
mod framing;
mod long_polls;
mod queues;
mod receive;
mod redrive;
mod send;
mod signature;
mod support;
mod visibility;
