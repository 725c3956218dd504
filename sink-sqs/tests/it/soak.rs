//! Ten thousand messages a queue, or as many as `SINK_SQS_SOAK_MESSAGES` says, through
//! every fault of the server at random, tried again as a host does: none is lost, and a FIFO queue holds each once.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    DeliveryContext, Envelope, EnvelopeId, ErrorClass, HostServices, Message, RetryPolicy,
    Sink as _, SinkError,
};
use sink_sqs::SqsSink;
use sink_testkit::sqs::{
    Answer, Damage, EntryFault, EntrySelector, ErrorCode, Fault, Operation, SqsServer,
};
use tokio::task::JoinSet;

use crate::bench::{FIFO_QUEUE, QUEUE, config, sink_of};

/// How many messages each queue gets.
fn messages() -> u64 {
    std::env::var("SINK_SQS_SOAK_MESSAGES").map_or(10_000, |text| text.parse().unwrap())
}

const GROUPS: u64 = 20;

/// What became of one message.
struct Told {
    number: u64,
    attempts: u32,
}

struct Soak {
    sink: SqsSink,
    services: HostServices,
    codes: Mutex<HashMap<String, u64>>,
}

impl Soak {
    /// Delivers by a quick retry policy, as a host does; a refusal at a ceiling is no
    /// attempt.
    async fn deliver(&self, envelope: Envelope, number: u64) -> Result<Told, SinkError> {
        let mut policy = RetryPolicy::default();
        policy.base = Duration::from_millis(1);
        policy.max = Duration::from_millis(20);
        let mut attempt = NonZeroU32::MIN;
        loop {
            let ctx = DeliveryContext::attempt(attempt);
            let Err(error) = self.sink.deliver(&envelope, &ctx).await else {
                let attempts = attempt.get();
                return Ok(Told { number, attempts });
            };
            *self
                .codes
                .lock()
                .unwrap()
                .entry(error.code().to_owned())
                .or_default() += 1;
            let full = error.code() == "BatchQueueFull";
            let class = match error.class() {
                // The server is in a hurry here.
                ErrorClass::RetryAfter(_) => ErrorClass::RetryAfter(Duration::from_millis(1)),
                class => class,
            };
            let Some(pause) = policy.pause(attempt, class, self.services.draw()) else {
                return Err(error);
            };
            tokio::time::sleep(pause).await;
            if !full {
                attempt = attempt.saturating_add(1);
            }
        }
    }
}

/// One fault of the kinds that a host has to live with. None is beyond a retry.
fn random_fault(rng: &mut fastrand::Rng) -> Fault {
    let entry = |rng: &mut fastrand::Rng| EntrySelector::index(rng.usize(..10));
    match rng.u8(..14) {
        0 => Fault::reset(),
        1 => Fault::reset().after_storing(),
        2 => Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
        3 => Fault::answer(Answer::html(http::StatusCode::BAD_GATEWAY)),
        4 => Fault::answer(Answer::new(http::StatusCode::SERVICE_UNAVAILABLE)),
        5 => Fault::truncated(),
        6 => Fault::delay_before_storing(Duration::from_millis(rng.u64(1..20))),
        7 => Fault::delay_after_storing(Duration::from_millis(rng.u64(1..20))),
        8 => Fault::entry(entry(rng), EntryFault::failed("InternalError", false))
            .and_entry(entry(rng), EntryFault::failed("RequestThrottled", true)),
        9 => Fault::entry(entry(rng), EntryFault::missing())
            .and_entry(entry(rng), EntryFault::missing_after_storing()),
        10 => Fault::entry(entry(rng), EntryFault::repeated()).and_entry(
            entry(rng),
            EntryFault::in_both_lists("InternalError", false),
        ),
        11 => Fault::entry(entry(rng), EntryFault::damaged(Damage::BodyDigestWrong)).and_entry(
            entry(rng),
            EntryFault::damaged(Damage::AttributeDigestWrong),
        ),
        12 => Fault::foreign_entry("77"),
        _ => Fault::close_after_answer(),
    }
}

