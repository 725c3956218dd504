//! Ways to break the reference source, each for one case to notice.

mod ack;
mod copies;
mod delay;
mod drop;
mod extension;
mod hold;
mod order;
mod receive;
mod receive_faults;
mod receive_limits;
mod redrive;
mod retry;
mod stop;
mod tools;

use std::sync::Arc;

use dispatch_api::{
    ConsumerReport, ConsumerSettings, Source, Stop, Subscription, SubscriptionPlan,
};
use futures_util::future::BoxFuture;

use super::queue::QueueBroker;
use super::settings::ReferenceSourceSettings;
use super::wire::QueueWire;
use crate::conformance::source::{BoxedHandler, SourceOptions};
use crate::reference::Mutant;

/// One way to break the source.
pub type SourceMutant = Mutant<SourceSeam>;

/// Where a mutant stands.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SourceSeam {
    /// Around the honest source.
    Source(fn(Arc<dyn Source>, SourceParts) -> Arc<dyn Source>),
    /// Around each of its subscriptions.
    Subscription(fn(Arc<dyn Subscription>, SourceParts) -> Arc<dyn Subscription>),
    /// Between each of them and the broker.
    Wire(fn(Arc<dyn QueueWire>, SourceParts) -> Arc<dyn QueueWire>),
    /// In front of the reading of options.
    Options(fn(&SourceOptions) -> SourceOptions),
    /// In the place of the consumer.
    Consume(ConsumeMutant),
}

/// Consumes in the consumer's place.
pub type ConsumeMutant = fn(
    Arc<dyn Subscription>,
    ConsumerSettings,
    BoxedHandler,
    Stop,
) -> BoxFuture<'static, ConsumerReport>;

/// What a mutant can work with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceParts {
    /// The broker.
    pub broker: Arc<QueueBroker>,
    /// The place's name.
    pub place: String,
    /// The options that the source was built from.
    pub options: SourceOptions,
    /// What came of them.
    pub settings: ReferenceSourceSettings,
    /// The plan of the subscription; empty around a source, which has none yet.
    pub plan: SubscriptionPlan,
}

/// Every mutant, in the order of the cases.
pub fn all() -> impl Iterator<Item = &'static SourceMutant> {
    [
        receive::MUTANTS,
        receive_limits::MUTANTS,
        receive_faults::MUTANTS,
        ack::MUTANTS,
        retry::MUTANTS,
        delay::MUTANTS,
        copies::MUTANTS,
        drop::MUTANTS,
        hold::MUTANTS,
        extension::MUTANTS,
        redrive::MUTANTS,
        order::MUTANTS,
        stop::MUTANTS,
    ]
    .into_iter()
    .flatten()
}
