//! No public type of the host shows a secret or a payload in its `Debug`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::fmt::Debug;

use dispatch_api::{HostServices, Registry, TenantRoutes};
use dispatcher::{Config, Deliverer, Hook, Input, Journey, Stop, Turn};
use tokio::io::BufReader;

const CANARY: &str = "canary-5e1f";

fn check(shown: &[&dyn Debug]) {
    for value in shown {
        let text = format!("{value:?} {value:#?}");
        assert!(!text.contains(CANARY), "{text}");
        // The bytes of a line, as a list of numbers, are no better.
        assert!(!text.contains("99, 97, 110, 97"), "{text}");
    }
}

#[tokio::test]
async fn neither_secrets_nor_payloads_are_shown() {
    let config = format!(
        r#"
[sinks.main]
kind = "sqs"
queue_url = "http://127.0.0.1:9/000000000000/hooks"
region = "us-east-1"
access_key_id = "AKID"
secret_access_key = "{CANARY}"
session_token = "{CANARY}"
[sources.github]
sinks = ["main"]
"#
    );
    let line = format!(
        r#"{{"source_id":"github","body":"{CANARY}","headers":[["Authorization","{CANARY}"]]}}"#
    );
    let registry = Registry::linked().unwrap();
    let services = HostServices::new();
    let config = Config::parse(&config, &registry, services.clone()).unwrap();
    let hook = Hook::parse(line.as_bytes(), &services).unwrap();
    let mut input = Input::new(BufReader::new(std::io::Cursor::new(line)));
    let read = input.next().await.unwrap().unwrap();
    check(&[&config, &hook, &input, &read]);

    let deliverer = Deliverer::new(
        TenantRoutes::new(config.routes),
        config.retry,
        config.services,
        config.origin,
        Stop::new(),
    );
    let receivers = deliverer.receivers(&hook.envelope).unwrap();
    let journey = Journey::new(hook.envelope);
    let stop = Stop::new();
    stop.request(tokio::time::Instant::now());
    let verdict = deliverer.deliver(&journey, "gone", Turn::free()).await;
    assert_eq!(verdict.result.as_ref().unwrap_err().code(), "RouteRemoved");
    check(&[&deliverer, &receivers, &journey, &verdict]);
}
