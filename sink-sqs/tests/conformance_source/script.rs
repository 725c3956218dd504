//! The suite's faults, as the in-process server plays them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use sink_testkit::conformance::Destination;
use sink_testkit::conformance::source::{Operation, SourceFault, SourceFaultScript};
use sink_testkit::sqs::{
    self, Answer, Damage, EntryFault, EntrySelector, FaultRule, RecordedRequest, SqsServer,
};

/// The statuses of the codes that are not 400.
const STATUSES: [(&str, u16); 4] = [
    ("RequestThrottled", 403),
    ("AccessDenied", 403),
    ("InternalFailure", 500),
    ("ServiceUnavailable", 503),
];

/// Plays faults at a server.
pub(crate) struct Script {
    server: Arc<SqsServer>,
    is_batched: bool,
    /// The seconds by which the sources of this fixture extend their holds.
    extensions: Arc<Mutex<BTreeSet<u64>>>,
}

impl Script {
    pub(crate) fn new(server: Arc<SqsServer>, is_batched: bool) -> Self {
        Self {
            server,
            is_batched,
            extensions: Arc::default(),
        }
    }

    /// A source extends its holds by this.
    pub(crate) fn extends_by(&self, hold: Option<Duration>) {
        let mut extensions = self
            .extensions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        extensions.extend(hold.map(|hold| hold.as_secs()));
    }

    /// The request that carries an operation.
    fn request_of(&self, operation: Operation) -> sqs::Operation {
        match (operation, self.is_batched) {
            (Operation::Receive, _) => sqs::Operation::ReceiveMessage,
            (Operation::Ack, true) => sqs::Operation::DeleteMessageBatch,
            (Operation::Ack, false) => sqs::Operation::DeleteMessage,
            (Operation::Return, false) => sqs::Operation::ChangeMessageVisibility,
            (Operation::Return, true) | (Operation::Extend, _) => {
                sqs::Operation::ChangeMessageVisibilityBatch
            }
            (other, _) => panic!("the fixture knows no request of {other:?}"),
        }
    }

    /// Whether a request of that kind is one of this operation. A batch that changes the
    /// visibility extends holds where every entry asks for a whole hold, and gives messages
    /// back where not: a return after exactly a hold looks like an extension.
    fn is_of(&self, operation: Operation) -> impl Fn(&Value) -> bool + Send + Sync + 'static {
        let extensions = Arc::clone(&self.extensions);
        let is_batched = self.is_batched;
        move |request| {
            let extends = || {
                let extensions = extensions.lock().unwrap_or_else(PoisonError::into_inner);
                let entries = request["Entries"].as_array();
                entries.into_iter().flatten().all(|entry| {
                    let seconds = entry["VisibilityTimeout"].as_u64();
                    seconds.is_some_and(|seconds| extensions.contains(&seconds))
                })
            };
            match operation {
                Operation::Extend => extends(),
                Operation::Return if is_batched => !extends(),
                _ => true,
            }
        }
    }

    fn translated(&self, operation: Operation, fault: SourceFault) -> sqs::Fault {
        match fault {
            SourceFault::HoldRequest(gate) => sqs::Fault::wait_before_storing(gate),
            SourceFault::HoldReply(gate) => sqs::Fault::wait_after_storing(gate),
            SourceFault::LoseRequest => sqs::Fault::reset(),
            SourceFault::LoseReply => sqs::Fault::reset().after_storing(),
            SourceFault::Silence => sqs::Fault::silence(),
            SourceFault::Row(name) => sqs::Fault::answer(row(&name)),
            SourceFault::Internal => sqs::Fault::answer(row("InternalFailure")),
            SourceFault::Gone if self.is_batch(operation) => sqs::Fault::entry(
                EntrySelector::all(),
                EntryFault::failed("ReceiptHandleIsInvalid", true),
            ),
            SourceFault::Gone => sqs::Fault::answer(row("ReceiptHandleIsInvalid")),
            SourceFault::WrongDigest => sqs::Fault::damaged(Damage::BodyDigestWrong),
            SourceFault::Entry(wanted) => sqs::Fault::entry(
                EntrySelector::message(move |body| body == wanted),
                EntryFault::failed("InternalError", false),
            ),
            other => panic!("the fixture does not play {other:?}"),
        }
    }

    fn is_batch(&self, operation: Operation) -> bool {
        self.is_batched || operation == Operation::Extend
    }
}

impl SourceFaultScript for Script {
    fn add(
        &self,
        destination: &Destination,
        operation: Operation,
        fault: SourceFault,
        times: Option<u64>,
    ) {
        let fault = self.translated(operation, fault);
        let rule = FaultRule::on(self.request_of(operation), fault)
            .for_queue(destination.name())
            .when(self.is_of(operation));
        self.server.add_fault(match times {
            Some(times) => rule.times(times),
            None => rule.always(),
        });
    }

    fn clear(&self) {
        self.server.clear_faults();
    }

    fn played(&self) -> u64 {
        let requests = self.server.requests();
        requests.iter().filter(|request| request.faulted).count() as u64
    }

    fn calls(&self, destination: &Destination, operation: Operation) -> usize {
        let is_of = self.is_of(operation);
        let requests = self.server.requests_of(self.request_of(operation));
        let requests = requests.iter().map(RecordedRequest::json);
        requests
            .filter(|request| queue_name(request) == destination.name() && is_of(request))
            .count()
    }
}

fn queue_name(request: &Value) -> &str {
    let url = request["QueueUrl"].as_str().unwrap_or_default();
    url.rsplit('/').next().unwrap_or_default()
}

fn row(name: &str) -> Answer {
    let known = STATUSES.iter().find(|(code, _)| *code == name);
    let status = known.map_or(400, |(_, status)| *status);
    let status = StatusCode::from_u16(status).expect("the table holds statuses of HTTP");
    Answer::error_named(&format!("com.amazonaws.sqs#{name}"), status)
}
