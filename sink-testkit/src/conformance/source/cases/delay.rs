//! Retries that wait.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use dispatch_api::{SettleError, Settlement};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::steps::{comes_back, next_between, next_is, put_spread, short_delay, slack};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, Failure, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        retry_after_is_never_early,
        "a delayed retry comes no sooner than after its delay, and where there are none it is \
         refused and nothing is lost"
    )
    .needs(&[SourceCapability::Delay])
    .otherwise(|context| Box::pin(retry_after_is_said_to_be_unsupported(context))),
    source_case!(
        retry_after_is_not_absurdly_late,
        "a delayed retry comes when its delay is over, not when a hold would be"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_fraction_rounds_up,
        "a delay between two steps of the broker is rounded up"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_zero_means_now,
        "a delay of zero is a retry at once"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_above_the_maximum_is_shortened_or_refused,
        "a delay that the broker does not have is shortened or refused, and never a panic, an \
         ack or a retry at once"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_survives_the_consumer,
        "a delay is kept by the broker: who asked for it may be gone"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_does_not_stall_others,
        "a message that waits holds up neither its settlement nor other messages"
    )
    .needs(&[SourceCapability::Delay]),
    source_case!(
        retry_after_keeps_count_and_identity,
        "what comes after a delay is the same message, delivered once more"
    )
    .needs(&[SourceCapability::Delay, SourceCapability::Count]),
    source_case!(
        retry_after_failure_is_reported,
        "a delayed retry that did not reach the broker says so, and the message comes back"
    )
    .needs(&[SourceCapability::Delay])
    .plays(&[(Operation::Return, SourceFaultKind::LoseRequest)]),
];

