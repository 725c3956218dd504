//! Playing faults between a source and the broker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::QueueBroker;
use super::wire::{EntryAnswer, QueueFailure, QueueReply, QueueRequest};
use crate::conformance::Destination;
use crate::conformance::source::{Operation, SourceFault, SourceFaultScript};
use crate::reference::WireError;

/// How long a throttled client has to wait.
const THROTTLE_PAUSE: Duration = Duration::from_secs(2);

/// The faults of one broker.
#[derive(Debug, Default)]
pub(super) struct QueueScript {
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<(String, Operation)>>,
    played: AtomicU64,
}

#[derive(Debug)]
struct Rule {
    place: String,
    operation: Operation,
    fault: SourceFault,
    times: Option<u64>,
}

impl QueueScript {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of the first rule that fits, one turn of which is over then.
    fn next(&self, fits: impl Fn(&Rule) -> bool) -> Option<SourceFault> {
        let mut rules = self.rules();
        let index = rules.iter().position(fits)?;
        let rule = &mut rules[index];
        let fault = rule.fault.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                rules.remove(index);
            }
        }
        self.played.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    /// Notes a request, and carries it out as the rules say.
    pub(super) async fn play(
        &self,
        broker: &QueueBroker,
        request: QueueRequest,
        connection: u64,
    ) -> Result<QueueReply, WireError> {
        let Some(operation) = request.call.operation() else {
            return broker.carry_out(&request, connection).await;
        };
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((request.place.clone(), operation));
        let is_with = |body: &str, handle: &str| {
            let found = broker.body_of(&request, handle);
            found.is_some_and(|found| found == body.as_bytes())
        };
        let handles = request.call.handles();
        let concerns = |rule: &Rule| rule.place == request.place && rule.operation == operation;
        let fault = self.next(|rule| {
            concerns(rule)
                && match &rule.fault {
                    // Only where there is such a message.
                    SourceFault::Entry(body) => handles.iter().any(|handle| is_with(body, handle)),
                    // Only where an answer has messages.
                    SourceFault::WrongDigest => false,
                    _ => true,
                }
        });
        let carried_out = broker.carry_out(&request, connection);
        match fault {
            None => {
                let mut reply = carried_out.await?;
                if let QueueReply::Messages { messages, .. } = &mut reply
                    && let Some(first) = messages.first_mut()
                {
                    let spoils = |rule: &Rule| {
                        concerns(rule) && matches!(rule.fault, SourceFault::WrongDigest)
                    };
                    if self.next(spoils).is_some() {
                        first.digest = "0".repeat(first.digest.len());
                    }
                }
                Ok(reply)
            }
            Some(SourceFault::HoldRequest(gate)) => {
                gate.pass().await;
                carried_out.await
            }
            Some(SourceFault::HoldReply(gate)) => {
                let reply = carried_out.await;
                gate.pass().await;
                reply
            }
            Some(SourceFault::LoseRequest) => Err(WireError::Lost),
            Some(SourceFault::LoseReply) => {
                carried_out.await?;
                Err(WireError::Lost)
            }
            Some(SourceFault::Silence) => std::future::pending().await,
            Some(SourceFault::Row(name)) => Ok(failed(&name)),
            Some(SourceFault::Gone) => {
                let gone = handles.iter().map(|_| EntryAnswer::Gone);
                Ok(QueueReply::Answers(gone.collect()))
            }
            Some(SourceFault::Entry(body)) => {
                let is_hit: Vec<bool> = handles
                    .iter()
                    .map(|handle| is_with(&body, handle))
                    .collect();
                except(broker, &request, connection, &is_hit).await
            }
            Some(SourceFault::Internal | SourceFault::WrongDigest) => Ok(failed("Internal")),
        }
    }
}

/// Carries out the request for all but some of its messages, which fail.
async fn except(
    broker: &QueueBroker,
    request: &QueueRequest,
    connection: u64,
    is_hit: &[bool],
) -> Result<QueueReply, WireError> {
    let handles = request.call.handles();
    let is_left_out = |handle: &str| {
        let position = handles.iter().position(|known| known == handle);
        position.is_some_and(|position| is_hit[position])
    };
    let rest = QueueRequest {
        call: request.call.without(is_left_out),
        ..request.clone()
    };
    let mut answers = Vec::new();
    if !rest.call.handles().is_empty() {
        match broker.carry_out(&rest, connection).await? {
            QueueReply::Answers(carried_out) => answers = carried_out,
            other => return Ok(other),
        }
    }
    let mut answers = answers.into_iter();
    let all = is_hit.iter().map(|is_hit| match is_hit {
        true => EntryAnswer::Failed("Internal".to_owned()),
        false => answers.next().unwrap_or(EntryAnswer::Gone),
    });
    Ok(QueueReply::Answers(all.collect()))
}

fn failed(code: &str) -> QueueReply {
    let mut failure = QueueFailure::new(code);
    if code == "Throttled" {
        failure.pause = Some(THROTTLE_PAUSE);
    }
    QueueReply::Failed(failure)
}

impl SourceFaultScript for QueueScript {
    fn add(
        &self,
        destination: &Destination,
        operation: Operation,
        fault: SourceFault,
        times: Option<u64>,
    ) {
        if times == Some(0) {
            return;
        }
        self.rules().push(Rule {
            place: destination.name().to_owned(),
            operation,
            fault,
            times,
        });
    }

    fn clear(&self) {
        self.rules().clear();
    }

    fn played(&self) -> u64 {
        self.played.load(Ordering::SeqCst)
    }

    fn calls(&self, destination: &Destination, operation: Operation) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let these = seen.iter();
        these
            .filter(|(place, known)| place == destination.name() && *known == operation)
            .count()
    }
}
