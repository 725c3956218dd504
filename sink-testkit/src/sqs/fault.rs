//! Faults to play, and when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::damage::Damage;
use super::entry_fault::{EntryFault, EntryFaults, EntrySelector};
use super::hold::{Gate, Hold};
use super::operation::Operation;

/// Something that goes wrong with one request.
///
/// A fault that takes the answer away says whether the operation was carried out first: it was not, unless
/// [`after_storing`](Self::after_storing) is called. Faults of a good answer are always of an operation that
/// was carried out.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until it is given to a server"]
pub struct Fault {
    pub(crate) before: Vec<Pause>,
    pub(crate) stores: bool,
    pub(crate) entries: EntryFaults,
    pub(crate) changes: Vec<Change>,
    pub(crate) after: Vec<Pause>,
    pub(crate) delivery: Delivery,
}

/// Time that passes.
#[derive(Clone, Debug)]
pub(crate) enum Pause {
    For(Duration),
    Until(Arc<Gate>),
}

/// How the answer gets to the client.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// Whole, and then the connection is closed without a word.
    CloseAfter,
    Cut,
    CutChunks,
    Normal,
    Replaced(Answer),
    Reset,
    Silence,
}

/// A change to a good answer.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Damaged(Damage),
    Foreign(String),
    Padded(usize),
    Reversed,
}

impl Fault {
    /// Another answer.
    pub const fn answer(answer: Answer) -> Self {
        Self::new(Delivery::Replaced(answer), false)
    }

    /// The connection is reset, and no answer comes.
    pub const fn reset() -> Self {
        Self::new(Delivery::Reset, false)
    }

    /// No answer ever comes, and the connection stays open.
    pub const fn silence() -> Self {
        Self::new(Delivery::Silence, false)
    }

    /// The operation is carried out, and of its answer only the first half comes before the connection is
    /// closed; its `content-length` promises all of it.
    pub const fn truncated() -> Self {
        Self::new(Delivery::Cut, true)
    }

    /// The same with chunks: the one that comes is whole, but the last one never comes.
    pub const fn truncated_chunks() -> Self {
        Self::new(Delivery::CutChunks, true)
    }

    /// The operation is carried out and answered, and then the connection is closed without notice.
    pub const fn close_after_answer() -> Self {
        Self::new(Delivery::CloseAfter, true)
    }

    /// The operation is carried out late.
    pub fn delay_before_storing(delay: Duration) -> Self {
        Self::normal().with_delay_before(delay)
    }

    /// The operation is carried out at once and answered late.
    pub fn delay_after_storing(delay: Duration) -> Self {
        let mut fault = Self::normal();
        fault.after.push(Pause::For(delay));
        fault
    }

    /// The operation waits at a gate before it is carried out.
    pub fn hold_before_storing(hold: &Hold) -> Self {
        Self::wait_before_storing(hold.gate())
    }

    /// The same, at the gate alone.
    pub fn wait_before_storing(gate: Arc<Gate>) -> Self {
        let mut fault = Self::normal();
        fault.before.push(Pause::Until(gate));
        fault
    }

    /// The operation is carried out, and its answer waits at a gate.
    pub fn hold_after_storing(hold: &Hold) -> Self {
        Self::wait_after_storing(hold.gate())
    }

    /// The same, at the gate alone.
    pub fn wait_after_storing(gate: Arc<Gate>) -> Self {
        let mut fault = Self::normal();
        fault.after.push(Pause::Until(gate));
        fault
    }

    /// Every result in the answer is damaged.
    pub fn damaged(damage: Damage) -> Self {
        Self::normal().with_change(Change::Damaged(damage))
    }

    /// The answer is a good one of more than so many bytes, in a member that no client knows.
    pub fn padded(bytes: usize) -> Self {
        Self::normal().with_change(Change::Padded(bytes))
    }

    /// The lists in the answer are in the reverse order.
    pub fn reversed() -> Self {
        Self::normal().with_change(Change::Reversed)
    }

    /// The answer to a batch also lists an id as successful that was not in the request.
    pub fn foreign_entry(id: impl Into<String>) -> Self {
        Self::normal().with_change(Change::Foreign(id.into()))
    }

    /// Something becomes of the chosen entries of a batch. The fault is for requests that have such an entry.
    pub fn entry(selector: EntrySelector, fault: EntryFault) -> Self {
        Self::normal().and_entry(selector, fault)
    }

