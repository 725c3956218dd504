//! The contract between a host and a sink.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::context::DeliveryContext;
use crate::drain::DrainReport;
use crate::envelope::Envelope;
use crate::error::{Outcome, SinkError};

/// A destination for messages: a queue, a stream, a topic.
///
/// # What a sink guarantees
///
/// - **`Ok` means stored.** For a [durable](Sink::durable) sink the destination
///   itself has confirmed that it holds this very message. Nothing else is `Ok`.
/// - **Every error says what to do**: its class, and whether the destination may
///   hold the message all the same ([`Outcome`]).
/// - **It repeats nothing on its own.** One delivery is at most one send that
///   the destination may have seen. The retry policy is the host's.
/// - **It never creates its destination.** A missing one is a `Config` error.
/// - **It alters nothing.** The message is [`Message::for_delivery`], byte for byte.
/// - **It is bounded** in memory, connections and time, also when the
///   destination never answers.
///
/// # What the caller guarantees
///
/// - It asks again after `RetryAfter` no sooner than told, after `Transient` by
///   its policy, and never after `Permanent` or `Config` with nothing changed.
/// - It keeps to [`Sink::admission`].
/// - It contains panics: [`deliver_contained`] does.
///
/// # Concurrency
///
/// Every method may be called from any task, concurrently. Deliveries started in
/// order for one ordering key arrive in that order only when
/// [`Guarantees::ordering`] says so.
///
/// # Cancellation
///
/// Nothing happens before the first poll of [`Sink::deliver`]. Dropping the
/// future later leaves the outcome unknown: the message is stored once or not at
/// all. Neighbours and the sink itself are not affected.
///
/// [`Message::for_delivery`]: crate::Message::for_delivery
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync + 'static {
    /// Delivers one envelope, and returns when the answer is known.
    ///
    /// # Errors
    ///
    /// [`SinkError`]; after [`Sink::drain`], `Transient` with code `SinkClosed`.
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError>;

    /// Whether `Ok` means that the destination stores the message, so that a
    /// host may forget it.
    fn durable(&self) -> bool {
        true
    }

    /// The largest body in bytes that this sink carries inside its message; a
    /// larger one needs [`DeliveryContext::claim`]. `None`: any size goes inside.
    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        None
    }

    /// What the sink promises, as data.
    fn guarantees(&self) -> Guarantees;

    /// Who bounds the number of deliveries that run at once.
    fn admission(&self) -> Admission {
        Admission::HostLimited
    }

    /// Where the sink delivers to, for documentation such as AsyncAPI. Never a
    /// credential.
    fn describe(&self) -> Option<Description> {
        None
    }

    /// Sends at once what waits for others, such as in a batch that fills, and returns
    /// without waiting. Closes nothing: later deliveries may wait again. A host calls it
    /// again and again while it waits for deliveries to end.
    ///
    /// A sink that sends each delivery by itself has nothing to do. One that wraps another
    /// passes the call on.
    fn flush(&self) {}

    /// Takes no more deliveries, finishes those that run without letting them wait for
    /// others, and returns when all are answered or the deadline has come. What is not
    /// under way at the deadline is answered `SinkClosed`. Calling it again is harmless.
    async fn drain(&self, deadline: Instant) -> DrainReport;
}

/// The destination's confirmation of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The destination's own id of the stored message.
    pub provider_id: Option<String>,
    /// Its place in the destination's order, as the destination writes it.
    pub sequence: Option<String>,
}

impl Receipt {
    /// A confirmation without particulars.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the destination's id of the message.
    #[must_use]
    pub fn with_provider_id(mut self, id: impl Into<String>) -> Self {
        self.provider_id = Some(id.into());
        self
    }

    /// Adds the place in the destination's order.
    #[must_use]
    pub fn with_sequence(mut self, sequence: impl Into<String>) -> Self {
        self.sequence = Some(sequence.into());
        self
    }
}

