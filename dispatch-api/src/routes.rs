//! Which sinks receive a hook, swapped while in use.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::drain::{DrainReport, InFlight, InFlightGuard};
use crate::headers::HeaderForwarding;
use crate::registry::{BuiltSink, SinkKey};
use crate::sink::Sink;

/// A sink under the name that a configuration gives it.
#[derive(Clone, Debug)]
pub struct NamedSink {
    name: Arc<str>,
    slot: Arc<Slot>,
}

/// One sink in use. Shared by every route that leads to it.
#[derive(Debug)]
struct Slot {
    key: SinkKey,
    sink: Arc<dyn Sink>,
    in_flight: InFlight,
}

impl NamedSink {
    /// Names a sink. Clone it to put the same sink into several routes.
    pub fn new(name: impl Into<Arc<str>>, built: BuiltSink) -> Self {
        Self {
            name: name.into(),
            slot: Arc::new(Slot {
                key: built.key,
                sink: built.sink,
                in_flight: InFlight::new(),
            }),
        }
    }

    /// The name used in routes, logs and metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Deref for NamedSink {
    type Target = dyn Sink;

    fn deref(&self) -> &Self::Target {
        &*self.slot.sink
    }
}

/// Who receives what: sinks by source, replaced for a tenant that has its own.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    sources: HashMap<String, SourceRoute>,
    tenants: HashMap<String, Arc<[NamedSink]>>,
}

#[derive(Clone, Debug)]
struct SourceRoute {
    sinks: Arc<[NamedSink]>,
    forward_headers: Arc<HeaderForwarding>,
}

impl RouteTable {
    /// No routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Routes the hooks of a source, and says which of their headers travel.
    #[must_use]
    pub fn with_source(
        mut self,
        source_id: impl Into<String>,
        sinks: impl IntoIterator<Item = NamedSink>,
        forward_headers: HeaderForwarding,
    ) -> Self {
        let route = SourceRoute {
            sinks: sinks.into_iter().collect(),
            forward_headers: Arc::new(forward_headers),
        };
        self.sources.insert(source_id.into(), route);
        self
    }

    /// Replaces the sinks of every source for one tenant.
    #[must_use]
    pub fn with_tenant(
        mut self,
        tenant_id: impl Into<String>,
        sinks: impl IntoIterator<Item = NamedSink>,
    ) -> Self {
        self.tenants
            .insert(tenant_id.into(), sinks.into_iter().collect());
        self
    }

    /// The tables' lists of sinks, each once per place.
    fn lists_mut(&mut self) -> impl Iterator<Item = &mut Arc<[NamedSink]>> {
        let sources = self.sources.values_mut().map(|route| &mut route.sinks);
        sources.chain(self.tenants.values_mut())
    }

    /// The sinks in use, each once, under the first name that leads to it.
    fn sinks(&self) -> HashMap<SinkKey, NamedSink> {
        let sources = self.sources.values().map(|route| &route.sinks);
        let mut sinks = HashMap::new();
        for named in sources
            .chain(self.tenants.values())
            .flat_map(|list| list.iter())
        {
            sinks
                .entry(named.slot.key.clone())
                .or_insert_with(|| named.clone());
        }
        sinks
    }

    /// Puts the sinks of `known` in the place of those with the same key.
    fn reuse(&mut self, known: &HashMap<SinkKey, NamedSink>) {
        for list in self.lists_mut() {
            *list = list
                .iter()
                .map(|named| NamedSink {
                    name: Arc::clone(&named.name),
                    slot: match known.get(&named.slot.key) {
                        Some(reused) => Arc::clone(&reused.slot),
                        None => Arc::clone(&named.slot),
                    },
                })
                .collect();
        }
    }
}

/// The routes of a host, in use.
///
/// [`TenantRoutes::select`] takes no lock. A swap takes effect at once for later
/// look-ups; deliveries that hold a [`RouteLease`] finish on the sink they chose.
#[derive(Debug)]
pub struct TenantRoutes {
    table: ArcSwap<RouteTable>,
    /// Held while a new table is made from the one in use.
    swapping: Mutex<()>,
}

impl TenantRoutes {
    /// Routes by this table. Sinks of equal key become one.
    #[must_use]
    pub fn new(mut table: RouteTable) -> Self {
        table.reuse(&table.sinks());
        Self {
            table: ArcSwap::from_pointee(table),
            swapping: Mutex::new(()),
        }
    }

    /// The sinks for a hook of this source and tenant, held until the leases are
    /// dropped. `None` when nobody receives this source's hooks.
    ///
    /// Hold a lease for one attempt, not over the pause to the next: a swap waits
    /// for it.
    #[must_use]
    pub fn select(&self, source_id: &str, tenant_id: Option<&str>) -> Option<Selection> {
        self.take(source_id, tenant_id, |_| true)
    }

    /// As [`TenantRoutes::select`], for the one sink of this name: the others are not
    /// held. The selection is empty when no route leads to it (any more).
    #[must_use]
    pub fn select_one(
        &self,
        source_id: &str,
        tenant_id: Option<&str>,
        sink: &str,
    ) -> Option<Selection> {
        self.take(source_id, tenant_id, |named| named.name() == sink)
    }

