//! The consuming side: deliveries from a broker, each settled once.

mod consumer;
mod delivery;
mod error;
mod lease;
mod received;
mod registration;

pub use consumer::{
    Consumer, ConsumerReport, ConsumerSettings, Handler, LogObserver, NoObserver, Observer, Stop,
};
pub use delivery::{Delivery, Settlement};
pub use error::{SettleError, SourceError};
pub use lease::{Lease, LeaseKeeper};
pub use received::Received;
pub use registration::{
    Registration, RepublishesRetries, Source, SourceExt, Subscription, SubscriptionPlan,
};