    /// Something becomes of other entries as well.
    pub fn and_entry(mut self, selector: EntrySelector, fault: EntryFault) -> Self {
        self.entries.push(selector, fault);
        self
    }

    /// Damages every result too.
    pub fn and_damaged(self, damage: Damage) -> Self {
        self.with_change(Change::Damaged(damage))
    }

    /// Lets the operation be carried out before the fault takes its answer away.
    pub const fn after_storing(mut self) -> Self {
        self.stores = true;
        self
    }

    /// Waits before anything else.
    pub fn with_delay_before(mut self, delay: Duration) -> Self {
        self.before.push(Pause::For(delay));
        self
    }

    pub(crate) const fn normal() -> Self {
        Self::new(Delivery::Normal, true)
    }

    const fn new(delivery: Delivery, stores: bool) -> Self {
        Self {
            before: Vec::new(),
            stores,
            entries: EntryFaults::none(),
            changes: Vec::new(),
            after: Vec::new(),
            delivery,
        }
    }

    fn with_change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

impl Pause {
    pub(crate) async fn pass(&self) {
        match self {
            Self::For(delay) => tokio::time::sleep(*delay).await,
            Self::Until(gate) => gate.pass().await,
        }
    }
}

impl Change {
    pub(crate) fn apply(&self, answer: &mut Map<String, Value>) {
        match self {
            Self::Damaged(damage) => damage.apply_to_answer(answer),
            Self::Foreign(id) => {
                let entry = json!({
                    "Id": id,
                    "MessageId": "00000000-0000-4000-8000-000000000000",
                    "MD5OfMessageBody": "00000000000000000000000000000000",
                });
                let list = answer
                    .entry("Successful")
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(entry);
                }
            }
            Self::Padded(bytes) => {
                answer.insert("Padding".into(), "x".repeat(*bytes).into());
            }
            Self::Reversed => {
                for list in ["Successful", "Failed", "Messages"] {
                    if let Some(Value::Array(list)) = answer.get_mut(list) {
                        list.reverse();
                    }
                }
            }
        }
    }
}

/// Which requests a fault is for. Once, at the next such request, unless said otherwise.
#[derive(Clone, Debug)]
pub struct FaultRule {
    operation: Option<Operation>,
    queue: Option<String>,
    condition: Option<Condition>,
    /// Requests that still pass untouched.
    passing: u64,
    /// Requests that it is still for; nothing means all.
    left: Option<u64>,
    fault: Fault,
}

/// What a request has to be like.
#[derive(Clone)]
struct Condition(Arc<dyn Fn(&Value) -> bool + Send + Sync>);

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition(..)")
    }
}

impl FaultRule {
    /// A fault for requests of one operation.
    pub const fn on(operation: Operation, fault: Fault) -> Self {
        Self {
            operation: Some(operation),
            queue: None,
            condition: None,
            passing: 0,
            left: Some(1),
            fault,
        }
    }

    /// A fault for requests of any operation.
    pub const fn on_any(fault: Fault) -> Self {
        Self {
            operation: None,
            queue: None,
            condition: None,
            passing: 0,
            left: Some(1),
            fault,
        }
    }

    /// Is for requests about the queue of this name only.
    pub fn for_queue(mut self, name: impl Into<String>) -> Self {
        self.queue = Some(name.into());
        self
    }

    /// Is for requests only of which this is true, as JSON.
    pub fn when(mut self, condition: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Condition(Arc::new(condition)));
        self
    }

    /// Lets `count` requests pass first.
    pub const fn after(mut self, count: u64) -> Self {
        self.passing = count;
        self
    }

    /// Plays the fault `count` times.
    pub const fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// Plays the fault for as long as the server lives, or until its faults are cleared.
    pub const fn always(mut self) -> Self {
        self.left = None;
        self
    }

    fn concerns(&self, operation: Operation, body: &[u8], messages: &Messages<'_>) -> bool {
        if self.operation.is_some_and(|wanted| wanted != operation) {
            return false;
        }
        if self.queue.is_none() && self.condition.is_none() && self.fault.entries.is_empty() {
            return true;
        }
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let url = request.get("QueueUrl").and_then(Value::as_str);
        let name = url.and_then(|url| url.rsplit('/').next());
        let queue_fits = self.queue.is_none() || self.queue.as_deref() == name;
        let condition = self.condition.as_ref();
        let message_of = |handle: &str| messages(name?, handle);
        queue_fits
            && condition.is_none_or(|Condition(is_met)| is_met(&request))
            && (self.fault.entries.is_empty() || self.fault.entries.concern(&request, message_of))
    }
}

