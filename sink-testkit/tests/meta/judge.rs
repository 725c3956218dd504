//! Histories whose judgement is known.

use std::num::NonZeroUsize;

use dispatch_api::{DeliveryContext, Envelope, EnvelopeId, Message, Outcome, Receipt, SinkError};
use sink_testkit::conformance::{Duplicates, History, StoredMessage};

/// What became of one attempt.
#[derive(Clone, Copy)]
enum Became {
    Acknowledged,
    Refused,
    Unknown,
    /// Its caller went away.
    Unanswered,
}

use Became::{Acknowledged, Refused, Unanswered, Unknown};
use Duplicates::{Forbidden, OnePerAttempt};

fn id(number: u8) -> EnvelopeId {
    EnvelopeId::v7(1_767_225_600_123, &[number; 10])
}

/// The message of this number, as a destination holds it.
fn stored(number: u8) -> StoredMessage {
    let envelope = Envelope::new(id(number), "harbor", 0, "{}");
    let ctx = DeliveryContext::direct();
    let message = Message::for_delivery(&envelope, &ctx, NonZeroUsize::MAX).unwrap();
    StoredMessage::new(message.encode())
}

/// Judges attempts over the numbers that arrived; `ok`, or at which step it fails.
fn judged(attempts: &[(u8, Became)], arrived: &[u8], duplicates: Duplicates) -> String {
    let arrived: Vec<StoredMessage> = arrived.iter().map(|number| stored(*number)).collect();
    match history(attempts).judge(&arrived, duplicates) {
        Ok(()) => "ok".to_owned(),
        Err(failure) => failure.step().to_owned(),
    }
}

fn history(attempts: &[(u8, Became)]) -> History {
    let mut history = History::new();
    for (number, became) in attempts {
        let id = id(*number).to_string();
        history.attempted(&id);
        let error = |outcome| Err(SinkError::transient(outcome, "Busy", "later"));
        match became {
            Acknowledged => history.answered(&id, &Ok(Receipt::new())),
            Refused => history.answered(&id, &error(Outcome::NotStored)),
            Unknown => history.answered(&id, &error(Outcome::Unknown)),
            Unanswered => {}
        }
    }
    history
}

type Row = (&'static [(u8, Became)], &'static [u8], Duplicates);

pub(crate) fn good_histories_pass() {
    let good: [Row; 10] = [
        (&[], &[], Forbidden),
        (&[(1, Acknowledged), (2, Acknowledged)], &[1, 2], Forbidden),
        // The order is judged elsewhere.
        (&[(1, Acknowledged), (2, Acknowledged)], &[2, 1], Forbidden),
        (&[(1, Refused)], &[], Forbidden),
        (&[(1, Unknown)], &[], Forbidden),
        (&[(1, Unknown)], &[1], Forbidden),
        (&[(1, Unanswered), (2, Unanswered)], &[2], Forbidden),
        (&[(1, Refused), (1, Acknowledged)], &[1], Forbidden),
        (&[(1, Unknown), (1, Acknowledged)], &[1, 1], OnePerAttempt),
        (&[(1, Unknown), (1, Unknown)], &[1, 1], OnePerAttempt),
    ];
    for (index, (attempts, arrived, duplicates)) in good.iter().enumerate() {
        assert_eq!(
            judged(attempts, arrived, *duplicates),
            "ok",
            "history {index}"
        );
    }
}

pub(crate) fn bad_histories_fail_for_what_is_wrong_with_them() {
    let bad: [(&str, Row); 10] = [
        ("lost", (&[(1, Acknowledged)], &[], Forbidden)),
        (
            "lost",
            (&[(1, Unknown), (1, Acknowledged)], &[], OnePerAttempt),
        ),
        ("lost", (&[(1, Acknowledged), (1, Refused)], &[], Forbidden)),
        ("phantom", (&[], &[1], Forbidden)),
        ("phantom", (&[(1, Acknowledged)], &[1, 2], OnePerAttempt)),
        ("leaked refusal", (&[(1, Refused)], &[1], Forbidden)),
        (
            "leaked refusal",
            (&[(1, Refused), (1, Refused)], &[1], OnePerAttempt),
        ),
        ("duplicate", (&[(1, Acknowledged)], &[1, 1], Forbidden)),
        (
            "duplicate",
            (&[(1, Unknown), (1, Acknowledged)], &[1, 1], Forbidden),
        ),
        (
            "duplicate",
            (&[(1, Refused), (1, Acknowledged)], &[1, 1], OnePerAttempt),
        ),
    ];
    for (index, (step, (attempts, arrived, duplicates))) in bad.iter().enumerate() {
        assert_eq!(
            judged(attempts, arrived, *duplicates),
            *step,
            "history {index}"
        );
    }
}

pub(crate) fn a_duplicate_does_not_hide_a_loss() {
    // As many arrive as were acknowledged.
    let attempts = [(1, Acknowledged), (2, Acknowledged), (2, Unknown)];
    assert_eq!(judged(&attempts, &[2, 2], OnePerAttempt), "lost");
}

pub(crate) fn what_is_unknown_and_arrives_is_recovered() {
    let recovered = |attempts: &[(u8, Became)], arrived: &[u8]| {
        let arrived: Vec<StoredMessage> = arrived.iter().map(|number| stored(*number)).collect();
        history(attempts).recovered(&arrived)
    };
    assert_eq!(recovered(&[(1, Unknown)], &[1]), 1);
    assert_eq!(recovered(&[(1, Unknown), (1, Unknown)], &[1, 1]), 1);
    assert_eq!(recovered(&[(1, Refused), (1, Unknown)], &[1]), 1);
    assert_eq!(recovered(&[(1, Unknown)], &[]), 0);
    // Neither a success, nor what nobody waited for, nor what leaked was in doubt.
    assert_eq!(recovered(&[(1, Unknown), (1, Acknowledged)], &[1]), 0);
    assert_eq!(recovered(&[(1, Unanswered)], &[1]), 0);
    assert_eq!(recovered(&[(1, Refused)], &[1]), 0);
}

pub(crate) fn what_is_no_message_is_an_error() {
    let whole = stored(1).body;
    let half = whole.slice(..whole.len() / 2);
    for body in [
        "".into(),
        "hello".into(),
        "[]".into(),
        "{\"v\":1}".into(),
        half,
    ] {
        let mut history = History::new();
        history.attempted(&id(1).to_string());
        let judged = history.judge(&[StoredMessage::new(body)], OnePerAttempt);
        let failure = judged.err().map(|failure| failure.step().to_owned());
        assert_eq!(failure.as_deref(), Some("what arrived"));
    }
}
