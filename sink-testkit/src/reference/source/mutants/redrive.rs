//! Mutants of the cap of attempts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dispatch_api::{Received, Settlement, Source, SubscriptionPlan};

use super::tools::{
    PatchedDelivery, PatchedSubscription, changing_received, opening, planning, settling,
};
use super::{SourceMutant, SourceParts, SourceSeam};
use crate::conformance::source::RawMessage;

/// Puts a message where spent ones go.
pub(super) fn bury(parts: &SourceParts, received: &Received, with_attributes: bool) {
    let Some(dead) = &parts.plan.dead_letter else {
        return;
    };
    let mut message = RawMessage::new(received.body().clone());
    if with_attributes {
        for (name, value) in received.attributes() {
            message = message.with_attribute(name, &String::from_utf8_lossy(value));
        }
    }
    parts.broker.put(dead, &[message]);
}

/// Whether this is the last delivery that the plan allows.
fn is_last(parts: &SourceParts, received: &Received) -> bool {
    let cap = parts.plan.max_attempts;
    cap.is_some_and(|cap| received.redelivery_count() >= Some(cap))
}

fn without_redrive(mut plan: SubscriptionPlan) -> SubscriptionPlan {
    plan.max_attempts = None;
    plan.dead_letter = None;
    plan
}

