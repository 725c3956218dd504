//! Opening a subscription.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;

use super::delivery::Delivery;
use super::error::SourceError;
use crate::sink::Sink;

/// Where deliveries come from: a queue, a stream, a topic. It describes; nothing is
/// asked of the broker before [`Source::open`].
///
/// # What a source guarantees
///
/// - What is not acknowledged or dropped comes back: when its hold ends, or, where a broker
///   has no holds, to the next subscription.
/// - The source extends the holds of what it has handed out, from the receive on and until a
///   settlement begins or the delivery is dropped. A hold that ends anyway is told by the
///   delivery's [`Lease`](super::Lease).
/// - A message that does not fit the digest that came with it is not handed out.
/// - A plan that it cannot carry out keeps it from opening.
///
/// # What may run at once
///
/// A source may be opened several times, and its subscriptions share the messages of one
/// group. Every call to the broker ends in a time of the source's own.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Opens a subscription, and writes down at the broker what the plan says about spent
    /// messages. Never creates a queue, a stream or a topic.
    ///
    /// # Errors
    ///
    /// `Config` for what an operator has to change, such as a missing queue or half a plan.
    /// It fails in bounded time; dropping the future changes nothing but what the plan wrote.
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError>;
}

/// An open subscription.
///
/// All methods may be called at once.
#[async_trait]
pub trait Subscription: fmt::Debug + Send + Sync + 'static {
    /// Waits for deliveries, and returns at most `max` of them, or fewer where the broker hands
    /// out fewer at a time; none, when none came in the source's own waiting time.
    ///
    /// It has an end of its own. Dropping the future can leave messages held until their
    /// hold ends: let it finish where that matters.
    ///
    /// # Errors
    ///
    /// [`SourceError`]; another receive may succeed. On a closed subscription, `Permanent`
    /// with the code `SubscriptionClosed`.
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError>;

    /// Whether deliveries of one group have to be handled one at a time and in order.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Of an ordered subscription: whether the broker hands out nothing of a group while a
    /// delivery of it is out. A log, which hands on, says no: a consumer then gives back what
    /// it receives of a group until those before are back.
    fn locks_groups(&self) -> bool {
        true
    }

    /// The source's name, for logs. Never a credential.
    fn name(&self) -> &str;

    /// Sends off settlements that wait to be gathered, and ends, within the time that the
    /// source gives its calls. A second close does nothing. Deliveries that are out can still
    /// be settled, and their settlement says whether it took effect.
    async fn close(&self);
}

/// What a registration says about retries and spent messages.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubscriptionPlan {
    /// After how many deliveries a message is spent.
    pub max_attempts: Option<u32>,
    /// Where spent messages go.
    pub dead_letter: Option<String>,
    /// Where copies for a later attempt are published, for sources that
    /// [republish](RepublishesRetries).
    pub out_retry: Option<Arc<dyn Sink>>,
}

impl SubscriptionPlan {
    /// Nothing is said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A source whose broker cannot delay a retry, so that the source publishes a copy.
///
/// The copy goes to the plan's `out_retry`, with the message's body and what is beside it, and
/// counts as one delivery more. It is published before the original is done: when publishing
/// fails, the settlement fails and the original stays. Without a sink a retry is refused.
#[diagnostic::on_unimplemented(
    message = "`{Self}` delays retries itself, so it has no `out_retry`",
    label = "settle with `retry_after(delay)`: the message waits in the queue",
    note = "`out_retry` is for sources that implement `RepublishesRetries`: their broker cannot \
            delay a message, so a copy is published"
)]
pub trait RepublishesRetries: Source {}

/// A source with its plan, ready to be opened.
#[derive(Debug)]
pub struct Registration<S> {
    source: S,
    plan: SubscriptionPlan,
}

impl<S: Source> Registration<S> {
    /// A source without a plan.
    #[must_use]
    pub fn new(source: S) -> Self {
        Self {
            source,
            plan: SubscriptionPlan::new(),
        }
    }

    /// After how many deliveries a message is spent, 1 and more.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.plan.max_attempts = Some(attempts);
        self
    }

    /// Where spent messages go, by the broker's name of it.
    #[must_use]
    pub fn dead_letter(mut self, name: impl Into<String>) -> Self {
        self.plan.dead_letter = Some(name.into());
        self
    }

    /// Where copies for a later attempt are published.
    #[must_use]
    pub fn out_retry(mut self, sink: Arc<dyn Sink>) -> Self
    where
        S: RepublishesRetries,
    {
        self.plan.out_retry = Some(sink);
        self
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &SubscriptionPlan {
        &self.plan
    }

    /// Opens the subscription.
    ///
    /// # Errors
    ///
    /// As [`Source::open`].
    pub async fn open(&self) -> Result<Arc<dyn Subscription>, SourceError> {
        self.source.open(&self.plan).await
    }
}

/// The convenience of a [`Registration`] on the source itself.
pub trait SourceExt: Source + Sized {
    /// See [`Registration::max_attempts`].
    #[must_use]
    fn max_attempts(self, attempts: u32) -> Registration<Self> {
        Registration::new(self).max_attempts(attempts)
    }

    /// See [`Registration::dead_letter`].
    #[must_use]
    fn dead_letter(self, name: impl Into<String>) -> Registration<Self> {
        Registration::new(self).dead_letter(name)
    }

    /// See [`Registration::out_retry`].
    #[must_use]
    fn out_retry(self, sink: Arc<dyn Sink>) -> Registration<Self>
    where
        Self: RepublishesRetries,
    {
        Registration::new(self).out_retry(sink)
    }
}

impl<S: Source> SourceExt for S {}

/// Compiles only while these can be trait objects.
fn _sources_are_object_safe(_: Box<dyn Source>, _: Box<dyn Subscription>) {}
