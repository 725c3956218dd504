//! The suite's faults, as the in-process server plays them.

use std::sync::Arc;

use dispatch_api::EnvelopeId;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Destination, EntryFault, Fault, FaultScript, Garbage, Rule, SeenRequest, StoredMessage,
};
use sink_testkit::sqs::{
    self, Answer, Damage, EntrySelector, FaultRule, Operation, RecordedRequest, SqsServer,
};

/// The statuses of the codes that are played.
const STATUSES: [(&str, u16); 4] = [
    ("RequestThrottled", 403),
    ("AccessDenied", 403),
    ("InternalFailure", 500),
    ("ServiceUnavailable", 503),
];

/// Plays faults at a server, and points redirects to another.
pub(crate) struct Script {
    pub(crate) server: Arc<SqsServer>,
    pub(crate) elsewhere: SqsServer,
}

impl Script {
    fn translated(&self, fault: Fault) -> sqs::Fault {
        match fault {
            Fault::HoldRequest(gate) => sqs::Fault::wait_before_storing(gate),
            Fault::HoldReply(gate) => sqs::Fault::wait_after_storing(gate),
            Fault::LoseRequest => sqs::Fault::reset(),
            Fault::LoseReply => sqs::Fault::reset().after_storing(),
            Fault::Silence => sqs::Fault::silence(),
            Fault::Row(name) => sqs::Fault::answer(row(&name)),
            Fault::UnknownError(code) => {
                sqs::Fault::answer(Answer::error_named("NeverSeenBefore", status(code)))
            }
            Fault::Throttle(hint) => {
                let answer = row("RequestThrottled");
                sqs::Fault::answer(match hint {
                    None => answer,
                    Some(hint) => {
                        let name = HeaderName::from_static("retry-after");
                        let value = HeaderValue::from_str(&hint);
                        answer.with_header(name, value.expect("hints are header values"))
                    }
                })
            }
            Fault::Garbage(garbage) => garbled(garbage),
            Fault::ForeignError(code, body) => {
                sqs::Fault::answer(Answer::new(status(code)).with_body(body))
            }
            Fault::Redirect => {
                let location = HeaderValue::from_str(&self.elsewhere.endpoint());
                let location = location.expect("an endpoint is a header value");
                sqs::Fault::answer(Answer::redirect(location))
            }
            Fault::WrongBodyDigest => sqs::Fault::damaged(Damage::BodyDigestWrong),
            Fault::WrongAttributesDigest => sqs::Fault::damaged(Damage::AttributeDigestWrong),
            Fault::MissingDigests => sqs::Fault::damaged(Damage::DigestsMissing),
            Fault::Entries(entries) => entries_of(entries),
            Fault::ReversedResults => sqs::Fault::reversed(),
            Fault::ForeignResult => sqs::Fault::foreign_entry("nobodys"),
            other => panic!("the fixture does not play {other:?}"),
        }
    }
}

impl FaultScript for Script {
    fn add(&self, destination: &Destination, rule: Rule) {
        let added = FaultRule::on_any(self.translated(rule.fault))
            .for_queue(destination.name())
            .after(rule.after);
        self.server.add_fault(match rule.times {
            Some(times) => added.times(times),
            None => added.always(),
        });
    }

    fn clear(&self) {
        self.server.clear_faults();
    }

    fn played(&self) -> u64 {
        let requests = self.server.requests();
        requests.iter().filter(|request| request.faulted).count() as u64
    }

    fn requests(&self, destination: &Destination) -> Vec<SeenRequest> {
        sends(&self.server)
            .iter()
            .filter(|request| queue_name(&request.json()) == destination.name())
            .map(seen)
            .collect()
    }

    fn strayed(&self) -> usize {
        self.elsewhere.requests().len()
    }
}

/// The requests that carried messages.
pub(crate) fn sends(server: &SqsServer) -> Vec<RecordedRequest> {
    let mut requests = server.requests();
    requests.retain(|request| {
        matches!(
            request.operation,
            Some(Operation::SendMessage | Operation::SendMessageBatch)
        )
    });
    requests
}