/// A source that opens all the same when this is what is wrong with the plan.
fn forgiving(inner: Arc<dyn Source>, code: &'static str) -> Arc<dyn Source> {
    opening(inner, move |inner, plan| {
        Box::pin(async move {
            match inner.open(&plan).await {
                Err(error) if error.code() == code => inner.open(&without_redrive(plan)).await,
                other => other,
            }
        })
    })
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "OneMoreThanTheCap",
        "delivers a message once more than the cap says",
        "redrive_exactly_at_the_cap",
        "watch for what must not come: expected nothing; observed 1 deliveries",
        SourceSeam::Source(|inner, _| {
            planning(inner, |mut plan| {
                plan.max_attempts = plan.max_attempts.map(|cap| cap + 1);
                plan
            })
        }),
    ),
    SourceMutant::new(
        "OneLessThanTheCap",
        "delivers a message once less than the cap says",
        "redrive_exactly_at_the_cap",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Source(|inner, _| {
            planning(inner, |mut plan| {
                plan.max_attempts = plan.max_attempts.map(|cap| cap.max(2) - 1);
                plan
            })
        }),
    ),
    SourceMutant::new(
        "IgnoresHalfAPolicy",
        "opens with half a policy as with none",
        "redrive_half_a_policy_is_refused",
        "open: expected an error; observed a subscription",
        SourceSeam::Source(|inner, _| forgiving(inner, "IncompleteRedrive")),
    ),
    SourceMutant::new(
        "ZeroIsOne",
        "takes a cap of zero for one attempt",
        "redrive_cap_of_zero_is_refused",
        "open: expected an error; observed a subscription",
        SourceSeam::Source(|inner, _| {
            planning(inner, |mut plan| {
                plan.max_attempts = plan.max_attempts.map(|cap| cap.max(1));
                plan
            })
        }),
    ),
    SourceMutant::new(
        "LowersTheCap",
        "lowers a cap that is too high in silence",
        "redrive_cap_above_the_maximum_is_refused",
        "open: expected an error; observed a subscription",
        SourceSeam::Source(|inner, _| {
            planning(inner, |mut plan| {
                plan.max_attempts = plan.max_attempts.map(|cap| cap.min(1_000));
                plan
            })
        }),
    ),
    SourceMutant::new(
        "BuriesTwice",
        "puts a copy of a spent message beside the one that the broker moves",
        "redrive_moves_once_and_nowhere_else",
        "read dead letters: expected 1 messages; observed 2 messages",
        SourceSeam::Subscription(|inner, parts| {
            settling(inner, move |delivery, settlement| {
                if settlement == Settlement::Retry && is_last(&parts, delivery.received()) {
                    bury(&parts, delivery.received(), true);
                }
                delivery.settle(settlement)
            })
        }),
    ),
    SourceMutant::new(
        "BuriesTheBodyAlone",
        "moves a spent message itself, without its attributes",
        "redrive_keeps_body_and_attributes",
        "an attribute of the dead letter: expected ankusa_source as it was put",
        SourceSeam::Subscription(|inner, parts| {
            settling(inner, move |delivery, settlement| {
                if settlement == Settlement::Retry && is_last(&parts, delivery.received()) {
                    bury(&parts, delivery.received(), false);
                    return delivery.settle(Settlement::Ack);
                }
                delivery.settle(settlement)
            })
        }),
    ),
    SourceMutant::new(
        "IgnoresAMissingTarget",
        "opens without a policy when its target is missing",
        "redrive_missing_target_is_refused",
        "open: expected an error; observed a subscription",
        SourceSeam::Source(|inner, _| forgiving(inner, "DeadLetterMissing")),
    ),
    SourceMutant::new(
        "TakesItselfAsTarget",
        "opens with itself as the place of its spent messages",
        "redrive_to_itself_is_refused",
        "open: expected an error; observed a subscription",
        SourceSeam::Source(|inner, _| forgiving(inner, "DeadLetterIsSource")),
    ),
    SourceMutant::new(
        "CreatesItsTarget",
        "creates a missing place for spent messages",
        "redrive_creates_nothing",
        "the places: expected",
        SourceSeam::Source(|inner, parts| {
            planning(inner, move |plan| {
                if let Some(dead) = &plan.dead_letter
                    && !parts.broker.places().contains(dead)
                {
                    parts.broker.create(dead, parts.settings.kind);
                }
                plan
            })
        }),
    ),
    SourceMutant::new(
        "CapOfItsOwn",
        "counts the attempts of its own subscription alone",
        "redrive_cap_holds_across_consumers",
        "watch for what must not come: expected nothing; observed 1 deliveries",
        SourceSeam::Source(|inner, parts| {
            opening(inner, move |inner, plan| {
                let mut parts = parts.clone();
                parts.plan = plan.clone();
                Box::pin(async move {
                    let inner = inner.open(&without_redrive(plan)).await?;
                    let counts: Arc<Mutex<HashMap<Bytes, u32>>> = Arc::default();
                    Ok(settling(inner, move |delivery, settlement| {
                        let body = delivery.received().body().clone();
                        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                        let count = counts.entry(body).or_default();
                        *count += 1;
                        if Some(*count) == parts.plan.max_attempts {
                            bury(&parts, delivery.received(), true);
                            return delivery.settle(Settlement::Ack);
                        }
                        delivery.settle(settlement)
                    }))
                })
            })
        }),
    ),
    SourceMutant::new(
        "BuriesWhatWasAcked",
        "puts a message that succeeded at its last attempt where spent ones go",
        "redrive_leaves_what_was_acked",
        "dead letters after an ack: expected 0; observed 1",
        SourceSeam::Subscription(|inner, parts| {
            settling(inner, move |delivery, settlement| {
                if settlement == Settlement::Ack && is_last(&parts, delivery.received()) {
                    bury(&parts, delivery.received(), true);
                }
                delivery.settle(settlement)
            })
        }),
    ),
    SourceMutant::new(
        "GivesUpAfterTen",
        "consumes a message at its tenth retry, whatever the plan says",
        "redrive_absent_keeps_coming_back",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            settling(inner, |delivery, settlement| {
                if delivery.received().redelivery_count() >= Some(10) {
                    return delivery.settle(Settlement::Ack);
                }
                delivery.settle(settlement)
            })
        }),
    ),
    SourceMutant::new(
        "RemembersAttempts",
        "counts a message that was put back where it stopped",
        "redrive_replayed_message_starts_again",
        "the count of deliveries: expected Some(1); observed Some(3)",
        SourceSeam::Subscription(|inner, _| {
            let counts: Mutex<HashMap<Bytes, u32>> = Mutex::default();
            changing_received(inner, move |received| {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(received.body().clone()).or_default();
                *count += 1;
                received.clone().with_redelivery_count(Some(*count))
            })
        }),
    ),
    SourceMutant::new(
        "StopsAtPoison",
        "receives nothing more once a message was retried twice",
        "redrive_poison_does_not_stop_the_others",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            let is_stopped = Arc::new(AtomicBool::new(false));
            let stop = Arc::clone(&is_stopped);
            PatchedSubscription::new(inner)
                .receive(move |inner, max| {
                    let is_stopped = is_stopped.load(Ordering::SeqCst);
                    Box::pin(async move {
                        match is_stopped {
                            true => Ok(Vec::new()),
                            false => inner.receive(max).await,
                        }
                    })
                })
                .each(move |delivery| {
                    let stop = Arc::clone(&stop);
                    Box::new(
                        PatchedDelivery::new(delivery).settle(move |delivery, settlement| {
                            let count = delivery.received().redelivery_count();
                            if settlement == Settlement::Retry && count >= Some(2) {
                                stop.store(true, Ordering::SeqCst);
                            }
                            delivery.settle(settlement)
                        }),
                    )
                })
                .subscription()
        }),
    ),
];
