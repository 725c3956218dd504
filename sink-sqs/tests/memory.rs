//! What waits in a batcher weighs little more than its messages. A process of its own:
//! memory is measured for all of it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use dispatch_api::{DeliveryContext, Envelope, EnvelopeId, HostServices, Sink as _};
use sink_sqs::{SqsSink, SqsSinkConfig};
use sink_testkit::sqs::{Fault, FaultRule, Hold, Operation, SqsServer};

const MESSAGES: u64 = 4_096;
const BODY: usize = 32 * 1_024;

/// The resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}

fn envelope(number: u64, body: &Bytes) -> Envelope {
    Envelope::new(EnvelopeId::v7(number, &[0; 10]), "harbor", 5, body.clone())
        .with_tenant(format!("tenant-{}", number % 8))
}

#[tokio::test]
async fn four_thousand_waiting_messages_weigh_no_more_than_1_3_of_their_bytes() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue("hooks", []).await.unwrap();
    let services = HostServices::new();
    let config = SqsSinkConfig::builder(&queue_url, "us-east-1")
        .credentials("test", "test")
        .batch_queue_max_bytes(1 << 30)
        // Nothing ends while the messages wait.
        .timeout_ms(300_000)
        .build(&services)
        .unwrap();
    let sink = Arc::new(SqsSink::new(config, &services).unwrap());
    let attempt = || DeliveryContext::attempt(NonZeroU32::MIN);
    // One body for all: only what the sink makes of it is measured.
    let body = Bytes::from(vec![0x5a_u8; BODY]);
    let warm_up = envelope(1 << 40, &body);
    sink.deliver(&warm_up, &attempt()).await.unwrap();
    let size = sink
        .config()
        .preflight(&envelope(0, &body), &attempt())
        .unwrap();

    // The server takes eight requests and answers none, so that the rest waits in the sink.
    let hold = Hold::new();
    let held = Fault::hold_before_storing(&hold);
    server.add_fault(FaultRule::on(Operation::SendMessageBatch, held).always());
    let before = resident();
    let mut waiting = Vec::new();
    for number in 0..MESSAGES {
        let (sink, envelope) = (Arc::clone(&sink), envelope(number, &body));
        waiting.push(tokio::spawn(async move {
            sink.deliver(&envelope, &attempt()).await
        }));
        tokio::task::yield_now().await;
    }
    hold.arrived().await;
    let grown = resident().saturating_sub(before);
    let messages = size * usize::try_from(MESSAGES).unwrap();
    println!("{} MiB for {} MiB of messages", grown >> 20, messages >> 20);
    assert!(grown * 10 <= messages * 13, "{grown} bytes for {messages}");

    // At the ceiling nothing is kept of what is refused.
    let before = resident();
    for number in 0..2_000 {
        let envelope = envelope(MESSAGES + number, &body);
        let refused = sink.deliver(&envelope, &attempt()).await.unwrap_err();
        assert_eq!(refused.code(), "BatchQueueFull");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for what was refused");
    hold.release();
    for delivery in waiting {
        delivery.await.unwrap().unwrap();
    }
}