async fn retry_after_is_never_early(context: &SourceContext<'_>) -> Checked {
    let delay = short_delay(context);
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let begun = Instant::now();
    let settlement = Settlement::RetryAfter(delay);
    context.settle_ok(delivery, settlement).await?;
    let bounds = (delay, Duration::MAX);
    let delivery = next_between(context, &*subscription, &ids[0], begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn retry_after_is_said_to_be_unsupported(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let settlement = Settlement::RetryAfter(context.profile().hold);
    match context.settle(delivery, settlement).await? {
        // Whoever publishes copies may have a place where they wait.
        Ok(()) if context.profile().has(SourceCapability::Copies) => {}
        Ok(()) => {
            let failure = Failure::new("retry_after", "SettleError::Refused", "Ok");
            return Err(failure);
        }
        Err(error) => check(
            matches!(error, SettleError::Refused(_)),
            "retry_after",
            "SettleError::Refused",
            format!("SettleError of kind {}", error.as_str()),
        )?,
    }
    context.left(&place, 1).await?;
    let (subscription, delivery) = comes_back(context, &place, subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.close(&*subscription).await
}

async fn retry_after_is_not_absurdly_late(context: &SourceContext<'_>) -> Checked {
    let delay = short_delay(context);
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let settlement = Settlement::RetryAfter(delay);
    context.settle_ok(delivery, settlement).await?;
    let bounds = (Duration::ZERO, delay + slack(context));
    let delivery = next_between(context, &*subscription, &ids[0], Instant::now(), bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn retry_after_fraction_rounds_up(context: &SourceContext<'_>) -> Checked {
    let step = match context.profile().delay_step {
        Duration::ZERO => context.profile().hold / 4,
        step => step,
    };
    let delay = step * 14 / 10;
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let begun = Instant::now();
    let settlement = Settlement::RetryAfter(delay);
    context.settle_ok(delivery, settlement).await?;
    let bounds = (delay, begun.elapsed() + delay + slack(context));
    let delivery = next_between(context, &*subscription, &ids[0], begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn retry_after_zero_means_now(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let settlement = Settlement::RetryAfter(Duration::ZERO);
    context.settle_ok(delivery, settlement).await?;
    let bounds = (Duration::ZERO, context.profile().margin() * 3);
    let delivery = next_between(context, &*subscription, &ids[0], Instant::now(), bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn retry_after_above_the_maximum_is_shortened_or_refused(
    context: &SourceContext<'_>,
) -> Checked {
    let mut delays = vec![Duration::MAX];
    if let Some(max) = context.profile().max_delay {
        delays.push(max + Duration::from_secs(1));
    }
    for delay in delays {
        let place = context.place().await?;
        context.put_hooks(&place, 1).await?;
        let subscription = context.open(&place).await?;
        let delivery = context.next(&*subscription).await?;
        let settling = context.settle(delivery, Settlement::RetryAfter(delay));
        let Ok(settled) = AssertUnwindSafe(settling).catch_unwind().await else {
            let step = format!("retry_after {delay:?}");
            return Err(Failure::new(step, "Ok or an error", "a panic"));
        };
        if let Err(error) = settled? {
            check(
                matches!(error, SettleError::Refused(_)),
                "retry_after",
                "Ok or SettleError::Refused",
                format!("SettleError of kind {}", error.as_str()),
            )?;
        }
        context
            .nothing_comes(&*subscription, context.profile().margin() * 2)
            .await?;
        context.left(&place, 1).await?;
    }
    Ok(())
}

async fn retry_after_survives_the_consumer(context: &SourceContext<'_>) -> Checked {
    let delay = short_delay(context);
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let begun = Instant::now();
    let settlement = Settlement::RetryAfter(delay);
    context.settle_ok(delivery, settlement).await?;
    context.close(&*subscription).await?;
    drop(subscription);
    let subscription = context.open(&place).await?;
    let latest = begun.elapsed() + delay + slack(context);
    let bounds = (delay, latest);
    let delivery = next_between(context, &*subscription, &ids[0], begun, bounds).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn retry_after_does_not_stall_others(context: &SourceContext<'_>) -> Checked {
    let delay = context.profile().hold * 2;
    let place = context.place().await?;
    let put = put_spread(context, &place, 20).await?;
    let subscription = context.open(&place).await?;
    let begun = Instant::now();
    let waits = context.next(&*subscription).await?;
    let id = id_of(waits.received().body());
    let settlement = Settlement::RetryAfter(delay);
    context.settle_ok(waits, settlement).await?;
    let others = context.take(&*subscription, put.len() - 1).await?;
    let mut expected = put.clone();
    expected.retain(|put| *put != id);
    check_same("the others", &expected, &ids_of(&others))?;
    context.settle_all(others, Settlement::Ack).await?;
    let took = begun.elapsed();
    check(
        took < delay,
        "the others",
        format!("all of them before {delay:?} are over"),
        format!("after {took:?}"),
    )?;
    let delivery = next_is(context, &*subscription, &id).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn retry_after_keeps_count_and_identity(context: &SourceContext<'_>) -> Checked {
    let delay = short_delay(context);
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let mut first: Option<dispatch_api::Received> = None;
    for count in 1..=3 {
        let delivery = next_is(context, &*subscription, &ids[0]).await?;
        let received = delivery.received().clone();
        let seen = received.redelivery_count();
        check_eq("the count of deliveries", &Some(count), &seen)?;
        if let Some(first) = &first {
            let is_same = first.body() == received.body();
            check(is_same, "the body", "the same bytes", "others")?;
            if !context.profile().has(SourceCapability::Copies) {
                check_eq("the broker's id", &first.id(), &received.id())?;
            }
        }
        first.get_or_insert(received);
        let settlement = match count {
            3 => Settlement::Ack,
            _ => Settlement::RetryAfter(delay),
        };
        context.settle_ok(delivery, settlement).await?;
    }
    context.left(&place, 0).await
}

async fn retry_after_failure_is_reported(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    // All the time, for a source that tries again on its own.
    context.play_always(&place, Operation::Return, SourceFault::LoseRequest)?;
    let settlement = Settlement::RetryAfter(short_delay(context));
    context.settle_err(delivery, settlement).await?;
    context.was_played()?;
    context.faults()?.clear();
    context.left(&place, 1).await?;
    let (_subscription, delivery) = comes_back(context, &place, subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}
