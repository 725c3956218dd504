//! What waits in a batcher weighs little more than its messages. A process of its own:
//! memory is measured for all of it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::NonZeroU32;
use std::sync::Arc;

use dispatch_api::{DeliveryContext, Envelope, EnvelopeId, HostServices, Sink as _};
use sink_sqs::{SqsSink, SqsSinkConfig};
use sink_testkit::sqs::{Fault, FaultRule, Hold, Operation, SqsServer};

/// As many as the default ceilings let wait: of entries, and of bytes at 32 KiB each.
const MESSAGES: u64 = 4_096;
const SIZE: usize = 32 * 1_024;
const TENANTS: u64 = 8;
const REFUSED: u64 = 2_000;

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

fn attempt() -> DeliveryContext {
    DeliveryContext::attempt(NonZeroU32::MIN)
}

/// A hook with a body of its own, and a content type that rounds its message up to the byte.
fn hook(number: u64, body: usize, kind: usize) -> Envelope {
    let fill = number.to_le_bytes();
    let body: Vec<u8> = fill.into_iter().cycle().take(body).collect();
    Envelope::new(EnvelopeId::v7(number, &[0; 10]), "harbor", 5, body)
        .with_tenant(format!("tenant-{}", number % TENANTS))
        .with_content_type("t".repeat(kind))
}

/// The lengths of body and content type with which the service counts [`SIZE`] bytes.
fn lengths(sink: &SqsSink) -> (usize, usize) {
    let size = |body, kind| {
        let hook = hook(0, body, kind);
        sink.config().preflight(&hook, &attempt()).unwrap()
    };
    // The message also says how long its body is.
    let body = (SIZE - size(0, 1) - 16) / 4 * 3;
    let kind = 1 + SIZE - size(body, 1);
    assert_eq!(size(body, kind), SIZE);
    (body, kind)
}

#[tokio::test]
async fn all_that_may_wait_weighs_no_more_than_1_3_of_its_bytes_and_a_refusal_nothing() {
    let server = SqsServer::start().await.unwrap();
    let queue_url = server.create_queue("hooks", []).await.unwrap();
    let services = HostServices::new();
    let config = SqsSinkConfig::builder(&queue_url, "us-east-1")
        .credentials("test", "test")
        // Nothing ends while the messages wait.
        .timeout_ms(300_000)
        .build(&services)
        .unwrap();
    let sink = Arc::new(SqsSink::new(config, &services).unwrap());
    let (body, kind) = lengths(&sink);
    let warm_up = hook(1 << 40, body, kind);
    sink.deliver(&warm_up, &attempt()).await.unwrap();
    // The host has its hooks before it delivers them: what counts is what the sink adds.
    let hooks: Vec<_> = (0..MESSAGES).map(|n| hook(n, body, kind)).collect();

    // The server takes eight requests and answers none, so that the rest waits in the sink.
    let hold = Hold::new();
    let held = Fault::hold_before_storing(&hold);
    server.add_fault(FaultRule::on(Operation::SendMessageBatch, held).always());
    let before = resident();
    let mut waiting = Vec::new();
    for hook in hooks {
        let sink = Arc::clone(&sink);
        waiting.push(tokio::spawn(async move {
            sink.deliver(&hook, &attempt()).await
        }));
        tokio::task::yield_now().await;
    }
    hold.arrivals(8).await;
    let grown = resident().saturating_sub(before);
    let messages = SIZE * usize::try_from(MESSAGES).unwrap();
    println!("{} MiB for {} MiB of messages", grown >> 20, messages >> 20);
    assert!(waiting.iter().all(|delivery| !delivery.is_finished()));
    assert!(grown * 10 <= messages * 13, "{grown} bytes for {messages}");

    // At the ceiling nothing is kept of what is refused.
    let before = resident();
    for number in MESSAGES..MESSAGES + REFUSED {
        let hook = hook(number, body, kind);
        let refused = sink.deliver(&hook, &attempt()).await.unwrap_err();
        assert_eq!(refused.code(), "BatchQueueFull");
    }
    let grown = resident().saturating_sub(before);
    println!("{} KiB for {REFUSED} refusals", grown >> 10);
    assert!(grown < 1 << 20, "{grown} bytes for what was refused");
    hold.release();
    for delivery in waiting {
        delivery.await.unwrap().unwrap();
    }
}
