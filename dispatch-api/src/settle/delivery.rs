//! A delivery and its settlement.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::error::SettleError;
use super::received::Received;

/// What becomes of a delivery.
///
/// Closed on purpose: a broker has to carry out each, or refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It was handled: the message is gone.
    Ack,
    /// It comes back at once, as the same message.
    Retry,
    /// It comes back no sooner than after this long, as the same message. The time is rounded
    /// up to what the broker counts in; one longer than its maximum is shortened to that.
    RetryAfter(Duration),
    /// It will never be handled: the message is gone, or goes to where the broker puts
    /// such.
    Drop,
}

impl Settlement {
    /// The settlement as a label: `ack`, `retry`, `retry_after` or `drop`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry => "retry",
            Self::RetryAfter(_) => "retry_after",
            Self::Drop => "drop",
        }
    }

    /// Whether the broker delivers the message again.
    #[must_use]
    pub const fn brings_it_back(self) -> bool {
        matches!(self, Self::Retry | Self::RetryAfter(_))
    }
}

/// One delivery of one message, to be settled once.
///
/// Dropped unsettled it makes no call: its extension stops, and the message comes back when
/// the hold ends. A redelivery is a delivery of its own, also when it comes before the
/// answer to the settlement that caused it.
#[async_trait]
pub trait Delivery: fmt::Debug + Send + 'static {
    /// What was received.
    fn received(&self) -> &Received;

    /// Settles it, and returns when the broker's answer is known. What extends the hold is
    /// stopped first, so that the settlement's is the last word.
    ///
    /// Dropping the future after its first poll leaves open whether it takes effect.
    ///
    /// # Errors
    ///
    /// [`SettleError`]: it is not known to have taken effect.
    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError>;

    /// Gives it back unhandled: the message comes back at once. A source whose retries are
    /// copies makes none here, and leaves the message where it is.
    ///
    /// # Errors
    ///
    /// As [`Delivery::settle`].
    async fn give_back(self: Box<Self>) -> Result<(), SettleError> {
        self.settle(Settlement::Retry).await
    }
}

impl dyn Delivery {
    /// The message was handled.
    ///
    /// # Errors
    ///
    /// As [`Delivery::settle`].
    pub async fn ack(self: Box<Self>) -> Result<(), SettleError> {
        self.settle(Settlement::Ack).await
    }

    /// The message comes back at once.
    ///
    /// # Errors
    ///
    /// As [`Delivery::settle`].
    pub async fn retry(self: Box<Self>) -> Result<(), SettleError> {
        self.settle(Settlement::Retry).await
    }

    /// The message comes back after this long, and not before.
    ///
    /// # Errors
    ///
    /// As [`Delivery::settle`].
    pub async fn retry_after(self: Box<Self>, delay: Duration) -> Result<(), SettleError> {
        self.settle(Settlement::RetryAfter(delay)).await
    }

    /// The message is never handled.
    ///
    /// # Errors
    ///
    /// As [`Delivery::settle`].
    pub async fn drop_message(self: Box<Self>) -> Result<(), SettleError> {
        self.settle(Settlement::Drop).await
    }
}

/// Compiles only while a delivery can be a trait object.
fn _delivery_is_object_safe(_: Box<dyn Delivery>) {}
