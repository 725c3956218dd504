//! The host as a library: what happens outside a sink harms one delivery.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops here"
)]

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{ClaimCheck, ClaimError, ClaimRef, Envelope, HostServices, Registry, SinkError};
use dispatcher::{Config, Input, Output, Stop, send};
use support::{hooks, one_queue, server_with, stored_bodies};
use tokio::io::BufReader;

/// A store with a fault of its own.
#[derive(Debug)]
struct Panics;

#[async_trait]
impl ClaimCheck for Panics {
    async fn check_in(&self, _: &Envelope) -> Result<ClaimRef, SinkError> {
        panic!("planned")
    }

    async fn fetch(&self, _: &ClaimRef) -> Result<Bytes, ClaimError> {
        Err(ClaimError::NotFound)
    }
}

#[tokio::test]
async fn a_panic_of_the_host_is_a_dead_letter_and_the_other_hooks_are_delivered() {
    let server = server_with(&["hooks"]).await;
    let services = HostServices::new().with_claim_check(Arc::new(Panics));
    let config = one_queue(&server.queue_url("hooks"));
    let config = Config::parse(&config, &Registry::linked().unwrap(), services).unwrap();
    let body = "x".repeat(65_537);
    let large = format!("{{\"source_id\":\"github\",\"body\":\"{body}\"}}\n");
    let input = hooks("acme", 1) + &large + &hooks("acme", 1);
    let input = Input::new(BufReader::new(std::io::Cursor::new(input)));

    let summary = send(config, input, Output::default(), Stop::new()).await;
    assert_eq!((summary.hooks, summary.started), (3, 3));
    assert_eq!((summary.delivered(), summary.dead_lettered()), (2, 1));
    assert!(!summary.is_complete());
    let told = summary.to_string();
    assert!(told.contains("transient: HostPanicked: "), "{told}");
    assert_eq!(stored_bodies(&server, "hooks"), ["hook 0", "hook 0"]);
}
