//! Routes are swapped while deliveries run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, DeliveryContext, DrainReport,
    Envelope, EnvelopeId, Fingerprint, Flush, Guarantees, HeaderForwarding, HostServices, InFlight,
    NamedSink, Problems, QueueFull, Receipt, Registry, RouteLease, RouteTable, Sink, SinkError,
    SinkPlugin, TenantRoutes,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Keeps what it is given, and notes what reached it after its drain.
#[derive(Debug)]
struct Memory {
    owner: String,
    in_flight: InFlight,
    pause: Duration,
    stored: Mutex<Vec<EnvelopeId>>,
    foreign: AtomicU64,
}

#[async_trait]
impl Sink for Memory {
    async fn deliver(
        &self,
        envelope: &Envelope,
        _: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _guard = self.in_flight.enter()?;
        if envelope.tenant_id() != Some(&self.owner) {
            self.foreign.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(self.pause).await;
        self.stored.lock().unwrap().push(envelope.id());
        Ok(Receipt::new())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(true)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}

/// Sends through a batcher, which lingers for a minute.
#[derive(Debug)]
struct Batching {
    batcher: Batcher<Wire>,
    in_flight: InFlight,
}

/// Takes a second for a request.
struct Wire(mpsc::UnboundedSender<(Instant, usize)>);

impl BatchSender for Wire {
    type Entry = ();

    async fn send(&self, entries: Vec<()>, _: Flush) -> Vec<Answer> {
        self.0.send((Instant::now(), entries.len())).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        entries.iter().map(|()| Ok(Receipt::new())).collect()
    }
}

#[async_trait]
impl Sink for Batching {
    async fn deliver(&self, _: &Envelope, _: &DeliveryContext) -> Result<Receipt, SinkError> {
        let _guard = self.in_flight.enter()?;
        let full = |full: QueueFull| full.into_error(Duration::ZERO);
        let entry = BatchEntry::new("acme", 1, ());
        self.batcher.submit(entry, full).await
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(true)
    }

    fn flush(&self) {
        self.batcher.flush();
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}

fn memory(owner: &str, pause: Duration) -> Arc<Memory> {
    Arc::new(Memory {
        owner: owner.to_owned(),
        in_flight: InFlight::new(),
        pause,
        stored: Mutex::default(),
        foreign: AtomicU64::new(0),
    })
}

/// A sink as a host gets it: built by name from options.
fn named(name: &str, sink: &Arc<Memory>, options: Value, secret: &str) -> NamedSink {
    NamedSink::new(name, built(Arc::<Memory>::clone(sink), &options, secret))
}

fn built(sink: Arc<dyn Sink>, options: &Value, secret: &str) -> dispatch_api::BuiltSink {
    static PLUGIN: SinkPlugin = SinkPlugin::new("memory", "for tests", || json!({}), build)
        .with_credentials(|_, services| {
            Fingerprint::of([services.env("SECRET").unwrap_or_default().as_bytes()])
        });
    fn build(_: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
        let sink = services
            .pool()
            .get_or_try_create("sink", || Err::<Arc<dyn Sink>, _>(Problems::new()))?;
        Ok(Arc::<dyn Sink>::clone(&sink))
    }
    let secret = secret.to_owned();
    let services = HostServices::new().with_environment(move |_| Some(secret.clone()));
    let _shared = services
        .pool()
        .get_or_try_create("sink", || Ok::<_, Problems>(sink))
        .unwrap();
    Registry::with([&PLUGIN])
        .unwrap()
        .build("memory", options, &services)
        .unwrap()
}

fn envelope(number: u64, tenant: &str) -> Envelope {
    let id = EnvelopeId::v7(number, &[0; 10]);
    Envelope::new(id, "github", 0, "{}").with_tenant(tenant)
}

fn ctx() -> DeliveryContext {
    DeliveryContext::attempt(NonZeroU32::MIN)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_swaps_under_four_delivering_tasks_lose_and_misplace_nothing() {
    let fallback = memory("nobody", Duration::ZERO);
    let tenants = ["acme", "globex", "initech", "umbrella"];
    let mut every_sink: Vec<Arc<Memory>> = Vec::new();
    let mut table = RouteTable::new().with_source(
        "github",
        [named("main", &fallback, json!({"queue": "main"}), "")],
        HeaderForwarding::Default,
    );
    for tenant in tenants {
        let sink = memory(tenant, Duration::ZERO);
        table = table.with_tenant(tenant, [named(tenant, &sink, json!({"queue": tenant}), "")]);
        every_sink.push(sink);
    }
    let routes = Arc::new(TenantRoutes::new(table));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));

    let workers: Vec<_> = (0..4_u64)
        .map(|worker| {
            let (routes, stop) = (Arc::clone(&routes), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut sent, mut number) = (Vec::new(), worker << 32);
                while !stop.load(Ordering::Relaxed) {
                    for tenant in tenants {
                        number += 1;
                        let envelope = envelope(number, tenant);
                        let selection = routes.select("github", Some(tenant)).unwrap();
                        assert_eq!(selection.leases.len(), 1);
                        selection.leases[0]
                            .deliver(&envelope, &ctx())
                            .await
                            .expect("a chosen sink finishes what it was chosen for");
                        sent.push(envelope.id());
                    }
                    tokio::task::yield_now().await;
                }
                sent
            })
        })
        .collect();

