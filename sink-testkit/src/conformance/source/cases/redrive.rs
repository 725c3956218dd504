//! A cap of attempts, and where spent messages go.

use dispatch_api::{ErrorClass, Settlement, Subscription, SubscriptionPlan};

use super::steps::{next_is, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of};
use crate::conformance::source::{SourceCapability, SourceCase, SourceContext};
use crate::conformance::{Checked, Destination, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        redrive_exactly_at_the_cap,
        "a message is delivered as often as the cap says, not once more or less, and then kept \
         as a dead letter"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_half_a_policy_is_refused,
        "a cap without a place for spent messages, and a place without a cap, are configuration \
         errors"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_cap_of_zero_is_refused,
        "a cap of no attempt at all is a configuration error"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_cap_above_the_maximum_is_refused,
        "the highest cap is accepted, and one more is a configuration error"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_moves_once_and_nowhere_else,
        "a spent message is in one place, once"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_keeps_body_and_attributes,
        "a dead letter has the body and the attributes that were put"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_missing_target_is_refused,
        "a place for spent messages that is not there is a configuration error"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_to_itself_is_refused,
        "the source itself is no place for its spent messages"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_creates_nothing,
        "a missing place for spent messages is not created"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_cap_holds_across_consumers,
        "attempts are counted by the broker, whoever makes them"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_leaves_what_was_acked,
        "a message that succeeds at its last attempt is no dead letter"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_absent_keeps_coming_back,
        "without a cap a message comes back as often as it is retried"
    ),
    source_case!(
        redrive_replayed_message_starts_again,
        "a dead letter that is put back has all its attempts again"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        redrive_poison_does_not_stop_the_others,
        "a message that is always retried ends as a dead letter, and the others are handled once"
    )
    .needs(&[SourceCapability::Redrive, SourceCapability::SingleRetry]),
];

/// A place, a place for what is spent, and the plan of both.
pub(super) async fn capped(
    context: &SourceContext<'_>,
    cap: u32,
) -> Checked<(Destination, Destination, SubscriptionPlan)> {
    let place = context.place().await?;
    let dead = context.named_place("spent").await?;
    let plan = plan_of(context, &place, Some(cap), Some(dead.name()));
    Ok((place, dead, plan))
}

fn plan_of(
    context: &SourceContext<'_>,
    place: &Destination,
    cap: Option<u32>,
    dead: Option<&str>,
) -> SubscriptionPlan {
    let mut plan = context.plan_for(place);
    plan.max_attempts = cap;
    plan.dead_letter = dead.map(str::to_owned);
    plan
}

/// Takes the message so often, and asks for a retry each time.
pub(super) async fn spend(
    context: &SourceContext<'_>,
    subscription: &dyn Subscription,
    id: &str,
    times: u32,
) -> Checked {
    for number in 1..=times {
        context.step(format!("delivery {number} of {times}"));
        let delivery = next_is(context, subscription, id).await?;
        if context.profile().has(SourceCapability::Count) {
            let count = delivery.received().redelivery_count();
            check_eq("the count of deliveries", &Some(number), &count)?;
        }
        context.settle_ok(delivery, Settlement::Retry).await?;
    }
    Ok(())
}

/// Spends the message and sees it as the only dead letter, with nothing left at its source.
async fn spent(
    context: &SourceContext<'_>,
    place: &Destination,
    dead: &Destination,
    subscription: &dyn Subscription,
    (id, times): (&str, u32),
) -> Checked {
    spend(context, subscription, id, times).await?;
    // The next receive may be what moves it.
    context
        .nothing_comes(subscription, context.profile().margin())
        .await?;
    let letters = context.dead(dead, 1).await?;
    check_eq("the dead letter", &id, &&*letters[0])?;
    context.left(place, 0).await
}

async fn redrive_exactly_at_the_cap(context: &SourceContext<'_>) -> Checked {
    for cap in [1, 3] {
        let (place, dead, plan) = capped(context, cap).await?;
        let ids = context.put_hooks(&place, 1).await?;
        let options = context.options();
        let subscription = context.open_with(&place, &options, &plan).await?;
        spent(context, &place, &dead, &*subscription, (&ids[0], cap)).await?;
        context.close(&*subscription).await?;
    }
    Ok(())
}

/// The plan is refused as a configuration error.
async fn refused(
    context: &SourceContext<'_>,
    place: &Destination,
    cap: Option<u32>,
    dead: Option<&str>,
) -> Checked {
    let plan = plan_of(context, place, cap, dead);
    let error = context.open_err(place, &plan).await?;
    check_eq("the class", &ErrorClass::Config, &error.class())
}

async fn redrive_half_a_policy_is_refused(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let dead = context.named_place("spent").await?;
    context.step("open with a cap alone");
    refused(context, &place, Some(3), None).await?;
    context.step("open with a place for spent messages alone");
    refused(context, &place, None, Some(dead.name())).await
}

async fn redrive_cap_of_zero_is_refused(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let dead = context.named_place("spent").await?;
    refused(context, &place, Some(0), Some(dead.name())).await
}

