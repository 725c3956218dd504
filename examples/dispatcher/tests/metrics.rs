//! `send --metrics-addr`, as a scraper sees it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod support;

use sink_testkit::sqs::{Answer, ErrorCode, Fault, Operation};
use support::{Workplace, hooks, one_queue, server_with};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

async fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn deliveries_attempts_and_config_errors_are_served_while_the_run_lasts() {
    let server = server_with(&["hooks"]).await;
    let answer = |code| Fault::answer(Answer::error(code));
    server.fault(
        Operation::SendMessageBatch,
        answer(ErrorCode::RequestThrottled),
    );
    server.fault(Operation::SendMessageBatch, answer(ErrorCode::AccessDenied));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    // One hook: throttled, then denied. Then another: delivered.
    let mut child = workplace
        .start_send(&hooks("acme", 1), &["--metrics-addr", &address])
        .await;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(hooks("acme", 1).as_bytes()).await.unwrap();
    stdin.flush().await.unwrap();
    lines.next_line().await.unwrap().unwrap();

    let text = scrape(&address).await;
    for expected in [
        "ankusa_dispatch_attempts_total{sink=\"main\",class=\"retry_after\",code=\"RequestThrottled\"} 1",
        "ankusa_dispatch_attempts_total{sink=\"main\",class=\"config\",code=\"AccessDenied\"} 1",
        "ankusa_dispatch_attempts_total{sink=\"main\",class=\"ok\",code=\"\"} 1",
        "ankusa_dispatch_config_errors_total{sink=\"main\"} 1",
        "ankusa_dispatch_deliveries_total{sink=\"main\",outcome=\"delivered\"} 1",
        "ankusa_dispatch_deliveries_total{sink=\"main\",outcome=\"dead_lettered\"} 1",
        "ankusa_dispatch_in_flight 0",
    ] {
        assert!(
            text.lines().any(|line| line == expected),
            "{expected} in\n{text}"
        );
    }
    assert!(text.contains("ankusa_sqs_batch_entries"), "{text}");
    drop(child.stdin.take());
    assert_eq!(child.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn an_address_that_is_taken_is_status_1() {
    let server = server_with(&["hooks"]).await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace.send("", &["--metrics-addr", &address]).await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.starts_with("cannot serve metrics at "),
        "{}",
        ran.stderr
    );
}
