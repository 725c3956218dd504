//! An SQS server for tests.

mod answer;
mod builder;
mod clock;
mod connection;
mod credentials;
mod damage;
mod dedup;
mod departure;
mod digest;
mod entry_fault;
mod error;
mod fault;
mod hold;
mod limits;
mod message;
mod message_attributes;
mod number;
mod operation;
mod operations;
mod queue;
mod queue_attributes;
mod queue_url;
mod receipt_handle;
mod record;
mod redrive;
mod server;
mod service;
mod shared;
mod signature;
mod state;
mod wire;

pub use answer::{Answer, Spelling};
pub use builder::SqsServerBuilder;
pub use clock::Clock;
pub use credentials::Credentials;
pub use damage::Damage;
pub use entry_fault::{EntryFault, EntrySelector};
pub use error::{ErrorCode, ServiceError};
pub use fault::{Fault, FaultRule};
pub use hold::{Gate, Hold};
pub use message::{PeekedMessage, Visibility};
pub use message_attributes::AttributeValue;
pub use operation::Operation;
pub use record::{RecordLimit, RecordedRequest};
pub use server::SqsServer;
pub use shared::DateHeader;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. What a panic left behind is no worse here than what a lost request leaves.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