async fn redrive_cap_above_the_maximum_is_refused(context: &SourceContext<'_>) -> Checked {
    let highest = context.profile().max_attempts.unwrap_or(u32::MAX);
    let (place, dead, plan) = capped(context, highest).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    context.close(&*subscription).await?;
    match highest.checked_add(1) {
        None => Ok(()),
        Some(above) => refused(context, &place, Some(above), Some(dead.name())).await,
    }
}

async fn redrive_moves_once_and_nowhere_else(context: &SourceContext<'_>) -> Checked {
    let bystander = context.named_place("bystander").await?;
    let (place, dead, plan) = capped(context, 2).await?;
    let ids = context.put_hooks(&place, 1).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    spent(context, &place, &dead, &*subscription, (&ids[0], 2)).await?;
    let time = context.profile().hold + context.profile().margin();
    context.nothing_comes(&*subscription, time).await?;
    let letters = context.stored(&dead).await?.len();
    check_eq("dead letters after a hold", &1, &letters)?;
    let strays = context.stored(&bystander).await?.len();
    check_eq("messages of another place", &0, &strays)
}

async fn redrive_keeps_body_and_attributes(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 1).await?;
    let sent = context.hook_of("größer \\u{1F4E6} \\t");
    context.put(&place, std::slice::from_ref(&sent)).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let id = id_of(&sent.body);
    spent(context, &place, &dead, &*subscription, (&id, 1)).await?;
    let stored = context.stored(&dead).await?;
    let is_same = stored[0].body == sent.body;
    check(is_same, "the body", "the bytes that were put", "others")?;
    for (name, value) in &sent.attributes {
        let mut attributes = stored[0].attributes.iter();
        let kept = attributes.find(|(known, _)| known == name);
        let is_same = kept.is_some_and(|(_, kept)| *kept == value.as_bytes());
        check(
            is_same,
            "an attribute of the dead letter",
            format!("{name} as it was put"),
            "another value or none",
        )?;
    }
    Ok(())
}

async fn redrive_missing_target_is_refused(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let missing = context.fixture().missing();
    refused(context, &place, Some(3), Some(missing.name())).await
}

async fn redrive_to_itself_is_refused(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    refused(context, &place, Some(3), Some(place.name())).await
}

async fn redrive_creates_nothing(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let before = context.destinations().await?;
    let missing = context.fixture().missing();
    let plan = plan_of(context, &place, Some(3), Some(missing.name()));
    // Whether it is refused is another case.
    let _ = context.try_open(&place, &context.options(), &plan).await?;
    check_eq("the places", &before, &context.destinations().await?)
}

async fn redrive_cap_holds_across_consumers(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 3).await?;
    let ids = context.put_hooks(&place, 1).await?;
    let options = context.options();
    for _ in 0..3 {
        let subscription = context.open_with(&place, &options, &plan).await?;
        let delivery = next_is(context, &*subscription, &ids[0]).await?;
        context.settle_ok(delivery, Settlement::Retry).await?;
        context.close(&*subscription).await?;
    }
    let subscription = context.open_with(&place, &options, &plan).await?;
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    check_eq("the dead letter", &ids, &context.dead(&dead, 1).await?)?;
    context.left(&place, 0).await
}

async fn redrive_leaves_what_was_acked(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 2).await?;
    let ids = context.put_hooks(&place, 1).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    spend(context, &*subscription, &ids[0], 1).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    let letters = context.stored(&dead).await?.len();
    check_eq("dead letters after an ack", &0, &letters)?;
    // One that is spent does arrive there.
    let ids = context.put_hooks(&place, 1).await?;
    spent(context, &place, &dead, &*subscription, (&ids[0], 2)).await
}

async fn redrive_absent_keeps_coming_back(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    spend(context, &*subscription, &ids[0], 20).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn redrive_replayed_message_starts_again(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 2).await?;
    let hook = context.hook();
    let id = id_of(&hook.body);
    context.put(&place, std::slice::from_ref(&hook)).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    spent(context, &place, &dead, &*subscription, (&id, 2)).await?;
    context.put(&place, std::slice::from_ref(&hook)).await?;
    spend(context, &*subscription, &id, 1).await?;
    let delivery = next_is(context, &*subscription, &id).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    let letters = context.dead(&dead, 1).await?.len();
    check_eq("dead letters after the replay", &1, &letters)?;
    context.left(&place, 0).await
}

async fn redrive_poison_does_not_stop_the_others(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 3).await?;
    let mut expected = put_spread(context, &place, 6).await?;
    let poison = expected.remove(0);
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let (mut good, mut poisoned) = (Vec::new(), 0);
    while good.len() + poisoned < expected.len() + 3 {
        let delivery = context.next(&*subscription).await?;
        let id = id_of(delivery.received().body());
        let settlement = match id == poison {
            true => {
                poisoned += 1;
                Settlement::Retry
            }
            false => {
                good.push(id);
                Settlement::Ack
            }
        };
        context.settle_ok(delivery, settlement).await?;
    }
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    check_eq("attempts of the poison", &3, &poisoned)?;
    check_same("the others", &expected, &good)?;
    check_eq(
        "the dead letter",
        &vec![poison],
        &context.dead(&dead, 1).await?,
    )?;
    context.left(&place, 0).await
}