fn queue_name(request: &Value) -> String {
    let url = request["QueueUrl"].as_str().unwrap_or_default();
    url.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A request as the suite sees it.
pub(crate) fn seen(request: &RecordedRequest) -> SeenRequest {
    let json = request.json();
    let alone = [json.clone()];
    let (entries, is_batch) = match json["Entries"].as_array() {
        Some(entries) => (&**entries, true),
        None => (&alone[..], false),
    };
    let text = |entry: &Value, key: &str| entry[key].as_str().map(str::to_owned);
    let mut seen = SeenRequest::new();
    for entry in entries {
        let body = text(entry, "MessageBody").unwrap_or_default();
        seen.bytes += body.len() + attribute_bytes(entry);
        seen.envelopes.push(StoredMessage::new(body).envelope_id());
        if is_batch {
            seen.entry_ids.push(text(entry, "Id").unwrap_or_default());
        }
        seen.dedup_ids.push(text(entry, "MessageDeduplicationId"));
        seen.keys.push(text(entry, "MessageGroupId"));
    }
    seen.signed_by = signer(request);
    seen
}

fn attribute_bytes(entry: &Value) -> usize {
    let attributes = entry["MessageAttributes"].as_object();
    attributes.map_or(0, |attributes| {
        attributes
            .iter()
            .map(|(name, value)| {
                let part = |key: &str| value[key].as_str().map_or(0, str::len);
                name.len() + part("DataType") + part("StringValue")
            })
            .sum()
    })
}

/// The access key within the signature's scope.
fn signer(request: &RecordedRequest) -> Option<String> {
    let authorization = request.header("authorization")?;
    let (_, scope) = authorization.split_once("Credential=")?;
    let (key, _) = scope.split_once('/')?;
    Some(key.to_owned())
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).expect("the suite plays statuses of HTTP")
}

fn row(name: &str) -> Answer {
    let known = STATUSES.iter().find(|(code, _)| *code == name);
    let code = known.map_or(400, |(_, status)| *status);
    Answer::error_named(&format!("com.amazonaws.sqs#{name}"), status(code))
}

fn garbled(garbage: Garbage) -> sqs::Fault {
    let instead = |answer: Answer| sqs::Fault::answer(answer).after_storing();
    match garbage {
        Garbage::Empty => instead(Answer::new(StatusCode::OK)),
        Garbage::Html => instead(Answer::html(StatusCode::OK)),
        Garbage::WrongTypes => instead(Answer::json(
            StatusCode::OK,
            &json!({ "MessageId": 7, "Successful": "all", "MD5OfMessageBody": [] }),
        )),
        Garbage::NoMessageId => sqs::Fault::damaged(Damage::MessageIdMissing),
        Garbage::Truncated => sqs::Fault::truncated(),
        other => panic!("the fixture does not play {other:?}"),
    }
}

fn entries_of(entries: Vec<(EnvelopeId, EntryFault)>) -> sqs::Fault {
    let mut fault: Option<sqs::Fault> = None;
    for (id, what) in entries {
        let id = id.to_string();
        let selector = EntrySelector::body(move |body| body.contains(&id));
        let what = match what {
            EntryFault::Row(name) => {
                let known = STATUSES.iter().find(|(code, _)| *code == name);
                let is_senders = known.is_none_or(|(_, status)| *status < 500);
                sqs::EntryFault::failed(name, is_senders)
            }
            EntryFault::Unmentioned => sqs::EntryFault::missing_after_storing(),
            EntryFault::InBothLists => sqs::EntryFault::in_both_lists("InternalError", false),
            EntryFault::Twice => sqs::EntryFault::repeated(),
            EntryFault::WrongBodyDigest => sqs::EntryFault::damaged(Damage::BodyDigestWrong),
            other => panic!("the fixture does not play {other:?}"),
        };
        fault = Some(match fault {
            None => sqs::Fault::entry(selector, what),
            Some(fault) => fault.and_entry(selector, what),
        });
    }
    fault.expect("the suite names at least one message")
}
