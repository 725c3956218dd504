//! Messages that will never be handled.

use dispatch_api::Settlement;

use super::redrive::{capped, spend};
use super::steps::{comes_back, next_is, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, ids_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        drop_never_comes_back,
        "a dropped message is gone, also for the next subscription"
    ),
    source_case!(
        drop_is_not_a_dead_letter,
        "a message dropped before its attempts are spent is no dead letter"
    )
    .needs(&[SourceCapability::Redrive]),
    source_case!(
        drop_at_the_cap_is_kept,
        "a message dropped at its last attempt goes where spent messages go"
    )
    .needs(&[SourceCapability::Redrive, SourceCapability::DropAtCapIsDead]),
    source_case!(
        drop_leaves_its_neighbours,
        "a drop takes no other message of the same receive along"
    ),
    source_case!(
        drop_failure_is_reported,
        "a drop that did not reach the broker says so, and the message comes back"
    )
    .plays(&[(Operation::Ack, SourceFaultKind::LoseRequest)]),
];

async fn drop_never_comes_back(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.settle_ok(delivery, Settlement::Drop).await?;
    context.left(&place, 0).await?;
    context.close(&*subscription).await?;
    drop(subscription);
    context.nothing_more(&place).await
}

async fn drop_is_not_a_dead_letter(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 3).await?;
    context.put_hooks(&place, 1).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    let delivery = context.next(&*subscription).await?;
    context.settle_ok(delivery, Settlement::Drop).await?;
    context.left(&place, 0).await?;
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    let stored = context.stored(&dead).await?.len();
    check_eq("dead letters after a drop", &0, &stored)
}

async fn drop_at_the_cap_is_kept(context: &SourceContext<'_>) -> Checked {
    let (place, dead, plan) = capped(context, 2).await?;
    let ids = context.put_hooks(&place, 1).await?;
    let options = context.options();
    let subscription = context.open_with(&place, &options, &plan).await?;
    spend(context, &*subscription, &ids[0], 1).await?;
    let delivery = next_is(context, &*subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Drop).await?;
    // The next receive may be what moves it.
    context
        .nothing_comes(&*subscription, context.profile().margin())
        .await?;
    check_eq("the dead letter", &ids, &context.dead(&dead, 1).await?)?;
    context.left(&place, 0).await
}

async fn drop_leaves_its_neighbours(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 3).await?;
    let subscription = context.open(&place).await?;
    let mut taken = context.take(&*subscription, 3).await?;
    check_same("what came", &ids, &ids_of(&taken))?;
    let mut others = ids_of(&taken);
    // In the order of receiving: a broker that counts how far it came counts this one.
    let first = taken.remove(0);
    let dropped = others.remove(0);
    context.settle_ok(first, Settlement::Drop).await?;
    drop(taken);
    context.close(&*subscription).await?;
    drop(subscription);
    context.left(&place, 2).await?;
    let subscription = context.open(&place).await?;
    let taken = context.take(&*subscription, 2).await?;
    let seen = ids_of(&taken);
    check_eq("the dropped one", &false, &seen.contains(&dropped))?;
    check_same("the neighbours", &others, &seen)?;
    for delivery in taken {
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    context.left(&place, 0).await
}

async fn drop_failure_is_reported(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    // All the time, for a source that tries again on its own.
    context.play_always(&place, Operation::Ack, SourceFault::LoseRequest)?;
    context.settle_err(delivery, Settlement::Drop).await?;
    context.was_played()?;
    context.faults()?.clear();
    context.left(&place, 1).await?;
    let (_subscription, delivery) = comes_back(context, &place, subscription, &ids[0]).await?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}
