#![doc = include_str!("../README.md")]

mod batcher;
mod claim;
mod context;
mod drain;
mod encoding;
mod envelope;
mod error;
mod headers;
mod message;
mod options;
mod redelivery;
mod registry;
mod retry;
mod routes;
mod runtime;
mod services;
mod settle;
mod sink;
mod sparse;

pub use crate::batcher::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, Flush, FlushReason, QueueFull,
    Reconciliation,
};
pub use crate::claim::{ClaimCheck, ClaimError, ClaimId, ClaimRef, InvalidClaimRef, redeem};
pub use crate::context::{DeliveryContext, Origin};
pub use crate::drain::{DrainReport, InFlight, InFlightGuard};
pub use crate::envelope::{
    Envelope, EnvelopeId, HeaderField, InvalidEnvelopeId, Verification, idempotency_key,
};
pub use crate::error::{ErrorChain, ErrorClass, Outcome, SinkError};
pub use crate::headers::{HeaderForwarding, is_header_name};
pub use crate::message::{
    Content, DEFAULT_INLINE_MAX_BYTES, DecodeError, DecodeErrorCode, MESSAGE_VERSION, Message,
    push_json_string,
};
pub use crate::options::{Problem, Problems, read_options, shown, unknown};
pub use crate::redelivery::Redelivery;
pub use crate::registry::{
    BuildError, BuildSink, BuiltSink, DuplicateKind, Fingerprint, Registry, SinkKey, SinkPlugin,
};
pub use crate::retry::{Draw, RETRY_AFTER_CEILING, RetryPolicy, throttle_after};
pub use crate::routes::{NamedSink, RouteLease, RouteTable, Selection, SwapReport, TenantRoutes};
pub use crate::services::{Clock, DEFAULT_SINK_CONCURRENCY, HostServices, Pool, SystemClock};
pub use crate::settle::{
    Consumer, ConsumerReport, ConsumerSettings, Delivery, Handler, Lease, LeaseKeeper, LogObserver,
    NoObserver, Observer, Received, Registration, RepublishesRetries, SettleError, Settlement,
    Source, SourceError, SourceExt, Stop, Subscription, SubscriptionPlan,
};
pub use crate::sink::{
    Admission, Description, Guarantees, Ordering, Receipt, Sink, deliver_contained, tell_contained,
};
pub use crate::sparse::SparseLog;

/// What the macros of this crate expand to. Not part of the contract.
#[doc(hidden)]
pub mod __private {
    pub use crate::registry::LINKED_SINKS;
    pub use linkme;
}
