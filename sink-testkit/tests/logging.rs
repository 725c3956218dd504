//! What a server writes to the log. This is a binary of its own: whether a place in the code logs at all is settled
//! once for a process, and other tests would settle it without a subscriber.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing it did not expect"
)]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::json;
use sink_testkit::sqs::SqsServer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the events of this crate as lines of text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sink_testkit")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0
            .lock()
            .unwrap()
            .push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_request_is_one_line_of_debug_without_its_body_or_signature() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let server = SqsServer::builder()
        .verify_signatures(false)
        .start()
        .await
        .unwrap();
    server.create_queue("q", []).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (target, queue, status) in [
        ("AmazonSQS.SendMessage", "q", 200),
        ("AmazonSQS.ReceiveMessage", "none", 400),
    ] {
        let body = json!({ "QueueUrl": queue, "MessageBody": "the body" });
        let request = client
            .post(server.endpoint())
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", target)
            .header("authorization", "the signature")
            .body(body.to_string());
        assert_eq!(request.send().await.unwrap().status(), status);
    }
    let lines = lines.0.lock().unwrap();
    let expected = [
        "message=request operation=\"SendMessage\" status=200 connection=1 faulted=false ",
        "message=request operation=\"ReceiveMessage\" status=400 connection=1 faulted=false ",
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|line| (Level::DEBUG, (*line).to_owned()))
        .collect();
    assert_eq!(*lines, expected);
}
