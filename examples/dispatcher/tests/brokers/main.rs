//! Every sink that the host links, at once: what they store, and a tenant that moves from
//! one to the next.
//!
//! The stream needs the program `nats-server`, the topic the feature `kafka`. A leg that is
//! not there is skipped, which is printed past the capture of the test harness, and
//! `REQUIRE_LIVE=1` makes that a failure.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]

#[cfg(feature = "kafka")]
#[path = "../../../sink-kafka/tests/conformance/frame.rs"]
mod frame;
#[path = "../../../sink-nats/tests/it/support/server.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the tests of the sink"
)]
mod nats_server;
mod places;
#[cfg(feature = "kafka")]
mod relay;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    ClaimRef, Content, DeliveryContext, DrainReport, Envelope, HeaderField, HostServices, Message,
    Registry, TenantRoutes,
};
use dispatcher::{Config, Deliverer, Journey, Stop, Turn};
use places::{Place, Queue, Stored, places};
use tokio::time::Instant;

fn envelope(body: impl Into<Vec<u8>>) -> Envelope {
    let id = HostServices::new().new_envelope_id();
    Envelope::new(id, "github", 1_767_225_600_123, body.into())
        .with_tenant("acme")
        .with_request("POST", "/hooks/github")
        .with_content_type("application/json")
}