    let mut drained = DrainReport::default();
    for swap in 0..200 {
        let tenant = tenants[swap % tenants.len()];
        let sink = memory(tenant, Duration::ZERO);
        let new = named(tenant, &sink, json!({"queue": tenant, "swap": swap}), "");
        every_sink.push(sink);
        let report = routes.swap_tenant(tenant, Some(vec![new]), soon()).await;
        assert_eq!(report.drained.len(), 1, "the one sink that was replaced");
        assert_eq!(report.drained[0].0, tenant);
        drained = drained.and(report.total());
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);

    let mut sent = Vec::new();
    for worker in workers {
        sent.extend(worker.await.unwrap());
    }
    let mut stored = Vec::new();
    for sink in &every_sink {
        assert_eq!(sink.foreign.load(Ordering::Relaxed), 0, "{}", sink.owner);
        stored.extend(sink.stored.lock().unwrap().iter().copied());
    }
    sent.sort_unstable();
    stored.sort_unstable();
    assert!(sent.len() > 200, "the load ran beside the swaps");
    assert_eq!(stored, sent);
    assert!(drained.is_complete());
    assert_eq!(fallback.stored.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_in_flight_finishes_on_the_old_sink_and_the_swap_waits_for_it() {
    let old = memory("acme", Duration::from_secs(3));
    let new = memory("acme", Duration::ZERO);
    let routes = Arc::new(TenantRoutes::new(
        RouteTable::new()
            .with_source("github", [], HeaderForwarding::Default)
            .with_tenant("acme", [named("old", &old, json!({"queue": "old"}), "")]),
    ));
    let (started, running) = tokio::sync::oneshot::channel();
    let delivering = tokio::spawn({
        let routes = Arc::clone(&routes);
        async move {
            let selection = routes.select("github", Some("acme")).unwrap();
            started.send(()).unwrap();
            selection.leases[0]
                .deliver(&envelope(1, "acme"), &ctx())
                .await
        }
    });
    running.await.unwrap();

    let began = Instant::now();
    let replacement = named("new", &new, json!({"queue": "new"}), "");
    let report = routes
        .swap_tenant("acme", Some(vec![replacement]), soon())
        .await;

    assert_eq!(report.drained, [("old".to_owned(), DrainReport::new(1, 0))]);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    delivering.await.unwrap().unwrap();
    assert_eq!(old.stored.lock().unwrap().len(), 1);
    let selection = routes.select("github", Some("acme")).unwrap();
    assert_eq!(selection.leases[0].name(), "new");
}

#[tokio::test(start_paused = true)]
async fn a_swap_ends_at_its_deadline_and_counts_what_is_unanswered() {
    let old = memory("acme", Duration::from_secs(60));
    let routes = TenantRoutes::new(
        RouteTable::new()
            .with_source("github", [], HeaderForwarding::Default)
            .with_tenant("acme", [named("old", &old, json!({"queue": "old"}), "")]),
    );
    let held = routes.select("github", Some("acme")).unwrap();
    let report = routes
        .swap_tenant("acme", None, Instant::now() + Duration::from_secs(5))
        .await;
    assert_eq!(report.total(), DrainReport::new(0, 1));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_swap_lets_nothing_linger_that_waits_in_a_batch_or_comes_with_a_lease() {
    let (sent, mut requests) = mpsc::unbounded_channel();
    let mut settings = BatchSettings::default();
    settings.linger = Duration::from_secs(60);
    let sink = Arc::new(Batching {
        batcher: Batcher::new(Wire(sent), settings),
        in_flight: InFlight::new(),
    });
    let old = NamedSink::new("old", built(sink, &json!({"queue": "old"}), ""));
    let routes = TenantRoutes::new(RouteTable::new().with_source(
        "github",
        [old],
        HeaderForwarding::Default,
    ));
    let lease = || routes.select("github", None).unwrap().leases.remove(0);
    let deliver = |lease: RouteLease, pause_ms: u64| {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            lease.deliver(&envelope(1, "acme"), &ctx()).await
        })
    };
    let waiting = [deliver(lease(), 0), deliver(lease(), 0)];
    let late = deliver(lease(), 105);
    tokio::task::yield_now().await;

    let began = Instant::now();
    let deadline = began + Duration::from_secs(5);
    let report = routes.swap(RouteTable::new(), deadline).await;

    assert_eq!(report.total(), DrainReport::new(3, 0));
    for delivery in waiting.into_iter().chain([late]) {
        delivery.await.unwrap().unwrap();
    }
    let at = |millis| began + Duration::from_millis(millis);
    assert_eq!(requests.recv().await, Some((at(0), 2)));
    assert_eq!(requests.recv().await, Some((at(110), 1)));
    assert!(requests.is_empty());
}

#[tokio::test]
async fn an_unchanged_sink_is_kept_across_a_reload_and_a_rotated_key_gives_a_new_one() {
    let first = memory("acme", Duration::ZERO);
    let table = |sink: &Arc<Memory>, secret: &str| {
        RouteTable::new().with_source(
            "github",
            [named("main", sink, json!({"queue": "main"}), secret)],
            HeaderForwarding::Default,
        )
    };
    let routes = TenantRoutes::new(table(&first, "key-1"));

    let rebuilt = memory("acme", Duration::ZERO);
    let report = routes.swap(table(&rebuilt, "key-1"), soon()).await;
    assert_eq!(report.drained, []);
    deliver_one(&routes).await.unwrap();
    assert_eq!(first.stored.lock().unwrap().len(), 1);
    assert_eq!(rebuilt.stored.lock().unwrap().len(), 0);

    let rotated = memory("acme", Duration::ZERO);
    let report = routes.swap(table(&rotated, "key-2"), soon()).await;
    assert_eq!(
        report.drained,
        [("main".to_owned(), DrainReport::new(0, 0))]
    );
    deliver_one(&routes).await.unwrap();
    assert_eq!(rotated.stored.lock().unwrap().len(), 1);
    let refused = first
        .deliver(&envelope(9, "acme"), &ctx())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "SinkClosed");
}

