//! What a run tells: a JSON line a delivery, notices, and the report.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{
    ConsumerReport, ErrorChain, LogObserver, Observer, Received, SettleError, Settlement,
    SourceError,
};
use dispatcher::print;
use serde::Serialize;

/// One delivery, as `--json` prints it.
#[derive(Serialize)]
struct DeliveryLine<'a> {
    id: &'a str,
    source_id: Option<&'a str>,
    tenant_id: Option<&'a str>,
    redelivery_count: Option<u32>,
    outcome: &'static str,
    settled: bool,
    error: Option<String>,
}

/// What tells one delivery from another of the same message.
type Key = (String, Option<u32>);

/// Prints deliveries, and logs what goes wrong.
#[derive(Debug)]
pub(crate) struct Reporter {
    json: bool,
    /// What handlers said, until the settlement.
    notes: Mutex<HashMap<Key, String>>,
    /// Of receives.
    log: LogObserver,
}

impl Reporter {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            notes: Mutex::default(),
            log: LogObserver::new(),
        }
    }

    /// Why a delivery is settled as it will be.
    pub(crate) fn note(&self, received: &Received, text: String) {
        tracing::debug!(id = received.id(), "{text}");
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(key(received), text);
    }
}

fn key(received: &Received) -> Key {
    (received.id().to_owned(), received.redelivery_count())
}

impl Observer for Reporter {
    fn settled(
        &self,
        received: &Received,
        settlement: Settlement,
        result: Result<(), &SettleError>,
    ) {
        let note = {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.remove(&key(received))
        };
        let failed = result.err().map(|error| ErrorChain(error).to_string());
        if let Some(error) = &failed {
            let outcome = settlement.as_str();
            tracing::warn!(id = received.id(), outcome, error, "not settled");
        }
        if !self.json {
            return;
        }
        let message = received.message().ok();
        let line = DeliveryLine {
            id: message
                .as_ref()
                .map_or(received.id(), |message| &message.id),
            source_id: message.as_ref().map(|message| &*message.source_id),
            tenant_id: message
                .as_ref()
                .and_then(|message| message.tenant_id.as_deref()),
            redelivery_count: received.redelivery_count(),
            outcome: settlement.as_str(),
            settled: result.is_ok(),
            error: failed.or(note),
        };
        let line = serde_json::to_string(&line).expect("strings and numbers are JSON");
        print(&format!("{line}\n"));
    }

    fn handler_panicked(&self, received: &Received) {
        self.note(received, "the handler panicked".to_owned());
    }

    fn handler_timed_out(&self, received: &Received) {
        self.note(
            received,
            "the handler took longer than handler.timeout_ms".to_owned(),
        );
    }

    fn receive_failed(&self, error: &SourceError, in_a_row: u64, pause: Duration) {
        self.log.receive_failed(error, in_a_row, pause);
    }

    fn receive_recovered(&self, failures: u64) {
        self.log.receive_recovered(failures);
    }
}

/// The report in words.
pub(crate) fn summary(report: &ConsumerReport) -> String {
    let mut text = format!(
        "{} received: {} acked, {} retried, {} dropped",
        report.received, report.acked, report.retried, report.dropped
    );
    for (count, what) in [
        (report.given_back, "given back unhandled"),
        (report.abandoned, "given back at the deadline"),
        (report.unsettled, "not known to be settled"),
        (report.failed_receives, "failed receives"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}
