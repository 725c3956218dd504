//! Mutants of holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{Delivery, Lease, LeaseKeeper, Received, SettleError, Settlement, Subscription};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::tools::{PatchedSubscription, answering, calling, changing_received};
use super::{SourceMutant, SourceSeam};
use crate::reference::source::{QueueCall, QueueReply};

/// A delivery that does something when it is dropped unsettled.
struct Haunted {
    inner: Option<Box<dyn Delivery>>,
    at_drop: fn(Box<dyn Delivery>, &Handle),
}

impl Haunted {
    fn inner(&self) -> &dyn Delivery {
        &**self
            .inner
            .as_ref()
            .expect("only settling takes it, with the whole")
    }
}

#[async_trait]
impl Delivery for Haunted {
    fn received(&self) -> &Received {
        self.inner().received()
    }

    async fn settle(mut self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        let inner = self.inner.take();
        let inner = inner.expect("only settling takes it, with the whole");
        inner.settle(settlement).await
    }
}

impl Drop for Haunted {
    fn drop(&mut self) {
        if let (Some(inner), Ok(runtime)) = (self.inner.take(), Handle::try_current()) {
            (self.at_drop)(inner, &runtime);
        }
    }
}

impl fmt::Debug for Haunted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Haunted").finish_non_exhaustive()
    }
}

/// A subscription whose deliveries do something when they are dropped unsettled.
pub(super) fn haunted(
    inner: Arc<dyn Subscription>,
    at_drop: fn(Box<dyn Delivery>, &Handle),
) -> Arc<dyn Subscription> {
    PatchedSubscription::new(inner)
        .each(move |delivery| {
            Box::new(Haunted {
                inner: Some(delivery),
                at_drop,
            })
        })
        .subscription()
}

/// What was received, held otherwise.
pub(super) fn held(received: &Received, lease: Lease) -> Received {
    Received::new(received.id(), received.body().clone(), lease)
        .with_attributes(received.attributes().to_vec())
        .with_group(received.group().map(str::to_owned))
        .with_redelivery_count(received.redelivery_count())
        .with_sent_at(received.sent_at())
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "AcksOnDrop",
        "consumes a delivery that is dropped",
        "unsettled_delivery_comes_back",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            haunted(inner, |delivery, runtime| {
                runtime.spawn(delivery.settle(Settlement::Ack));
            })
        }),
    ),
    SourceMutant::new(
        "CommitsOnReceive",
        "commits what it received before it is settled",
        "unsettled_delivery_of_a_closed_subscription_comes_back",
        "count what is left: expected 3 messages; observed 0 messages",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await?;
                    if let QueueReply::Messages { messages, .. } = &reply
                        && !messages.is_empty()
                    {
                        let handles = messages.iter().map(|message| message.handle.clone());
                        let mut commit = request;
                        commit.call = QueueCall::Ack(handles.collect());
                        inner.call(commit).await?;
                    }
                    Ok(reply)
                })
            })
        }),
    )
    .in_mode("log"),
    SourceMutant::new(
        "ReturnsOnDrop",
        "gives a delivery back when it is dropped",
        "dropping_a_delivery_makes_no_call",
        "calls to ack, return and extend: expected [0, 0, 0]; observed [0, 1, 0]",
        SourceSeam::Subscription(|inner, _| {
            haunted(inner, |delivery, runtime| {
                runtime.spawn(delivery.settle(Settlement::Retry));
            })
        }),
    ),
    SourceMutant::new(
        "SaysNoEnd",
        "says of a hold that it has no end",
        "hold_is_told",
        "the end of the hold: expected an instant; observed none",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| held(received, Lease::unlimited()))
        }),
    ),
    SourceMutant::new(
        "SaysTheLongestHold",
        "says of every hold that it lasts as long as any can",
        "hold_is_told",
        "the end of the hold: expected in the future and within 31s",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let end = Instant::now() + Duration::from_secs(12 * 3_600);
                held(received, LeaseKeeper::new(Some(end)).1)
            })
        }),
    ),
    SourceMutant::new(
        "TakesAnyHold",
        "takes the nearest hold that it can for one that it cannot",
        "hold_settings_are_bounded",
        "a hold of 0ns is accepted: expected false; observed true",
        SourceSeam::Options(|options| {
            let hold = options.hold;
            let (least, most) = (Duration::from_secs(1), Duration::from_secs(12 * 3_600));
            options.clone().with_hold(hold.clamp(least, most))
        }),
    ),
    SourceMutant::new(
        "TakesLongHolds",
        "shortens a hold that is too long in silence",
        "hold_settings_are_bounded",
        "a hold of 43201s is accepted: expected false; observed true",
        SourceSeam::Options(|options| {
            let most = Duration::from_secs(12 * 3_600);
            options.clone().with_hold(options.hold.min(most))
        }),
    ),
    SourceMutant::new(
        "HidesTheLoss",
        "does not tell the handler of a hold that was lost",
        "a_lost_hold_is_told_to_the_handler",
        "a hold that somebody else has: expected it is told as lost",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| held(received, Lease::unlimited()))
        }),
    ),
    SourceMutant::new(
        "ZombieAckWins",
        "answers Ok for the late ack of what somebody else has",
        "paused_process_does_not_ack_anothers",
        "ack: expected an error; observed Ok",
        SourceSeam::Subscription(|inner, _| {
            answering(inner, |_, settled| match settled {
                Err(SettleError::Lost(_)) => Ok(()),
                other => other,
            })
        }),
    ),
];
