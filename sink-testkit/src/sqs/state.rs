//! All queues of a server, and what is true across them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::clock::Timestamp;
use super::error::{ServiceError, invalid_parameter, queue_does_not_exist};
use super::limits::{COOL_DOWN, DEDUPLICATION_WINDOW, FIFO_ENDING};
use super::message::StoredMessage;
use super::queue::{Attempt, Queue};
use super::queue_attributes::QueueAttributes;
use super::queue_url::Site;
use super::receipt_handle::ReceiptHandle;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) site: Site,
    pub(crate) queues: BTreeMap<String, Queue>,
    pub(crate) limits: Limits,
    deleted: HashMap<String, Timestamp>,
    random: fastrand::Rng,
    handle_key: u64,
    next_queue: u64,
    next_receipt: u64,
    next_sequence: u128,
}

/// Limits that a test may want lower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Messages in flight in one queue.
    pub(crate) in_flight: usize,
    /// Bytes of the messages of a batch together.
    pub(crate) batch_bytes: usize,
}

/// Sequence numbers are seen as 20 digits that grow with gaps.
const FIRST_SEQUENCE: u128 = 18_850_000_000_000_000_256;
const SEQUENCE_STEP: u128 = 256;

/// What a receive is asked for, and with which ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive<'a> {
    pub(crate) maximum: usize,
    pub(crate) visibility: Duration,
    pub(crate) attempt_id: Option<&'a str>,
}

/// A message as one receive got it.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) handle: String,
    pub(crate) message: StoredMessage,
}

/// What a receive found.
#[derive(Debug)]
pub(crate) enum Found {
    Messages(Vec<Delivered>),
    /// The queue has as many messages in flight as it may.
    TooManyInFlight,
}

