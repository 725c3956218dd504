//! The broker: places, connections, and requests that wait.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::HostServices;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::place::{Place, PlaceKind, Stored};
use super::script::QueueScript;
use super::wire::{
    QueueCall, QueueFailure, QueueMessage, QueueReply, QueueRequest, QueueWire, ReceiveCall,
    RedrivePolicy,
};
use crate::conformance::StoredMessage;
use crate::conformance::source::RawMessage;
use crate::reference::WireError;
use crate::reference::broker::{KEYS, STRANGER, proof};

/// The most messages of a request.
pub(super) const MAX_ENTRIES: usize = 10;

/// A broker in memory, for consumers. Its clock is tokio's.
pub struct QueueBroker {
    state: Mutex<State>,
    script: QueueScript,
    services: HostServices,
    /// Something may be handed out that could not before, or a connection ended.
    changed: Notify,
    handles: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    places: BTreeMap<String, Place>,
    connections: HashSet<u64>,
    /// Those that the next request finds broken.
    broken: HashSet<u64>,
    connected: u64,
    put: u64,
}

/// A message to be put, with what only a copy has.
#[derive(Debug)]
pub(super) struct NewMessage {
    pub(super) body: Bytes,
    pub(super) attributes: Vec<(String, Bytes)>,
    pub(super) key: Option<String>,
    pub(super) attempts: u32,
    pub(super) not_before: Option<Instant>,
    pub(super) only_for: Option<String>,
}

impl QueueBroker {
    /// A broker without places.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            script: QueueScript::default(),
            services: HostServices::new(),
            changed: Notify::new(),
            handles: AtomicU64::new(0),
        }
    }

    /// Creates an empty place.
    pub fn create(&self, name: &str, kind: PlaceKind) {
        self.state()
            .places
            .insert(name.to_owned(), Place::new(kind));
    }

    /// The names of all places.
    #[must_use]
    pub fn places(&self) -> Vec<String> {
        self.state().places.keys().cloned().collect()
    }

    /// Puts messages, in order; whether there is such a place.
    pub fn put(&self, place: &str, messages: &[RawMessage]) -> bool {
        let new = messages.iter().map(|message| NewMessage {
            body: message.body.clone(),
            attributes: message
                .attributes
                .iter()
                .map(|(name, value)| (name.clone(), Bytes::from(value.clone())))
                .collect(),
            key: message.key.clone(),
            attempts: 0,
            not_before: None,
            only_for: None,
        });
        let mut is_there = self.state().places.contains_key(place);
        for message in new {
            is_there &= self.put_one(place, message).is_some();
        }
        is_there
    }

    /// Puts a message; its id, where the place is there.
    pub(super) fn put_one(&self, place: &str, new: NewMessage) -> Option<String> {
        let sent_at = self.services.now();
        let mut state = self.state();
        state.put += 1;
        let id = format!("message-{:08}", state.put);
        let message = Arc::new(Stored {
            id: id.clone(),
            body: new.body,
            attributes: new.attributes,
            key: new.key,
            sent_at,
            attempts: new.attempts,
            not_before: new.not_before,
            only_for: new.only_for,
        });
        let place = state.places.get_mut(place)?;
        place.put(&message, Instant::now());
        drop(state);
        self.changed.notify_waiters();
        Some(id)
    }

    /// How many messages the group has not consumed for good.
    #[must_use]
    pub fn unsettled(&self, place: &str, group: &str) -> usize {
        let state = self.swept();
        let place = state.places.get(place);
        place.map_or(0, |place| place.unsettled(group))
    }

    /// How many messages of the group are held.
    #[must_use]
    pub fn in_hand(&self, place: &str, group: &str) -> usize {
        let state = self.swept();
        let place = state.places.get(place);
        place.map_or(0, |place| place.in_hand(group))
    }

    /// What was put and is not consumed by every group.
    #[must_use]
    pub fn stored(&self, place: &str) -> Vec<StoredMessage> {
        let state = self.swept();
        let place = state.places.get(place);
        let messages = place.map_or_else(Vec::new, Place::stored);
        messages.iter().map(|message| shown(message)).collect()
    }

    /// The redrive policy of a place.
    #[must_use]
    pub fn redrive(&self, place: &str) -> Option<RedrivePolicy> {
        self.state().places.get(place)?.redrive.clone()
    }

    /// Ends every hold on messages of the place.
    pub fn expire(&self, place: &str) {
        if let Some(place) = self.state().places.get_mut(place) {
            place.expire();
        }
        self.changed.notify_waiters();
    }

    /// Ends every connection: the next request of each finds that out, once. What is stored
    /// and what is held stays.
    pub fn restart(&self) {
        {
            let mut state = self.state();
            state.broken = state.connections.clone();
        }
        self.changed.notify_waiters();
    }

    /// A connection, until it is dropped.
    #[must_use]
    pub fn connect(self: &Arc<Self>) -> Arc<dyn QueueWire> {
        let mut state = self.state();
        state.connected += 1;
        let number = state.connected;
        state.connections.insert(number);
        drop(state);
        Arc::new(Connection {
            broker: Arc::clone(self),
            number,
        })
    }

    pub(super) fn script(&self) -> &QueueScript {
        &self.script
    }

    /// The body of the message with this handle.
    pub(super) fn body_of(&self, request: &QueueRequest, handle: &str) -> Option<Bytes> {
        let state = self.state();
        let place = state.places.get(&request.place)?;
        place.body_of(&request.group, handle)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, with spent messages where they belong.
    fn swept(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state.sweep() {
            self.changed.notify_waiters();
        }
        state
    }

    fn is_broken(&self, connection: u64) -> bool {
        self.state().broken.remove(&connection)
    }

    /// Carries out a request.
    pub(super) async fn carry_out(
        &self,
        request: &QueueRequest,
        connection: u64,
    ) -> Result<QueueReply, WireError> {
        if let Err(code) = self.checked(request) {
            return Ok(QueueReply::Failed(QueueFailure::new(code)));
        }
        let QueueCall::Receive(call) = &request.call else {
            let reply = self.state().settle(request);
            self.changed.notify_waiters();
            return Ok(reply);
        };
        let asked = Instant::now();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look, so that what is put in between still wakes this.
            changed.as_mut().enable();
            let messages = self.receive(request, call, connection);
            let now = Instant::now();
            if !messages.is_empty() || now >= asked + call.wait {
                let waited = now - asked;
                return Ok(QueueReply::Messages { messages, waited });
            }
            let next = self.next_ready(request).unwrap_or(asked + call.wait);
            tokio::select! {
                () = changed => {}
                () = sleep_until(next.min(asked + call.wait)) => {}
            }
            if self.is_broken(connection) {
                return Err(WireError::Lost);
            }
        }
    }

    fn receive(
        &self,
        request: &QueueRequest,
        call: &ReceiveCall,
        connection: u64,
    ) -> Vec<QueueMessage> {
        let mut state = self.swept();
        let Some(place) = state.places.get_mut(&request.place) else {
            return Vec::new();
        };
        place.release(&request.group, connection, &call.unanswered);
        place.hand_out(&request.group, call, connection, || {
            let number = self.handles.fetch_add(1, Ordering::SeqCst);
            format!("handle-{number:08}")
        })
    }

    fn next_ready(&self, request: &QueueRequest) -> Option<Instant> {
        let state = self.state();
        state.places.get(&request.place)?.next_ready(&request.group)
    }

    fn checked(&self, request: &QueueRequest) -> Result<(), &'static str> {
        let mut keys = KEYS.iter();
        let key = keys.find(|(key_id, _)| *key_id == request.key_id);
        if key.is_none_or(|(key_id, secret)| proof(key_id, secret) != request.proof) {
            return Err("BadProof");
        }
        if request.key_id == STRANGER {
            return Err("AccessDenied");
        }
        let state = self.state();
        if !state.places.contains_key(&request.place) {
            return Err("Missing");
        }
        match &request.call {
            QueueCall::Receive(call) if call.max == 0 || call.max > MAX_ENTRIES => {
                Err("InvalidCount")
            }
            QueueCall::Ack(_) | QueueCall::Return(_) | QueueCall::Extend(_)
                if !(1..=MAX_ENTRIES).contains(&request.call.handles().len()) =>
            {
                Err("InvalidCount")
            }
            QueueCall::SetRedrive(policy) if policy.dead_letter == request.place => {
                Err("DeadLetterIsSource")
            }
            QueueCall::SetRedrive(policy) if !state.places.contains_key(&policy.dead_letter) => {
                Err("DeadLetterMissing")
            }
            _ => Ok(()),
        }
    }
}