/// Finds the body of a message by its queue and its receipt handle.
type Messages<'a> = dyn Fn(&str, &str) -> Option<String> + 'a;

/// The rules of a server, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct FaultBook(Vec<FaultRule>);

impl FaultBook {
    pub(crate) fn push(&mut self, rule: FaultRule) {
        self.0.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Rules that still have something to play, those for ever aside.
    pub(crate) fn pending(&self) -> usize {
        self.0.iter().filter(|rule| rule.left.is_some()).count()
    }

    /// The fault for a request: that of the first rule which is for it and lets it not pass.
    pub(crate) fn next(
        &mut self,
        operation: Operation,
        body: &[u8],
        messages: &Messages<'_>,
    ) -> Option<Fault> {
        let index = self.0.iter_mut().position(|rule| {
            if rule.left == Some(0) || !rule.concerns(operation, body, messages) {
                return false;
            }
            if rule.passing > 0 {
                rule.passing -= 1;
                return false;
            }
            true
        })?;
        let rule = self.0.get_mut(index)?;
        let fault = rule.fault.clone();
        if let Some(left) = &mut rule.left {
            *left -= 1;
            if *left == 0 {
                self.0.remove(index);
            }
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(book: &mut FaultBook, operation: Operation, body: &[u8]) -> Option<Fault> {
        book.next(operation, body, &|_, _| None)
    }

    fn plays(book: &mut FaultBook, operation: Operation) -> bool {
        next(book, operation, b"{}").is_some()
    }

    #[test]
    fn a_rule_lets_requests_pass_then_plays_and_is_used_up() {
        let mut book = FaultBook::default();
        book.push(
            FaultRule::on(Operation::SendMessage, Fault::reset())
                .after(1)
                .times(2),
        );
        assert!(!plays(&mut book, Operation::ReceiveMessage));
        let played: Vec<bool> = (0..5)
            .map(|_| plays(&mut book, Operation::SendMessage))
            .collect();
        assert_eq!(played, [false, true, true, false, false]);
        assert_eq!(book.pending(), 0);
    }

    #[test]
    fn rules_are_used_in_the_order_in_which_they_were_given() {
        let mut book = FaultBook::default();
        book.push(FaultRule::on(Operation::SendMessage, Fault::reset()));
        book.push(FaultRule::on_any(Fault::silence()).always());
        let first = next(&mut book, Operation::SendMessage, b"{}").unwrap();
        assert!(matches!(first.delivery, Delivery::Reset));
        for _ in 0..3 {
            let next = next(&mut book, Operation::SendMessage, b"{}").unwrap();
            assert!(matches!(next.delivery, Delivery::Silence));
        }
    }

    #[test]
    fn a_rule_can_be_for_one_queue_by_url_or_name() {
        let mut book = FaultBook::default();
        book.push(FaultRule::on_any(Fault::reset()).for_queue("a").always());
        for (body, expected) in [
            (r#"{"QueueUrl":"http://127.0.0.1:1/000000000000/a"}"#, true),
            (r#"{"QueueUrl":"a"}"#, true),
            (
                r#"{"QueueUrl":"http://127.0.0.1:1/000000000000/aa"}"#,
                false,
            ),
            (r#"{"QueueName":"a"}"#, false),
            ("not json", false),
        ] {
            let played = next(&mut book, Operation::SendMessage, body.as_bytes()).is_some();
            assert_eq!(played, expected, "{body}");
        }
    }

    #[test]
    fn a_fault_of_an_entry_waits_for_a_request_that_has_it() {
        let mut book = FaultBook::default();
        let fault = Fault::entry(
            EntrySelector::body(|body| body == "four"),
            EntryFault::failed("InternalError", false),
        );
        book.push(FaultRule::on(Operation::SendMessageBatch, fault));
        let without = br#"{"Entries":[{"Id":"0","MessageBody":"three"}]}"#;
        let with = br#"{"Entries":[{"Id":"0","MessageBody":"four"}]}"#;
        assert!(next(&mut book, Operation::SendMessageBatch, without).is_none());
        assert!(next(&mut book, Operation::SendMessageBatch, with).is_some());
        assert!(next(&mut book, Operation::SendMessageBatch, with).is_none());
    }
}
