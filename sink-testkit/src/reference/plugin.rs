//! The reference plugin, as a host builds it.

use std::sync::Arc;

use dispatch_api::{HostServices, Problems, Sink, SinkPlugin};
use serde_json::Value;

use super::bare::Bare;
use super::broker::Broker;
use super::config::ReferenceConfig;
use super::mutants::{Mutant, Parts, Seam};
use super::sink::ReferenceSink;
use super::wire::Wire;

/// The plugin of kind `reference`. It finds its broker in the host's pool, where the
/// fixture put it.
pub static PLUGIN: SinkPlugin = SinkPlugin::new(
    "reference",
    "the reference broker, in memory",
    ReferenceConfig::schema,
    build,
);

/// What the fixture and the sinks of one host share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) broker: Arc<Broker>,
    pub(super) mutant: Option<&'static Mutant>,
    /// Whether sinks have empty receipts and no description, and count nothing.
    pub(super) is_bare: bool,
}

impl World {
    /// The plugin that the fixture hands out.
    pub(super) fn plugin(&self) -> &'static SinkPlugin {
        match self.mutant.map(|mutant| &mutant.seam) {
            Some(Seam::Plugin(plugin)) => plugin,
            _ => &PLUGIN,
        }
    }
}

/// The key of [`World`] in the pool.
pub(super) const WORLD: &str = "the reference broker";

/// What the fixture put into the host's pool.
pub(super) fn world(services: &HostServices) -> Result<Arc<World>, Problems> {
    services
        .pool()
        .get_or_try_create::<World, Problems>(WORLD, || {
            let mut problems = Problems::new();
            problems.add(
                "kind",
                "the reference broker is there only within its fixture",
            );
            Err(problems)
        })
}

pub(super) fn build(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let world = world(services)?;
    match world.mutant.map(|mutant| &mutant.seam) {
        Some(Seam::Build(build)) => build(options, services, &|options| {
            honest(options, services, &world)
        }),
        _ => honest(options, services, &world),
    }
}

fn honest(
    options: &Value,
    services: &HostServices,
    world: &World,
) -> Result<Arc<dyn Sink>, Problems> {
    let mut config = ReferenceConfig::from_options(options, services)?;
    config.is_observed = !world.is_bare;
    config.vault = config.asks_vault.then(|| Arc::clone(&world.broker));
    let broker: Arc<dyn Wire> = Arc::clone(&world.broker) as Arc<dyn Wire>;
    let seam = world.mutant.map(|mutant| &mutant.seam);
    let wire = match seam {
        Some(Seam::Wire(mutate)) => mutate(broker, &config),
        _ => broker,
    };
    let sink = ReferenceSink::new(config.clone(), Arc::clone(&wire), services);
    let sink: Arc<dyn Sink> = match world.is_bare {
        true => Arc::new(Bare(Arc::new(sink))),
        false => Arc::new(sink),
    };
    Ok(match seam {
        Some(Seam::Sink(mutate)) => mutate(
            sink,
            Parts {
                config,
                wire,
                services: services.clone(),
            },
        ),
        _ => sink,
    })
}
