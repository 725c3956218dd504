//! No public type shows a secret or a payload in its `Debug`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{
    BatchEntry, ClaimId, ClaimRef, Content, DeliveryContext, DrainReport, Envelope, EnvelopeId,
    Fingerprint, Guarantees, HeaderField, HeaderForwarding, HostServices, InFlight, Message,
    NamedSink, Problems, Receipt, Registry, RouteTable, Sink, SinkError, SinkKey, SinkPlugin,
    TenantRoutes, read_options,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const CANARY: &str = "canary-5e1f";

#[derive(Debug, Default)]
struct Quiet(InFlight);

#[async_trait]
impl Sink for Quiet {
    async fn deliver(&self, _: &Envelope, _: &DeliveryContext) -> Result<Receipt, SinkError> {
        Ok(Receipt::new())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(false)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.0.drain(deadline).await
    }
}

#[derive(Debug, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
struct Options {
    number: Option<u64>,
}

fn envelope() -> Envelope {
    let id = EnvelopeId::v7(0, &[0; 10]);
    Envelope::new(id, "github", 0, CANARY)
        .with_headers([HeaderField::new("Authorization", CANARY)])
        .with_content_type("text/plain")
}

/// A claim reference whose signature holds the canary.
fn signed_claim() -> ClaimRef {
    let id = ClaimId::new(0, 0, 0);
    let signature = format!("{CANARY}{}", "s".repeat(43 - CANARY.len()));
    format!("urn:ankusa:claim:v2:acme:{id}:1798761600:{signature}")
        .parse()
        .unwrap()
}

fn check(shown: &[&dyn Debug]) {
    for value in shown {
        let text = format!("{value:?} {value:#?}");
        assert!(!text.contains(CANARY), "{text}");
        // A body's bytes, as a list of numbers, are no better.
        assert!(!text.contains("99, 97, 110, 97"), "{text}");
    }
}

#[test]
fn neither_secrets_nor_payloads_are_shown() {
    static PLUGIN: SinkPlugin = SinkPlugin::new(
        "quiet",
        "for tests",
        || json!({}),
        |_, _| Ok(Arc::new(Quiet::default()) as Arc<dyn Sink>),
    )
    .with_credentials(|_, services| {
        Fingerprint::of([services.env("SECRET").unwrap_or_default().as_bytes()])
    });
    let services = HostServices::new().with_environment(|_| Some(CANARY.to_owned()));
    let options = json!({"secret_access_key": CANARY});
    let registry = Registry::with([&PLUGIN]).unwrap();
    let built = registry.build("quiet", &options, &services).unwrap();
    let key = SinkKey::new("quiet", &options, Fingerprint::of([CANARY.as_bytes()]));
    let named = NamedSink::new("main", built.clone());
    let table = RouteTable::new().with_source("github", [named.clone()], HeaderForwarding::Default);
    let routes = TenantRoutes::new(table.clone());
    let selection = routes.select("github", None).unwrap();

    let envelope = envelope();
    let ctx = DeliveryContext::direct().with_claim(signed_claim());
    let message = Message::for_delivery(&envelope, &ctx, std::num::NonZeroUsize::MAX).unwrap();
    let bytes = message.encode();
    let decoded = Message::decode(bytes.as_bytes()).unwrap();
    let mut problems = Problems::new();
    let read: Options = read_options(&json!({"number": CANARY, "other": CANARY}), &mut problems);
    assert_eq!(problems.iter().count(), 2, "{problems}");
    let unread: Option<Value> = None;

    check(&[
        &services,
        &registry,
        &built,
        &key,
        &named,
        &table,
        &routes,
        &selection,
        &envelope,
        &envelope.headers(),
        &ctx,
        &message,
        &decoded,
        &decoded.content,
        &Content::Claim(signed_claim()),
        &signed_claim(),
        &problems,
        &read,
        &unread,
        &BatchEntry::new("acme", 1, ()),
    ]);
    assert!(!problems.to_string().contains(CANARY), "{problems}");
}
