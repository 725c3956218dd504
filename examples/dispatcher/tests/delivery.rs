//! One delivery: its pauses, and what is left of it when the host stops.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, EnvelopeId, Guarantees, HeaderForwarding, HostServices,
    NamedSink, Outcome, Problems, Receipt, Registry, RetryPolicy, RouteTable, Sink, SinkError,
    SinkPlugin, TenantRoutes,
};
use dispatcher::{Deliverer, Journey, Stop, Turn};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Refuses the first attempt of a hook of `fails`, and answers nothing else.
#[derive(Debug)]
struct Moody;

#[async_trait]
impl Sink for Moody {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        if envelope.source_id() == "fails" && ctx.attempt_number() == NonZeroU32::MIN {
            let error = SinkError::transient(Outcome::NotStored, "Busy", "come back later");
            return Err(error);
        }
        std::future::pending().await
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(true)
    }

    async fn drain(&self, _: Instant) -> DrainReport {
        DrainReport::default()
    }
}

/// Delivers to one sink, one hook at a time.
fn deliverer(stop: Stop, retrying_per_sink: Option<NonZeroUsize>) -> Arc<Deliverer> {
    fn build(_: &Value, _: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
        Ok(Arc::new(Moody))
    }
    static PLUGIN: SinkPlugin = SinkPlugin::new("moody", "for tests", || json!({}), build);
    let services = HostServices::new().with_sink_concurrency(NonZeroUsize::MIN);
    let built = Registry::with([&PLUGIN])
        .unwrap()
        .build("moody", &json!({}), &services)
        .unwrap();
    let main = NamedSink::new("main", built);
    let mut table = RouteTable::new();
    for source in ["fails", "hangs"] {
        table = table.with_source(source, [main.clone()], HeaderForwarding::Default);
    }
    let routes = TenantRoutes::new(table);
    let retry = RetryPolicy::default();
    let deliverer = Deliverer::new(routes, retry, services, None, stop);
    Arc::new(deliverer.with_retrying_per_sink(retrying_per_sink))
}

fn hook(source: &str) -> Journey {
    Journey::new(Envelope::new(EnvelopeId::v7(1, &[0; 10]), source, 0, "{}"))
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_a_later_attempt_begins_leaves_the_error_of_the_one_before() {
    let stop = Stop::new();
    let deliverer = deliverer(stop.clone(), None);
    let spawn = |source| {
        let deliverer = Arc::clone(&deliverer);
        tokio::spawn(async move { deliverer.deliver(&hook(source), "main", Turn::free()).await })
    };
    let failing = spawn("fails");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        deliverer.waiting(),
        1,
        "in the pause after its first attempt"
    );
    // Takes the only place, so that the second attempt cannot begin.
    let hanging = spawn("hangs");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(deliverer.waiting(), 0, "the pause is over");
    assert!(!failing.is_finished());

    stop.request(Instant::now() + Duration::from_secs(5));
    let verdict = failing.await.unwrap();
    assert_eq!(verdict.result.unwrap_err().code(), "Busy");
    assert_eq!((verdict.attempts, verdict.outcome), (1, Outcome::NotStored));
    let verdict = hanging.await.unwrap();
    assert_eq!(verdict.result.unwrap_err().code(), "Interrupted");
    assert_eq!((verdict.attempts, verdict.outcome), (1, Outcome::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_first_attempt_begins_says_that_nothing_was_attempted() {
    let stop = Stop::new();
    let deliverer = deliverer(stop.clone(), None);
    stop.request(Instant::now() + Duration::from_secs(5));
    let verdict = deliverer
        .deliver(&hook("hangs"), "main", Turn::free())
        .await;
    assert_eq!(verdict.result.unwrap_err().code(), "Interrupted");
    assert_eq!((verdict.attempts, verdict.outcome), (0, Outcome::NotStored));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_of_a_sink_a_refused_hook_is_given_up_with_its_error() {
    let deliverer = deliverer(Stop::new(), Some(NonZeroUsize::MIN));
    let spawn = || {
        let deliverer = Arc::clone(&deliverer);
        tokio::spawn(async move {
            deliverer
                .deliver(&hook("fails"), "main", Turn::free())
                .await
        })
    };
    let waiting = spawn();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(deliverer.waiting(), 1);
    let one_more = spawn().await.unwrap();
    assert_eq!(one_more.result.unwrap_err().code(), "Busy");
    assert_eq!(one_more.attempts, 1);

    // Whoever leaves leaves a place.
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let next = spawn();
    sleep(Duration::from_millis(1)).await;
    assert!(!next.is_finished());
    assert_eq!(deliverer.waiting(), 1);
}