fn envelope(number: u64) -> Envelope {
    let id = EnvelopeId::v7(number, &[7; 10]);
    let group = number % GROUPS;
    Envelope::new(id, format!("source-{group}"), 5, number.to_string())
        .with_tenant(format!("tenant-{}", group % 4))
}

async fn soak(queue: &'static str, seed: u64) -> (SqsServer, Vec<Told>, HashMap<String, u64>) {
    let server = SqsServer::start().await.unwrap();
    let fifo = queue.ends_with(".fifo").then_some(("FifoQueue", "true"));
    let queue_url = server.create_queue(queue, fifo).await.unwrap();
    let services = HostServices::new().with_seed(seed);
    let options = config(&queue_url).batch_linger_ms(2).timeout_ms(2_000);
    let soak = Arc::new(Soak {
        sink: sink_of(options, &services),
        services,
        codes: Mutex::default(),
    });
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut deliveries = JoinSet::new();
    let mut told = Vec::new();
    for number in 0..messages() {
        if number.is_multiple_of(23) {
            server.fault(Operation::SendMessageBatch, random_fault(&mut rng));
        }
        let soak = Arc::clone(&soak);
        deliveries.spawn(async move { soak.deliver(envelope(number), number).await });
        // Started in order: the first poll is the admission.
        tokio::task::yield_now().await;
        while deliveries.len() >= 2_000 {
            told.push(deliveries.join_next().await.unwrap().unwrap().unwrap());
        }
    }
    while let Some(ended) = deliveries.join_next().await {
        told.push(ended.unwrap().unwrap());
    }
    let codes = std::mem::take(&mut *soak.codes.lock().unwrap());
    (server, told, codes)
}

/// The numbers that a queue holds, by source, in the queue's order.
fn stored(server: &SqsServer, queue: &str) -> HashMap<String, Vec<u64>> {
    let mut stored: HashMap<String, Vec<u64>> = HashMap::new();
    for message in server.messages(queue).unwrap() {
        let message = Message::decode(message.body.as_bytes()).unwrap();
        let dispatch_api::Content::Inline(body) = &message.content else {
            panic!("every body is small");
        };
        let number = std::str::from_utf8(body).unwrap().parse().unwrap();
        stored
            .entry(message.source_id.to_string())
            .or_default()
            .push(number);
    }
    stored
}

fn assert_faults_were_met(codes: &HashMap<String, u64>) {
    for code in [
        "BatchEntryContradicted",
        "BatchEntryMissing",
        "ConnectionLost",
        "HttpStatus",
        "InternalFailure",
        "Md5Mismatch",
        "RequestThrottled",
    ] {
        assert!(codes.contains_key(code), "{code} never happened: {codes:?}");
    }
}

#[tokio::test]
async fn a_standard_queue_ends_with_every_message() {
    let (server, told, codes) = soak(QUEUE, 1).await;
    assert_eq!(told.len() as u64, messages());
    assert_faults_were_met(&codes);
    let stored: HashSet<u64> = stored(&server, QUEUE).into_values().flatten().collect();
    assert_eq!(stored, (0..messages()).collect());
}

#[tokio::test]
async fn a_fifo_queue_ends_with_every_message_once_and_what_needed_no_retry_in_order() {
    let (server, told, codes) = soak(FIFO_QUEUE, 2).await;
    assert_eq!(told.len() as u64, messages());
    assert_faults_were_met(&codes);
    let stored = stored(&server, FIFO_QUEUE);
    let mut all: Vec<u64> = stored.values().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..messages()).collect::<Vec<_>>());

    let at_once: HashSet<u64> = told
        .iter()
        .filter(|told| told.attempts == 1)
        .map(|told| told.number)
        .collect();
    assert!(at_once.len() as u64 > messages() / 2, "most need no retry");
    for (source, numbers) in stored {
        let kept: Vec<u64> = numbers
            .into_iter()
            .filter(|n| at_once.contains(n))
            .collect();
        assert!(kept.is_sorted(), "the order of {source}");
    }
}
