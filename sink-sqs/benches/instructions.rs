//! Sends hooks of 1 KiB the same way every time, for `scripts/instructions.sh`, which
//! counts what that takes.
//!
//! `instructions batched|single MESSAGES`. The server is a process of its own, which a
//! counter that does not follow children leaves out.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on stops here"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dispatch_api::{DeliveryContext, Envelope, HeaderField, HostServices, Sink as _, Verification};
use sink_sqs::{SqsSink, SqsSinkConfig};
use sink_testkit::sqs::SqsServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const BODY_BYTES: usize = 1_024;

/// A multiple of a batch, as is the number of messages: every batch is full, whatever the
/// time.
const OUTSTANDING: usize = 80;

/// Sent before anything counts: connections, threads' rooms and the key of the day.
const WARM_UP: usize = 400;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    match &*arguments.iter().map(|text| &**text).collect::<Vec<_>>() {
        ["server"] => runtime.block_on(serve()),
        [mode @ ("batched" | "single"), messages] => {
            let batch = *mode == "batched";
            let messages: usize = messages.parse().unwrap();
            assert!(
                messages > 0 && messages.is_multiple_of(OUTSTANDING),
                "MESSAGES has to be a multiple of {OUTSTANDING}"
            );
            send(&runtime, batch, messages);
        }
        _ => println!("run scripts/instructions.sh"),
    }
}

/// Serves until the standard input ends, which is when the parent is gone.
async fn serve() {
    let server = SqsServer::start().await.unwrap();
    println!("{}", server.create_queue("hooks", []).await.unwrap());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
        .await
        .unwrap()
        .unwrap();
}

fn server() -> (Child, String) {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut queue_url = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut queue_url)
        .unwrap();
    (server, queue_url.trim().to_owned())
}

fn send(runtime: &Runtime, batch: bool, messages: usize) {
    let (mut server, queue_url) = server();
    let services = HostServices::new().with_seed(7);
    let config = SqsSinkConfig::builder(&queue_url, "us-east-1")
        .credentials("test", "test")
        .batch(batch)
        // A batch leaves when it is full.
        .batch_linger_ms(60_000)
        .timeout_ms(60_000)
        .build(&services)
        .unwrap();
    let sink = Arc::new(SqsSink::new(config, &services).unwrap());
    // Alone, one request at a time: how many run at once is the host's choice.
    let outstanding = if batch { OUTSTANDING } else { 1 };
    let warm_up = hooks(&services, WARM_UP);
    let hooks = hooks(&services, messages);
    let deliver = |hooks| deliver_all(Arc::clone(&sink), hooks, outstanding);
    runtime.block_on(deliver(warm_up));
    counted(runtime, deliver(Arc::clone(&hooks)));
    // What stood ready goes after the count.
    drop(hooks);
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// What is counted, apart from everything else by its name.
#[inline(never)]
fn counted(runtime: &Runtime, deliveries: std::pin::Pin<Box<dyn Future<Output = ()>>>) {
    runtime.block_on(deliveries);
}

fn deliver_all(
    sink: Arc<SqsSink>,
    hooks: Arc<Vec<Envelope>>,
    outstanding: usize,
) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..outstanding {
            let (sink, hooks, next) = (Arc::clone(&sink), Arc::clone(&hooks), Arc::clone(&next));
            workers.spawn(async move {
                let ctx = DeliveryContext::attempt(NonZeroU32::MIN);
                while let Some(hook) = hooks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    sink.deliver(hook, &ctx).await.unwrap();
                }
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
    })
}

fn hooks(services: &HostServices, count: usize) -> Arc<Vec<Envelope>> {
    let body = body();
    let hook = |index: usize| {
        Envelope::new(
            services.new_envelope_id(),
            "github",
            1_767_225_600_000,
            body.clone(),
        )
        .with_tenant(["acme", "globex", "initech"][index % 3])
        .with_request("POST", "/hooks/github")
        .with_headers([
            HeaderField::new("Host", "hooks.example.com"),
            HeaderField::new("User-Agent", "GitHub-Hookshot/9c1f0d2"),
            HeaderField::new("Accept", "*/*"),
            HeaderField::new("Content-Type", "application/json"),
            HeaderField::new("X-GitHub-Event", "push"),
            HeaderField::new("X-GitHub-Delivery", format!("delivery-{index:08}")),
            HeaderField::new("X-Hub-Signature-256", "sha256=5f0c3a1be7d94c0f8a6e2d1b"),
        ])
        .with_content_type("application/json")
        .with_dedupe_key(format!("delivery-{index:08}"))
        .with_verification(Verification::new("ok", false))
    };
    Arc::new((0..count).map(hook).collect())
}

fn body() -> bytes::Bytes {
    let mut text = String::from("{\"events\":[");
    while text.len() < BODY_BYTES {
        text.push_str("{\"id\":4711,\"ref\":\"5f0c3a1be7d94c0f\",\"forced\":false},");
    }
    text.truncate(BODY_BYTES);
    text.into()
}
