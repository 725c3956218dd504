//! `send` reads its input no faster than it delivers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sink_testkit::sqs::{Fault, FaultRule, Operation};
use support::{Ran, Workplace, one_queue, server_with, sqs_body, stored_bodies};
use tokio::io::AsyncWriteExt as _;

const HOOKS: usize = 12;
/// How many of them have room.
const ROOM: usize = 4;
/// More than all that lies between writer and host: the pipe's 64 KiB, and the two
/// buffers of 8 KiB of whoever reads it. A line that is written whole is being read.
const BODY: usize = 128 * 1_024;

fn body(number: usize) -> String {
    format!("{number}{}", " ".repeat(BODY))
}

/// The number of the hook with this body.
fn number(body: &str) -> usize {
    body.trim_end().parse().unwrap()
}

/// Sends hooks to a server that answers nobody, until those that have room went again
/// twice, and lets all be delivered then.
async fn only_so_many_are_read_while_nothing_is_answered(limit: &str) {
    let server = server_with(&["hooks"]).await;
    let silence = Fault::silence();
    server.add_fault(FaultRule::on(Operation::SendMessageBatch, silence).always());
    let config = one_queue(&server.queue_url("hooks"))
        .replace("[dispatch]", &format!("[dispatch]\n{limit}"))
        .replace("max_attempts = 4", "max_attempts = 84")
        .replace(
            "region =",
            "inline_max_bytes = 262144\ntimeout_ms = 300\nregion =",
        );
    let workplace = Workplace::new(&config);
    let mut child = workplace.start_send("", &[]).await;
    let mut input = child.stdin.take().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        for number in 0..HOOKS {
            let body = body(number);
            let line = format!(
                "{{\"source_id\":\"github\",\"tenant_id\":\"acme\",\"body\":\"{body}\"}}\n"
            );
            input.write_all(line.as_bytes()).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Each is a request of its own, and times out in the host.
    let requests = || server.requests_of(Operation::SendMessageBatch);
    let went_again = async {
        while requests().len() < 3 * ROOM || written.load(Ordering::Relaxed) <= ROOM {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), went_again)
        .await
        .expect("those that have room are tried again");
    let sent: BTreeSet<usize> = requests()
        .iter()
        .map(|request| {
            let entry = &request.json()["Entries"][0];
            number(&sqs_body(entry["MessageBody"].as_str().unwrap()))
        })
        .collect();
    assert_eq!(sent, (0..ROOM).collect());
    // One more was read, and waits in the reader's hand for its room.
    assert_eq!(written.load(Ordering::Relaxed), ROOM + 1);

    server.clear_faults();
    writing.await.unwrap();
    let ran: Ran = child.wait_with_output().await.unwrap().into();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.json_lines().len(), HOOKS);
    let stored = stored_bodies(&server, "hooks");
    let stored: BTreeSet<usize> = stored.iter().map(|body| number(body)).collect();
    assert_eq!(stored, (0..HOOKS).collect());
}

#[tokio::test]
async fn no_more_hooks_are_read_than_may_be_on_their_way() {
    only_so_many_are_read_while_nothing_is_answered("max_inflight = 4").await;
}

#[tokio::test]
async fn no_more_bytes_are_read_than_may_be_on_their_way() {
    // A line counts by the KiB that it begins: 129 of them.
    let limit = format!("max_inflight_bytes = {}", ROOM * 129 * 1_024);
    only_so_many_are_read_while_nothing_is_answered(&limit).await;
}
