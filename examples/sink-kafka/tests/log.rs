//! What is logged, in a process of its own: librdkafka's threads log too, and only a
//! subscriber of the whole process hears them.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "shared with the other tests")]
#[path = "it/support.rs"]
mod support;

use std::io;
use std::sync::{Arc, Mutex};

use dispatch_api::Sink as _;
use serde_json::json;

use crate::support::{Cluster, ctx, envelope_of, sink};

const SECRET: &str = "canarySecret";
const PAYLOAD: &str = "canaryPayload";
/// How the payload travels, less what depends on its end.
const ENCODED: &str = "Y2FuYXJ5UGF5bG9hZ";

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn librdkafka_at_its_loudest_logs_no_credential_and_no_payload() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let cluster = Cluster::start();
    let plain = json!({"properties": {"debug": "all", "sasl.password": SECRET}});
    let (envelope, ctx) = (envelope_of(PAYLOAD), ctx());
    let accepted = cluster.sink(&plain);
    accepted.deliver(&envelope, &ctx).await.unwrap();

    let authenticated = json!({"timeout_ms": 2_000, "properties": {
        "debug": "all", "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
        "sasl.username": "u", "sasl.password": SECRET,
    }});
    let refused = sink(&cluster.mock.bootstrap_servers(), &authenticated);
    refused.deliver(&envelope, &ctx).await.unwrap_err();

    let shown = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // Both speak from threads of librdkafka.
    for heard in ["ProduceRequest", "sasl.password"] {
        assert!(shown.contains(heard), "{heard} is not in {shown}");
    }
    for forbidden in [SECRET, PAYLOAD, ENCODED] {
        let line = shown.lines().find(|line| line.contains(forbidden));
        assert_eq!(line, None, "{forbidden}");
    }
}