/// What a sink promises, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// `Ok` means stored by the destination.
    pub durable: bool,
    /// In which order deliveries arrive.
    pub ordering: Ordering,
    /// For how long the destination recognises a repeated delivery of the same
    /// envelope; `None`: never. Beyond it delivery is at least once.
    pub dedup_window: Option<Duration>,
    /// The largest message in bytes, metadata included as the destination counts
    /// it; `None`: not bounded by the sink.
    pub max_message_bytes: Option<usize>,
    /// How many pairs of metadata a message can carry; `None`: not bounded.
    pub max_attributes: Option<usize>,
}

impl Guarantees {
    /// No promise but durability.
    #[must_use]
    pub const fn new(durable: bool) -> Self {
        Self {
            durable,
            ordering: Ordering::None,
            dedup_window: None,
            max_message_bytes: None,
            max_attributes: None,
        }
    }

    /// Sets the order promised.
    #[must_use]
    pub const fn with_ordering(mut self, ordering: Ordering) -> Self {
        self.ordering = ordering;
        self
    }

    /// Sets the time within which repeats are recognised.
    #[must_use]
    pub const fn with_dedup_window(mut self, window: Duration) -> Self {
        self.dedup_window = Some(window);
        self
    }

    /// Sets the largest message.
    #[must_use]
    pub const fn with_max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = Some(bytes);
        self
    }

    /// Sets how many pairs of metadata a message can carry.
    #[must_use]
    pub const fn with_max_attributes(mut self, count: usize) -> Self {
        self.max_attributes = Some(count);
        self
    }
}

/// In which order deliveries arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ordering {
    /// None is promised.
    None,
    /// Deliveries of one ordering key arrive in the order in which they were
    /// answered `Ok`: a caller that awaits each before it starts the next has
    /// its order kept.
    PerKeyWhenAwaited,
    /// Deliveries of one ordering key arrive in the order of their first poll,
    /// also when they run concurrently.
    PerKey,
}

/// Who bounds the number of deliveries that run at once.
///
/// Closed on purpose: a host has to act on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The host: at most `sink_concurrency`.
    HostLimited,
    /// The sink bounds itself and refuses what is too much with `RetryAfter`; the host
    /// hands it deliveries freely, or no batch would ever fill.
    SelfLimited,
}

/// Where a sink delivers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The protocol, such as `sqs`.
    pub protocol: String,
    /// The server, such as an endpoint without credentials.
    pub server: String,
    /// The address at that server, such as the queue's name.
    pub address: String,
    /// Further particulars.
    pub properties: BTreeMap<String, String>,
}

impl Description {
    /// A description without further particulars.
    pub fn new(
        protocol: impl Into<String>,
        server: impl Into<String>,
        address: impl Into<String>,
    ) -> Self {
        Self {
            protocol: protocol.into(),
            server: server.into(),
            address: address.into(),
            properties: BTreeMap::new(),
        }
    }

    /// Adds a particular.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }
}

/// Delivers, and turns a panic of the sink into an error, so that the host lives on.
///
/// # Errors
///
/// What the sink answers; for a panic, `Transient` with outcome `Unknown` and code
/// `SinkPanicked`. What the panic said is left to the panic hook, because it may
/// hold a payload.
pub async fn deliver_contained(
    sink: &dyn Sink,
    envelope: &Envelope,
    ctx: &DeliveryContext,
) -> Result<Receipt, SinkError> {
    // A sink is shared between tasks already: what a panic leaves behind in one
    // delivery is visible to others with or without this boundary.
    AssertUnwindSafe(async { sink.deliver(envelope, ctx).await })
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            Err(SinkError::transient(
                Outcome::Unknown,
                "SinkPanicked",
                "the sink panicked during this delivery",
            ))
        })
}

/// Runs what only tells of a delivery, such as a count of it, and keeps a panic of whoever
/// listens, such as a recorder of metrics, from the delivery: what the broker answered stays
/// the answer.
pub fn tell_contained(tell: impl FnOnce()) {
    // What a panic leaves behind is the listener's.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(tell));
}

/// Compiles only while a sink can be a trait object.
fn _sink_is_object_safe(_: Box<dyn Sink>) {}
