//! What is logged, in a process of its own: other tests would log too.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "shared with the other tests")]
#[path = "it/raw.rs"]
mod raw;

use std::io;
use std::sync::{Arc, Mutex};

use dispatch_api::{DeliveryContext, Envelope, HostServices, Sink as _};
use sink_sqs::{SqsSink, SqsSinkConfig};

use crate::raw::{RawServer, Then, answer};

const SECRET: &str = "canarySecretKey";
const TOKEN: &str = "canarySessionToken";
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
async fn a_log_at_its_loudest_shows_no_credential_and_no_payload() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let refusal = format!(r#"{{"__type":"AccessDenied","message":"{TOKEN} {SECRET} {PAYLOAD}"}}"#);
    let services = HostServices::new();
    let id = services.new_envelope_id();
    for then in [
        Then::Close,
        Then::Answer(answer("200 OK", "", "{}")),
        Then::Answer(answer("403 Forbidden", "", &refusal)),
    ] {
        let server = RawServer::start(then).await;
        let config = SqsSinkConfig::builder(server.queue_url(), "us-east-1")
            .credentials("AKID", SECRET)
            .session_token(TOKEN)
            .build(&services)
            .unwrap();
        let sink = SqsSink::new(config, &services).unwrap();
        let envelope = Envelope::new(id, "harbor", 0, PAYLOAD);
        sink.deliver(&envelope, &DeliveryContext::direct())
            .await
            .unwrap_err();
        let request = server.requests().concat();
        assert!(request.contains(TOKEN) && request.contains(ENCODED));
    }

    let shown = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(shown.contains("signing"), "nothing was logged: {shown}");
    for forbidden in [SECRET, TOKEN, PAYLOAD, ENCODED] {
        assert!(!shown.contains(forbidden), "{forbidden} in {shown}");
    }
}
