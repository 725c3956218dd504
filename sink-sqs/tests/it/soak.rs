//! Ten thousand messages a queue, or as many as `SINK_SQS_SOAK_MESSAGES` says, through
//! every fault of the server at random, tried again as a host does: none is lost, and a
//! FIFO queue holds each once.
//!
//! The host of this workspace is the dispatcher's `Deliverer`. It depends on sink-sqs, so
//! that these tests cannot depend on it without a cycle: the loop is its loop, made of the
//! same parts of dispatch-api.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    DeliveryContext, Envelope, EnvelopeId, ErrorClass, HostServices, Message, RetryPolicy,
    SinkError, deliver_contained,
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

/// Far over what the server takes where it is not told to be slow.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What became of one message.
struct Told {
    number: u64,
    attempts: u32,
}

/// How often a delivery failed, by class and code.
type Failures = BTreeMap<(&'static str, String), u64>;

struct Soak {
    sink: SqsSink,
    services: HostServices,
    failures: Mutex<Failures>,
}

impl Soak {
    /// Delivers by a quick retry policy; a refusal at a ceiling is no attempt.
    async fn deliver(&self, envelope: Envelope, number: u64) -> Result<Told, SinkError> {
        let mut policy = RetryPolicy::default();
        policy.base = Duration::from_millis(1);
        policy.max = Duration::from_millis(20);
        let mut attempt = NonZeroU32::MIN;
        loop {
            let ctx = DeliveryContext::attempt(attempt);
            let Err(error) = deliver_contained(&self.sink, &envelope, &ctx).await else {
                let attempts = attempt.get();
                return Ok(Told { number, attempts });
            };
            let failure = (error.class().as_str(), error.code().to_owned());
            *self.failures.lock().unwrap().entry(failure).or_default() += 1;
            let pause = match error.class() {
                ErrorClass::RetryAfter(pause) if error.code() == "BatchQueueFull" => pause,
                class => {
                    let draw = self.services.draw();
                    let Some(pause) = policy.pause(attempt, class, draw) else {
                        return Err(error);
                    };
                    attempt = attempt.saturating_add(1);
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// What goes wrong with a request, and how the deliveries that it fails are told.
type Kind = (
    fn(&mut fastrand::Rng) -> Fault,
    &'static [(&'static str, &'static str)],
);

const RESET: (&str, &str) = ("transient", "ConnectionLost");
const FAILED: (&str, &str) = ("transient", "InternalFailure");
const THROTTLED: (&str, &str) = ("retry_after", "RequestThrottled");
const MISSING: (&str, &str) = ("transient", "BatchEntryMissing");
const CONTRADICTED: (&str, &str) = ("transient", "BatchEntryContradicted");
const MISMATCH: (&str, &str) = ("transient", "Md5Mismatch");

/// The faults that a host has to live with. None is beyond a retry.
const KINDS: [Kind; 16] = [
    (|_| Fault::reset(), &[RESET]),
    (|_| Fault::reset().after_storing(), &[RESET]),
    (|_| Fault::truncated(), &[RESET]),
    (
        |_| Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
        &[THROTTLED],
    ),
    (
        |_| Fault::answer(Answer::html(http::StatusCode::BAD_GATEWAY)),
        &[("transient", "HttpStatus")],
    ),
    (
        |_| Fault::answer(Answer::new(http::StatusCode::SERVICE_UNAVAILABLE)),
        &[("retry_after", "HttpStatus")],
    ),
    (|rng| Fault::delay_before_storing(short(rng)), &[]),
    (|rng| Fault::delay_after_storing(short(rng)), &[]),
    (
        |_| Fault::delay_before_storing(2 * TIMEOUT),
        &[("transient", "Timeout")],
    ),
    (
        |_| Fault::delay_after_storing(2 * TIMEOUT),
        &[("transient", "Timeout")],
    ),
    (
        |rng| {
            Fault::entry(entry(rng), EntryFault::failed("InternalError", false))
                .and_entry(entry(rng), EntryFault::failed("RequestThrottled", true))
        },
        &[FAILED, THROTTLED],
    ),
    (
        |rng| {
            Fault::entry(entry(rng), EntryFault::missing())
                .and_entry(entry(rng), EntryFault::missing_after_storing())
        },
        &[MISSING],
    ),
    (
        |rng| {
            Fault::entry(entry(rng), EntryFault::repeated()).and_entry(
                entry(rng),
                EntryFault::in_both_lists("InternalError", false),
            )
        },
        &[CONTRADICTED],
    ),
    (
        |rng| {
            Fault::entry(entry(rng), EntryFault::damaged(Damage::BodyDigestWrong)).and_entry(
                entry(rng),
                EntryFault::damaged(Damage::AttributeDigestWrong),
            )
        },
        &[MISMATCH],
    ),
    (|_| Fault::foreign_entry("77"), &[]),
    (|_| Fault::close_after_answer(), &[]),
];

fn short(rng: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(rng.u64(1..20))
}

fn entry(rng: &mut fastrand::Rng) -> EntrySelector {
    EntrySelector::index(rng.usize(..10))
}

fn envelope(number: u64) -> Envelope {
    let id = EnvelopeId::v7(number, &[7; 10]);
    let group = number % GROUPS;
    Envelope::new(id, format!("source-{group}"), 5, number.to_string())
        .with_tenant(format!("tenant-{}", group % 4))
}

async fn soak(queue: &'static str, seed: u64) -> (SqsServer, Vec<Told>, Failures) {
    let server = SqsServer::start().await.unwrap();
    let fifo = queue.ends_with(".fifo").then_some(("FifoQueue", "true"));
    let queue_url = server.create_queue(queue, fifo).await.unwrap();
    let services = HostServices::new().with_seed(seed);
    let timeout = u64::try_from(TIMEOUT.as_millis()).unwrap();
    let options = config(&queue_url).batch_linger_ms(2).timeout_ms(timeout);
    let soak = Arc::new(Soak {
        sink: sink_of(options, &services),
        services,
        failures: Mutex::default(),
    });
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut deliveries = JoinSet::new();
    let mut told = Vec::new();
    for number in 0..messages() {
        if number.is_multiple_of(23) {
            let (fault, _) = KINDS[rng.usize(..KINDS.len())];
            server.fault(Operation::SendMessageBatch, fault(&mut rng));
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
    let failures = std::mem::take(&mut *soak.failures.lock().unwrap());
    let at_once = told.iter().filter(|told| told.attempts == 1).count();
    println!("{queue}: {at_once} of {} needed no retry", told.len());
    println!("{queue}: deliveries that failed: {failures:?}");
    (server, told, failures)
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

fn assert_faults_were_met(failures: &Failures) {
    let told = KINDS.iter().flat_map(|(_, told)| told.iter());
    for (class, code) in told {
        let failure = (*class, (*code).to_owned());
        assert!(failures.contains_key(&failure), "{failure:?} never came");
    }
}

#[tokio::test]
async fn a_standard_queue_ends_with_every_message() {
    let (server, told, failures) = soak(QUEUE, 1).await;
    assert_eq!(told.len() as u64, messages());
    assert_faults_were_met(&failures);
    let stored: HashSet<u64> = stored(&server, QUEUE).into_values().flatten().collect();
    assert_eq!(stored, (0..messages()).collect());
}

#[tokio::test]
async fn a_fifo_queue_ends_with_every_message_once_and_what_needed_no_retry_in_order() {
    let (server, told, failures) = soak(FIFO_QUEUE, 2).await;
    assert_eq!(told.len() as u64, messages());
    assert_faults_were_met(&failures);
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