impl State {
    pub(crate) fn new(site: Site, limits: Limits, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            site,
            queues: BTreeMap::new(),
            limits,
            deleted: HashMap::new(),
            handle_key: random.u64(..),
            random,
            next_queue: 0,
            next_receipt: 0,
            next_sequence: FIRST_SEQUENCE,
        }
    }

    /// A queue that exists, with what is too old removed from it.
    pub(crate) fn queue(&mut self, name: &str, now: Timestamp) -> Result<&mut Queue, ServiceError> {
        let queue = self.queues.get_mut(name).ok_or_else(queue_does_not_exist)?;
        queue.expire(now);
        Ok(queue)
    }

    pub(crate) fn insert_queue(&mut self, name: &str, attributes: QueueAttributes, now: Timestamp) {
        self.next_queue += 1;
        let arn = self.site.queue_arn(name);
        let queue = Queue::new(self.next_queue, arn, attributes, now);
        self.queues.insert(name.to_owned(), queue);
    }

    pub(crate) fn remove_queue(&mut self, name: &str, now: Timestamp) {
        self.queues.remove(name);
        self.deleted.retain(|_, at| now.since(*at) < COOL_DOWN);
        self.deleted.insert(name.to_owned(), now);
    }

    pub(crate) fn was_deleted_recently(&self, name: &str, now: Timestamp) -> bool {
        self.deleted
            .get(name)
            .is_some_and(|at| now.since(*at) < COOL_DOWN)
    }

    /// A random id in the form of a version 4 UUID.
    pub(crate) fn uuid(&mut self) -> String {
        uuid_from(self.random.u128(..))
    }

    pub(crate) fn next_sequence(&mut self) -> u128 {
        let sequence = self.next_sequence;
        self.next_sequence += SEQUENCE_STEP;
        sequence
    }

    pub(crate) fn decode_handle(&self, text: &str, queue_uid: u64) -> Option<ReceiptHandle> {
        ReceiptHandle::decode(text, self.handle_key).filter(|handle| handle.queue == queue_uid)
    }

    /// The body of the message that a queue gave a handle of, while it is there.
    pub(crate) fn message_of(&self, queue: &str, handle: &str) -> Option<String> {
        let queue = self.queues.get(queue)?;
        let handle = self.decode_handle(handle, queue.uid)?;
        Some(queue.message(handle.arrival)?.body.clone())
    }

    /// Checks a redrive policy against the queue that it names.
    pub(crate) fn check_redrive(
        &self,
        name: &str,
        attributes: &QueueAttributes,
    ) -> Result<(), ServiceError> {
        let Some(policy) = &attributes.redrive else {
            return Ok(());
        };
        let target = self.site.name_in_arn(&policy.target_arn).ok_or_else(|| {
            invalid_parameter("RedrivePolicy: the target is no queue of this region and account")
        })?;
        if target.ends_with(FIFO_ENDING) != name.ends_with(FIFO_ENDING) {
            return Err(invalid_parameter(
                "RedrivePolicy: the target must be of the same type as the queue",
            ));
        }
        if target == name {
            return Ok(());
        }
        let target = self
            .queues
            .get(target)
            .ok_or_else(|| invalid_parameter("RedrivePolicy: the target does not exist"))?;
        let source_arn = self.site.queue_arn(name);
        match &target.attributes.redrive_allow {
            Some(allow) if !allow.allows(&source_arn) => Err(invalid_parameter(
                "RedrivePolicy: the target does not allow this queue",
            )),
            _ => Ok(()),
        }
    }

    /// Takes messages from a queue, and moves those that were received too often to its dead-letter queue.
    pub(crate) fn receive(
        &mut self,
        name: &str,
        receive: Receive<'_>,
        now: Timestamp,
    ) -> Result<Found, ServiceError> {
        if let Some(id) = receive.attempt_id
            && let Some(delivered) = self.repeated(name, id, receive.visibility, now)?
        {
            return Ok(Found::Messages(delivered));
        }
        let limit = self.limits.in_flight;
        let queue = self.queue(name, now)?;
        let room = limit.saturating_sub(queue.in_flight(now));
        if room == 0 {
            return Ok(Found::TooManyInFlight);
        }
        let wanted = receive.maximum.min(room);
        // A queue can be its own dead-letter queue: what is moved in this receive is not looked at again.
        let end = queue.next_arrival();
        let mut cursor = queue.cursor();
        let mut handles = Vec::new();
        while handles.len() < wanted {
            let queue = self.queue(name, now)?;
            let Some(arrival) = queue.next_candidate(&mut cursor, now) else {
                break;
            };
            let taken = arrival >= end
                || handles
                    .iter()
                    .any(|handle: &ReceiptHandle| handle.arrival == arrival);
            if taken || self.move_if_exhausted(name, arrival, now) {
                continue;
            }
            self.next_receipt += 1;
            let number = self.next_receipt;
            let queue = self.queue(name, now)?;
            queue.receive(arrival, number, now, receive.visibility);
            handles.push(ReceiptHandle {
                queue: queue.uid,
                arrival,
                number,
            });
        }
        let delivered = self.delivered(name, &handles, now)?;
        if let Some(id) = receive.attempt_id
            && !handles.is_empty()
        {
            let attempt = Attempt {
                at: now,
                delivered: handles,
            };
            self.queue(name, now)?
                .attempts
                .insert(id.to_owned(), attempt);
        }
        Ok(Found::Messages(delivered))
    }

    fn repeated(
        &mut self,
        name: &str,
        id: &str,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Option<Vec<Delivered>>, ServiceError> {
        let queue = self.queue(name, now)?;
        queue
            .attempts
            .retain(|_, attempt| now.since(attempt.at) < DEDUPLICATION_WINDOW);
        let Some(attempt) = queue.attempts.remove(id) else {
            return Ok(None);
        };
        let repeated = queue.repeat(&attempt.delivered, now, visibility);
        let handles = attempt.delivered.clone();
        queue.attempts.insert(id.to_owned(), attempt);
        repeated?;
        self.delivered(name, &handles, now).map(Some)
    }

    fn delivered(
        &mut self,
        name: &str,
        handles: &[ReceiptHandle],
        now: Timestamp,
    ) -> Result<Vec<Delivered>, ServiceError> {
        let key = self.handle_key;
        let queue = self.queue(name, now)?;
        Ok(handles
            .iter()
            .filter_map(|handle| {
                Some(Delivered {
                    handle: handle.encode(key),
                    message: queue.message(handle.arrival)?.clone(),
                })
            })
            .collect())
    }

    /// Moves a message that would be delivered once too often. A target that is gone moves nothing.
    fn move_if_exhausted(&mut self, name: &str, arrival: u64, now: Timestamp) -> bool {
        let Some(queue) = self.queues.get(name) else {
            return false;
        };
        let Some(policy) = &queue.attributes.redrive else {
            return false;
        };
        let exhausted = queue
            .message(arrival)
            .is_some_and(|message| message.receive_count >= policy.max_receive_count);
        let Some(target) = self.site.name_in_arn(&policy.target_arn).map(str::to_owned) else {
            return false;
        };
        if !exhausted || !self.queues.contains_key(&target) {
            return false;
        }
        let is_fifo = queue.is_fifo();
        let source_arn = queue.arn.clone();
        let sequence_number = is_fifo.then(|| self.next_sequence());
        let Some(message) = self
            .queues
            .get_mut(name)
            .and_then(|queue| queue.remove(arrival))
        else {
            return false;
        };
        // A standard queue keeps the time of the original, which its retention goes on counting from.
        let (sent_at, retained_from) = if is_fifo {
            (now, now)
        } else {
            (message.sent_at, message.retained_from)
        };
        let moved = StoredMessage {
            sequence_number,
            sent_at,
            retained_from,
            visible_at: now,
            source_arn: Some(source_arn),
            receipt: None,
            ..message
        };
        if let Some(target) = self.queues.get_mut(&target) {
            target.push(moved);
        }
        true
    }
}

pub(crate) fn uuid_from(random: u128) -> String {
    let versioned = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{versioned:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_a_version_4_uuid() {
        assert_eq!(uuid_from(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_from(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