#[tokio::test]
async fn a_sink_that_another_tenant_still_uses_is_not_drained() {
    let shared = memory("acme", Duration::ZERO);
    let sink = named("shared", &shared, json!({"queue": "shared"}), "");
    let routes = TenantRoutes::new(
        RouteTable::new()
            .with_source("github", [], HeaderForwarding::Default)
            .with_tenant("acme", [sink.clone()])
            .with_tenant("globex", [sink]),
    );
    assert_eq!(routes.swap_tenant("globex", None, soon()).await.drained, []);
    let selection = routes.select("github", Some("acme")).unwrap();
    selection.leases[0]
        .deliver(&envelope(1, "acme"), &ctx())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_tenants_sinks_replace_the_sources_and_leave_its_headers_alone() {
    let main = memory("acme", Duration::ZERO);
    let own = memory("acme", Duration::ZERO);
    let only = HeaderForwarding::Only(vec!["x-event".to_owned()]);
    let routes = TenantRoutes::new(
        RouteTable::new()
            .with_source("github", [named("main", &main, json!(1), "")], only.clone())
            .with_tenant("acme", [named("own", &own, json!(2), "")]),
    );
    let names = |tenant| {
        let selection = routes.select("github", tenant).unwrap();
        assert_eq!(*selection.forward_headers, only);
        let names = selection.leases.iter().map(|lease| lease.name().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["main"]);
    assert_eq!(names(Some("globex")), ["main"]);
    assert_eq!(names(Some("acme")), ["own"]);
    assert!(routes.select("stripe", Some("acme")).is_none());
}

#[tokio::test]
async fn a_route_back_to_a_drained_sink_leads_nowhere_and_a_rebuilt_one_works() {
    let (first, second) = (
        memory("acme", Duration::ZERO),
        memory("acme", Duration::ZERO),
    );
    let a = named("a", &first, json!({"queue": "a"}), "");
    let b = named("b", &second, json!({"queue": "b"}), "");
    let table = |sink: &NamedSink| {
        RouteTable::new().with_source("github", [sink.clone()], HeaderForwarding::Default)
    };
    let routes = TenantRoutes::new(table(&a));
    routes.swap(table(&b), soon()).await;
    routes.swap(table(&a), soon()).await;
    assert!(routes.select("github", None).unwrap().leases.is_empty());

    let rebuilt = memory("acme", Duration::ZERO);
    let again = named("a", &rebuilt, json!({"queue": "a", "again": true}), "");
    routes.swap(table(&again), soon()).await;
    deliver_one(&routes).await.unwrap();
}

#[tokio::test]
async fn one_sink_can_be_held_without_the_others_of_its_route() {
    let (first, second) = (
        memory("acme", Duration::ZERO),
        memory("acme", Duration::ZERO),
    );
    let sinks = [
        named("a", &first, json!({"queue": "a"}), ""),
        named("b", &second, json!({"queue": "b"}), ""),
    ];
    let routes = TenantRoutes::new(RouteTable::new().with_source(
        "github",
        sinks,
        HeaderForwarding::Default,
    ));
    let held = routes.select_one("github", None, "b").unwrap();
    assert_eq!(held.leases.len(), 1);
    assert_eq!(held.leases[0].name(), "b");
    let report = routes.drain(Instant::now()).await;
    let of = |name: &str| {
        report
            .drained
            .iter()
            .find(|(sink, _)| sink == name)
            .unwrap()
            .1
    };
    assert_eq!(of("a"), DrainReport::new(0, 0));
    assert_eq!(of("b"), DrainReport::new(0, 1));
    assert!(routes.select_one("github", None, "b").is_none());
}

async fn deliver_one(routes: &TenantRoutes) -> Result<Receipt, SinkError> {
    let selection = routes.select("github", None).unwrap();
    selection.leases[0]
        .deliver(&envelope(1, "acme"), &ctx())
        .await
}