impl State {
    /// Moves spent messages; whether there were any.
    fn sweep(&mut self) -> bool {
        let mut moved = Vec::new();
        for place in self.places.values_mut() {
            if let Some(policy) = place.redrive.clone() {
                let spent = place.take_spent().into_iter();
                moved.extend(spent.map(|message| (policy.dead_letter.clone(), message)));
            }
        }
        for (name, message) in &moved {
            if let Some(place) = self.places.get_mut(name) {
                place.put(message, Instant::now());
            }
        }
        !moved.is_empty()
    }

    /// Everything but a receive.
    fn settle(&mut self, request: &QueueRequest) -> QueueReply {
        let Some(place) = self.places.get_mut(&request.place) else {
            return QueueReply::Failed(QueueFailure::new("Missing"));
        };
        let group = &request.group;
        let mut changed = |changes: &[super::wire::HoldChange], gives_back: bool| {
            let answers = changes
                .iter()
                .map(|change| place.change(group, &change.handle, change.time, gives_back));
            QueueReply::Answers(answers.collect())
        };
        match &request.call {
            QueueCall::Return(changes) => changed(changes, true),
            QueueCall::Extend(changes) => changed(changes, false),
            QueueCall::Ack(handles) => {
                let answers = handles.iter().map(|handle| place.ack(group, handle));
                QueueReply::Answers(answers.collect())
            }
            QueueCall::Open => {
                place.open(group, Instant::now());
                QueueReply::Done
            }
            QueueCall::SetRedrive(policy) => {
                place.redrive = Some(policy.clone());
                QueueReply::Done
            }
            QueueCall::Receive(_) => QueueReply::Messages {
                messages: Vec::new(),
                waited: Duration::ZERO,
            },
        }
    }
}

fn shown(message: &Stored) -> StoredMessage {
    let mut stored = StoredMessage::new(message.body.clone());
    stored.attributes = message.attributes.clone();
    stored.key = message.key.clone();
    stored.provider_id = Some(message.id.clone());
    stored
}

impl Default for QueueBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QueueBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBroker")
            .field("places", &self.places())
            .finish_non_exhaustive()
    }
}

/// One connection to the broker.
struct Connection {
    broker: Arc<QueueBroker>,
    number: u64,
}

#[async_trait]
impl QueueWire for Connection {
    async fn call(&self, request: QueueRequest) -> Result<QueueReply, WireError> {
        // A reply takes a turn of the scheduler, as on any wire.
        tokio::task::yield_now().await;
        if self.broker.is_broken(self.number) {
            return Err(WireError::Lost);
        }
        let script = self.broker.script();
        script.play(&self.broker, request, self.number).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.broker.state();
        state.connections.remove(&self.number);
        state.broken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