    fn take(
        &self,
        source_id: &str,
        tenant_id: Option<&str>,
        wanted: impl Fn(&NamedSink) -> bool,
    ) -> Option<Selection> {
        loop {
            let table = self.table.load();
            let route = table.sources.get(source_id)?;
            let sinks = tenant_id
                .and_then(|tenant| table.tenants.get(tenant))
                .unwrap_or(&route.sinks);
            let mut leases = Vec::with_capacity(sinks.len());
            let mut is_whole = true;
            for named in sinks.iter().filter(|named| wanted(named)) {
                match RouteLease::take(named) {
                    Some(lease) => leases.push(lease),
                    None => is_whole = false,
                }
            }
            // A sink that lets nobody in was swapped out after the table was loaded: the
            // new one is there already. Where the table is still the same, somebody else
            // drained the sink, and it is left out.
            if is_whole || Arc::ptr_eq(&table, &self.table.load()) {
                return Some(Selection {
                    leases,
                    forward_headers: Arc::clone(&route.forward_headers),
                });
            }
        }
    }

    /// Replaces all routes. See [`TenantRoutes::swap_tenant`].
    pub async fn swap(&self, table: RouteTable, deadline: Instant) -> SwapReport {
        self.swap_with(deadline, |_| table).await
    }

    /// Replaces one tenant's sinks, or with `None` lets the sources' sinks serve it
    /// again.
    ///
    /// Deliveries in flight finish on the sink they hold, later ones use the new. Those
    /// that wait for others in a batch wait no longer ([`Sink::flush`]).
    /// A sink whose key is in the new routes is kept as it is; one that no route
    /// leads to any more is drained, until the deadline at the latest. A drained sink
    /// takes nothing any more: build it anew to route to it again. Dropping
    /// the future leaves the new routes in place and the drain undone.
    pub async fn swap_tenant(
        &self,
        tenant_id: &str,
        sinks: Option<Vec<NamedSink>>,
        deadline: Instant,
    ) -> SwapReport {
        self.swap_with(deadline, |current| {
            let mut table = current.clone();
            match sinks {
                Some(sinks) => {
                    table.tenants.insert(tenant_id.to_owned(), sinks.into());
                }
                None => {
                    table.tenants.remove(tenant_id);
                }
            }
            table
        })
        .await
    }

    /// Drains every sink in use, and leaves no routes.
    pub async fn drain(&self, deadline: Instant) -> SwapReport {
        self.swap(RouteTable::new(), deadline).await
    }

    async fn swap_with(
        &self,
        deadline: Instant,
        make: impl FnOnce(&RouteTable) -> RouteTable,
    ) -> SwapReport {
        let replaced = {
            // The table is stored whole: a panic while it is made changes nothing.
            let _guard = self.swapping.lock().unwrap_or_else(PoisonError::into_inner);
            let current = self.table.load_full();
            let mut replaced = current.sinks();
            let mut table = make(&current);
            let mut known = table.sinks();
            for (key, sink) in &mut known {
                if let Some(kept) = replaced.remove(key) {
                    *sink = kept;
                }
            }
            table.reuse(&known);
            self.table.store(Arc::new(table));
            replaced
        };
        let drained = join_all(replaced.into_values().map(|named| async move {
            let Slot {
                in_flight, sink, ..
            } = &*named.slot;
            let routed = in_flight.drain_hurrying(deadline, || sink.flush()).await;
            let rest = sink.drain(deadline).await;
            // Both count the same deliveries; the sink may have more callers.
            let report = DrainReport::new(
                routed.answered.max(rest.answered),
                routed.unanswered.max(rest.unanswered),
            );
            (named.name.to_string(), report)
        }))
        .await;
        SwapReport { drained }
    }
}

/// What a swap drained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapReport {
    /// The sinks that no route leads to any more, by name.
    pub drained: Vec<(String, DrainReport)>,
}

impl SwapReport {
    /// The reports of all drained sinks together.
    #[must_use]
    pub fn total(&self) -> DrainReport {
        self.drained
            .iter()
            .fold(DrainReport::default(), |total, (_, report)| {
                total.and(*report)
            })
    }
}

/// The sinks of one hook.
#[derive(Debug)]
#[non_exhaustive]
pub struct Selection {
    /// The sinks, in the order of the configuration.
    pub leases: Vec<RouteLease>,
    /// Which headers travel.
    pub forward_headers: Arc<HeaderForwarding>,
}

/// A sink held for a delivery: a swap waits until it is dropped.
pub struct RouteLease {
    named: NamedSink,
    _guard: InFlightGuard,
}

impl RouteLease {
    fn take(named: &NamedSink) -> Option<Self> {
        Some(Self {
            _guard: named.slot.in_flight.try_enter()?,
            named: named.clone(),
        })
    }

    /// The name used in routes, logs and metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        self.named.name()
    }
}

impl Deref for RouteLease {
    type Target = dyn Sink;

    fn deref(&self) -> &Self::Target {
        &*self.named
    }
}

impl fmt::Debug for RouteLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RouteLease").field(&self.named.name).finish()
    }
}
