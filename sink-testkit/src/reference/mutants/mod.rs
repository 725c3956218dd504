//! Ways to break the reference adapter, each for one case to notice.

mod acceptance;
mod batch_bounds;
mod batches;
mod body;
mod cancellation;
mod config;
mod errors;
mod fields;
mod headers;
mod identity;
mod integrity;
mod isolation;
mod lifecycle;
mod lifetime;
mod order;
mod registry;
mod replies;
mod secrets;
mod size;
mod telemetry;
mod tools;

use std::sync::Arc;

use dispatch_api::{HostServices, Problems, Sink, SinkPlugin};
use serde_json::Value;

use super::config::ReferenceConfig;
use super::wire::Wire;

/// One way to break a reference adapter.
///
/// It stands at a seam, so that the honest code knows nothing of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mutant<S = Seam> {
    /// Its name.
    pub name: &'static str,
    /// What it does wrong.
    pub fault: &'static str,
    /// The case that has to notice.
    pub case: &'static str,
    /// What that case's failure has to say.
    pub says: &'static str,
    /// The mode in which it runs.
    pub mode: &'static str,
    /// Where it stands.
    pub seam: S,
}

impl<S: Copy> Mutant<S> {
    /// A mutant in the mode `ordered-batched`, which declares the most.
    #[must_use]
    pub const fn new(
        name: &'static str,
        fault: &'static str,
        case: &'static str,
        says: &'static str,
        seam: S,
    ) -> Self {
        Self {
            name,
            fault,
            case,
            says,
            mode: "ordered-batched",
            seam,
        }
    }

    /// Runs it in another mode.
    #[must_use]
    pub const fn in_mode(mut self, mode: &'static str) -> Self {
        self.mode = mode;
        self
    }
}

/// Where a mutant stands.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Seam {
    /// Around the honest sink.
    Sink(fn(Arc<dyn Sink>, Parts) -> Arc<dyn Sink>),
    /// Between the sink and the broker.
    Wire(fn(Arc<dyn Wire>, &ReferenceConfig) -> Arc<dyn Wire>),
    /// Around the building of the sink from options.
    Build(BuildMutant),
    /// In the place of the plugin, which builds honest sinks.
    Plugin(&'static SinkPlugin),
}

/// Builds a sink from options, with the honest way at hand.
pub type BuildMutant = fn(
    &Value,
    &HostServices,
    &dyn Fn(&Value) -> Result<Arc<dyn Sink>, Problems>,
) -> Result<Arc<dyn Sink>, Problems>;

/// What a mutant around a sink can work with.
#[derive(Clone)]
#[non_exhaustive]
pub struct Parts {
    /// The sink's configuration.
    pub config: ReferenceConfig,
    /// The sink's wire.
    pub wire: Arc<dyn Wire>,
    /// The sink's host.
    pub services: HostServices,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Every mutant, in the order of the cases.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    [
        acceptance::MUTANTS,
        identity::MUTANTS,
        body::MUTANTS,
        size::MUTANTS,
        headers::MUTANTS,
        fields::MUTANTS,
        errors::MUTANTS,
        replies::MUTANTS,
        integrity::MUTANTS,
        batches::MUTANTS,
        batch_bounds::MUTANTS,
        cancellation::MUTANTS,
        isolation::MUTANTS,
        order::MUTANTS,
        lifetime::MUTANTS,
        config::MUTANTS,
        registry::MUTANTS,
        lifecycle::MUTANTS,
        telemetry::MUTANTS,
        secrets::MUTANTS,
    ]
    .into_iter()
    .flatten()
}