/// What can be different about a message, with words for it.
fn deliveries() -> Vec<(&'static str, Envelope, DeliveryContext)> {
    let first = || DeliveryContext::attempt(std::num::NonZeroU32::MIN);
    let claim: ClaimRef = "urn:ankusa:claim:v1:acme:01KDVDNA3V24H36H2NCSVRG000"
        .parse()
        .unwrap();
    let headers = [
        HeaderField::new("X-GitHub-Event", "push"),
        HeaderField::new("X-Twice", "a"),
        HeaderField::new("x-twice", "b, \"c\" \u{e9}\u{1f6a2}"),
        HeaderField::new("Authorization", "Bearer never-sent"),
    ];
    vec![
        ("inline", envelope(r#"{"ref":"main"}"#), first()),
        ("an empty body", envelope(""), first()),
        (
            "every byte",
            envelope((0..=255).collect::<Vec<u8>>()),
            first(),
        ),
        ("headers", envelope("{}").with_headers(headers), first()),
        (
            "everything optional",
            envelope("{}").with_dedupe_key("delivery 7").with_trace(
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                Some("rojo=00f067aa0ba902b7".to_owned()),
            ),
            first(),
        ),
        ("a replay", envelope("{}"), first().with_replay_id("rp-1")),
        (
            "a claim ticket",
            envelope(vec![b'x'; 4_096]),
            first().with_claim(claim),
        ),
    ]
}

#[tokio::test]
async fn every_sink_stores_the_same_bytes_and_the_same_attributes() {
    const INLINE_MAX: usize = 1_024;
    let deliveries = deliveries();
    let expected: Vec<Stored> = deliveries
        .iter()
        .map(|(_, envelope, ctx)| {
            let inline_max = NonZeroUsize::new(INLINE_MAX).unwrap();
            let message = Message::for_delivery(envelope, ctx, inline_max).unwrap();
            let attributes = message.attributes().into_iter();
            Stored {
                attributes: attributes
                    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
                    .collect(),
                body: message.encode().into_bytes(),
            }
        })
        .collect();
    let registry = Registry::linked().unwrap();
    for place in places().await {
        let options = format!("{}inline_max_bytes = {INLINE_MAX}\n", place.options());
        let mut options: serde_json::Value = toml::from_str(&options).unwrap();
        options.as_object_mut().unwrap().remove("kind");
        let sink = registry
            .build(place.kind(), &options, &HostServices::new())
            .unwrap()
            .sink;
        for (label, envelope, ctx) in &deliveries {
            let answer = sink.deliver(envelope, ctx).await;
            assert!(answer.is_ok(), "{}: {label}: {answer:?}", place.kind());
        }
        let stored = place.stored().await;
        assert_eq!(stored.len(), expected.len(), "{}", place.kind());
        for ((label, ..), (stored, expected)) in deliveries.iter().zip(stored.iter().zip(&expected))
        {
            assert!(stored.body == expected.body, "{}: {label}", place.kind());
            assert_eq!(
                stored.attributes,
                expected.attributes,
                "{}: {label}",
                place.kind()
            );
        }
    }
}

/// The host's configuration while `acme` has its hooks delivered there.
fn config(main: &Queue, acme: &dyn Place) -> Config {
    let text = format!(
        "[sinks.main]\n{}\n[sinks.acme]\n{}\n\
         [sources.github]\nsinks = [\"main\"]\n\n[tenants.acme]\nsinks = [\"acme\"]\n",
        main.options(),
        acme.options(),
    );
    Config::parse(&text, &Registry::linked().unwrap(), HostServices::new()).unwrap()
}

/// Delivers one hook of this tenant as the host does, and returns its body.
async fn deliver(host: &Deliverer, tenant: &str, body: String) -> String {
    let journey = Journey::new(envelope(body.clone()).with_tenant(tenant));
    let receivers = host.receivers(&journey.envelope).unwrap();
    let [receiver] = &*receivers else {
        panic!("{tenant} has {} sinks", receivers.len());
    };
    let verdict = host.deliver(&journey, &receiver.sink, Turn::free()).await;
    assert!(verdict.result.is_ok(), "{body}: {:?}", verdict.result);
    body
}

/// How often each hook is stored there, by its body.
async fn arrived(place: &dyn Place) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for stored in place.stored().await {
        let message = Message::decode(&stored.body).unwrap();
        let Content::Inline(body) = &message.content else {
            panic!("no body is so large");
        };
        let body = String::from_utf8(body.to_vec()).unwrap();
        *counts.entry(body).or_default() += 1;
    }
    counts
}

fn once(bodies: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    bodies.into_iter().map(|body| (body, 1)).collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// While the old destination answers nobody, the configuration moves the tenant to the next:
/// what was on its way finishes there, and what comes later arrives at the new one although
/// the old one is still held.
#[tokio::test]
async fn a_tenant_moves_from_broker_to_broker_under_traffic() {
    const HELD: usize = 4;
    const LATER: usize = 8;
    let main = Queue::new("main").await;
    let mut places = places().await;
    // The last move leads to another queue, so that the one before it is left as well.
    places.push(Box::new(Queue::new("last").await));
    let first = config(&main, &*places[0]);
    let host = Arc::new(Deliverer::new(
        TenantRoutes::new(first.routes),
        first.retry,
        first.services,
        None,
        Stop::new(),
    ));

    let mut expected = vec![Vec::new(); places.len()];
    let mut others = Vec::new();
    let mut reports = Vec::new();
    for at in 0..places.len() - 1 {
        let warm = deliver(&host, "acme", format!("warm {at}")).await;
        expected[at].push(warm);
        let next = config(&main, &*places[at + 1]);
        places[at].hold();
        let mut held = tokio::task::JoinSet::new();
        for number in 0..HELD {
            let host = Arc::clone(&host);
            held.spawn(async move { deliver(&host, "acme", format!("held {at} {number}")).await });
        }
        // Each is polled, and so holds the sink that it was routed to.
        tokio::task::yield_now().await;
        let swap = tokio::spawn({
            let host = Arc::clone(&host);
            async move { host.routes().swap(next.routes, soon()).await }
        });
        tokio::task::yield_now().await;
        for number in 0..LATER {
            let later = deliver(&host, "acme", format!("later {at} {number}")).await;
            expected[at + 1].push(later);
            others.push(deliver(&host, "globex", format!("other {at} {number}")).await);
        }
        assert!(!swap.is_finished(), "the drain waits for what is held");
        places[at].release();
        expected[at].extend(held.join_all().await);
        reports.push(swap.await.unwrap());
    }

    for report in &reports {
        let answered = DrainReport::new(HELD as u64, 0);
        assert_eq!(report.drained, [("acme".to_owned(), answered)]);
    }
    let end = host.routes().drain(soon()).await;
    assert_eq!(end.total(), DrainReport::new(0, 0));
    for (place, expected) in places.iter().zip(expected) {
        let kind = place.kind();
        assert_eq!(arrived(&**place).await, once(expected), "{kind}");
    }
    assert_eq!(arrived(&main).await, once(others));
}
