//! What an ack does, and what it does not.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dispatch_api::{Delivery, SettleError, Settlement};
use tokio::time::{sleep, timeout};

use super::steps::{ack_what_is_left, again, is_gone, only_these_are_left, put_spread, spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, Failure, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        ack_consumes_for_good,
        "what was acked never comes again, also to a new subscription"
    ),
    source_case!(
        ack_only_when_asked,
        "nothing is consumed by its delivery alone"
    ),
    source_case!(
        ack_failure_is_reported_and_message_returns,
        "an ack that fails is no success, and the message comes again"
    )
    .plays(&[(Operation::Ack, SourceFaultKind::Internal)]),
    source_case!(
        ack_batch_partial_failure_is_told_per_message,
        "of acks that share a request, those that fail are told so, and no others"
    )
    .needs(&[SourceCapability::BatchedSettlement])
    .plays(&[(Operation::Ack, SourceFaultKind::Entry)]),
    source_case!(
        ack_uses_the_latest_hold,
        "an ack of a second delivery consumes the message after a first hold has passed"
    )
    .needs(&[SourceCapability::HoldReturns]),
    source_case!(
        ack_after_a_lost_hold_is_not_success,
        "an ack after the hold was lost to somebody else says so"
    )
    .needs(&[SourceCapability::Expire, SourceCapability::NoticesLoss]),
    source_case!(
        ack_never_takes_what_another_holds,
        "a late ack leaves the message to who holds it now"
    )
    .needs(&[SourceCapability::Expire]),
    source_case!(
        ack_out_of_order_is_safe,
        "acks out of order lose none of what was not acked"
    ),
    source_case!(
        ack_lost_reply_is_unknown,
        "an ack whose reply is lost is unknown, and no success"
    )
    .plays(&[(Operation::Ack, SourceFaultKind::LoseReply)]),
    source_case!(
        ack_silence_is_unknown_and_bounded,
        "an ack that is never answered ends as unknown, and the message comes again"
    )
    .plays(&[(Operation::Ack, SourceFaultKind::Silence)]),
    source_case!(
        ack_from_another_runtime,
        "a delivery can be settled on another runtime than it was received on"
    ),
    source_case!(
        ack_of_many_at_once_consumes_all,
        "many acks at once are each carried out"
    ),
    source_case!(
        ack_leaves_its_neighbours,
        "an ack consumes its own message and no other that is held"
    ),
    source_case!(
        ack_of_one_delivered_twice_in_one_request,
        "two deliveries of one message, acked at once, do not spoil each other or a neighbour"
    )
    .needs(&[
        SourceCapability::BatchedSettlement,
        SourceCapability::Expire,
    ]),
    source_case!(
        ack_ends_the_hold_without_loss,
        "the hold of what was acked is not reported as lost"
    ),
];

/// The word for what a settlement came to.
fn outcome(settled: &Result<(), SettleError>) -> &'static str {
    settled.as_ref().map_or_else(SettleError::as_str, |()| "ok")
}

async fn ack_consumes_for_good(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(3).await?;
    let subscription = context.open(&place).await?;
    let received = context.take(&*subscription, ids.len()).await?;
    context.settle_all(received, Settlement::Ack).await?;
    context.left(&place, 0).await?;
    context.close(&*subscription).await?;
    drop(subscription);
    context.nothing_more(&place).await
}

async fn ack_only_when_asked(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.sleep(context.profile().margin()).await;
    let left = context.unsettled(&place).await?;
    check_eq("messages while the delivery is open", &1, &left)?;
    drop(delivery);
    context.sleep(context.profile().margin()).await;
    let left = context.unsettled(&place).await?;
    check_eq("messages after the delivery was dropped", &1, &left)?;
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

async fn ack_failure_is_reported_and_message_returns(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.play_always(&place, Operation::Ack, SourceFault::Internal)?;
    context.settle_err(delivery, Settlement::Ack).await?;
    context.was_played()?;
    context.faults()?.clear();
    context.left(&place, 1).await?;
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

async fn ack_batch_partial_failure_is_told_per_message(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let hooks = spread(context, 6);
    context.put(&place, &hooks).await?;
    let failing = &hooks[context.random(hooks.len())];
    let id = id_of(&failing.body);
    let body = String::from_utf8(failing.body.to_vec());
    let body = body.map_err(|error| Failure::of_kit("the body of a hook", error.to_string()))?;
    let subscription = context.open(&place).await?;
    let received = context.take(&*subscription, hooks.len()).await?;
    context.play_always(&place, Operation::Ack, SourceFault::Entry(body))?;
    let ids = ids_of(&received);
    let settling = received.into_iter();
    let settling = settling.map(|delivery| context.settle(delivery, Settlement::Ack));
    let settled = futures_util::future::try_join_all(settling).await?;
    context.was_played()?;
    context.faults()?.clear();
    for (settled_id, settled) in ids.iter().zip(&settled) {
        match *settled_id == id {
            true => check(
                settled.is_err(),
                "the ack that failed in its batch",
                "an error",
                outcome(settled),
            )?,
            false => check_eq("an ack beside it", &"ok", &outcome(settled))?,
        }
    }
    context.left(&place, 1).await?;
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &[id]).await
}

async fn ack_uses_the_latest_hold(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    drop(context.next(&*subscription).await?);
    let second = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(second.received().body()))?;
    context.settle_ok(second, Settlement::Ack).await?;
    is_gone(context, &place, &*subscription).await
}

async fn ack_after_a_lost_hold_is_not_success(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let late = context.next(&*subscription).await?;
    context.expire(&place).await?;
    let second = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(second.received().body()))?;
    let settled = context.settle(late, Settlement::Ack).await?;
    check_eq("an ack of a lost hold", &"lost", &outcome(&settled))?;
    context.settle_ok(second, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn ack_never_takes_what_another_holds(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let late = context.next(&*subscription).await?;
    context.expire(&place).await?;
    let second = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(second.received().body()))?;
    // Whether it is told is another rule.
    let _ = context.settle(late, Settlement::Ack).await?;
    context.sleep(context.profile().margin() / 3).await;
    let left = context.unsettled(&place).await?;
    check_eq("messages after a late ack", &1, &left)?;
    drop(second);
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

async fn ack_out_of_order_is_safe(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(5).await?;
    let subscription = context.open(&place).await?;
    let mut received = context.take(&*subscription, ids.len()).await?;
    let kept = [ids[1].clone(), ids[3].clone()];
    for acked in [4, 2, 0] {
        let mut at = received.iter();
        let at = at.position(|delivery| id_of(delivery.received().body()) == ids[acked]);
        let at = at.ok_or_else(|| Failure::new("receive", "each message once", "others"))?;
        let delivery = received.swap_remove(at);
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    drop(received);
    context.close(&*subscription).await?;
    drop(subscription);
    let subscription = context.open(&place).await?;
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    for id in &kept {
        check(
            came.contains(id),
            "what was not acked",
            "that it comes again",
            "that it is gone",
        )?;
    }
    // Where a place in the log is all that is stored, what was acked after it comes too.
    if context.profile().has(SourceCapability::HoldReturns) {
        check_same("what comes again", &kept, &came)?;
    }
    Ok(())
}

async fn ack_lost_reply_is_unknown(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    // Always, so that a source which asks again gets no answer either.
    context.play_always(&place, Operation::Ack, SourceFault::LoseReply)?;
    let settled = context.settle(delivery, Settlement::Ack).await?;
    context.was_played()?;
    context.faults()?.clear();
    check_eq("an ack whose reply is lost", &"unknown", &outcome(&settled))?;
    is_gone(context, &place, &*subscription).await
}

async fn ack_silence_is_unknown_and_bounded(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.play_always(&place, Operation::Ack, SourceFault::Silence)?;
    let settled = context.settle(delivery, Settlement::Ack).await?;
    context.was_played()?;
    context.faults()?.clear();
    check_eq("an ack without an answer", &"unknown", &outcome(&settled))?;
    context.left(&place, 1).await?;
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids).await
}

/// Settles on a runtime of another thread, whose clock is the real one, while this runtime
/// goes on.
async fn settle_elsewhere(
    context: &SourceContext<'_>,
    delivery: Box<dyn Delivery>,
) -> Checked<Result<(), SettleError>> {
    const STEP: &str = "settle on another runtime";
    context.step(STEP);
    let limit = context.profile().timeout * 2 + Duration::from_secs(5);
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            let settling = async { timeout(limit, delivery.settle(Settlement::Ack)).await };
            let settled = runtime.block_on(settling);
            // What it left on this runtime is gone before the other goes on.
            drop(runtime);
            let _ = answer.send(settled);
        }
    });
    loop {
        match answered.recv_timeout(Duration::from_millis(1)) {
            Ok(Ok(settled)) => return Ok(settled),
            Ok(Err(_)) => {
                let expected = format!("an end within {limit:?}");
                return Err(Failure::new(STEP, expected, "it still runs"));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(STEP, "an answer", "a panic"));
            }
            // The other thread needs real time; a paused clock moves a little, for what
            // this runtime has to do.
            Err(mpsc::RecvTimeoutError::Timeout) => {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

async fn ack_from_another_runtime(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(2).await?;
    let subscription = context.open(&place).await?;
    for _ in &ids {
        let delivery = context.next(&*subscription).await?;
        let settled = settle_elsewhere(context, delivery).await?;
        check_eq("an ack on another runtime", &"ok", &outcome(&settled))?;
    }
    context.left(&place, 0).await?;
    context.sentinel(&place, &*subscription).await
}

async fn ack_of_many_at_once_consumes_all(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 40).await?;
    let subscription = context.open(&place).await?;
    let received = context.take(&*subscription, ids.len()).await?;
    check_same("what came", &ids, &ids_of(&received))?;
    context.settle_all(received, Settlement::Ack).await?;
    context.left(&place, 0).await?;
    context.close(&*subscription).await?;
    drop(subscription);
    context.nothing_more(&place).await
}

async fn ack_leaves_its_neighbours(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(3).await?;
    let subscription = context.open(&place).await?;
    let mut received = context.take(&*subscription, ids.len()).await?;
    // The first, so that where a place in the log is all that is stored it moves by one.
    let at = received
        .iter()
        .position(|delivery| id_of(delivery.received().body()) == ids[0]);
    let at = at.ok_or_else(|| Failure::new("receive", "each message once", "others"))?;
    let first = received.swap_remove(at);
    context.settle_ok(first, Settlement::Ack).await?;
    context.left(&place, 2).await?;
    drop(received);
    let subscription = again(context, &place, subscription).await?;
    only_these_are_left(context, &place, &*subscription, &ids[1..]).await
}

async fn ack_of_one_delivered_twice_in_one_request(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let late = context.next(&*subscription).await?;
    context.expire(&place).await?;
    let second = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(second.received().body()))?;
    // Of another key, so that it does not wait for the first.
    put_spread(context, &place, 1).await?;
    let neighbour = context.next(&*subscription).await?;
    let (late, second, neighbour) = tokio::join!(
        context.settle(late, Settlement::Ack),
        context.settle(second, Settlement::Ack),
        context.settle(neighbour, Settlement::Ack),
    );
    late.map(drop)?;
    check_eq("the ack of the second delivery", &"ok", &outcome(&second?))?;
    check_eq("the ack of a neighbour", &"ok", &outcome(&neighbour?))?;
    context.left(&place, 0).await
}

async fn ack_ends_the_hold_without_loss(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let lease = delivery.received().lease().clone();
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.step("watch the hold of what was acked");
    let lost = timeout(context.profile().hold * 2, lease.lost()).await;
    check(
        lost.is_err() && !lease.is_lost(),
        "the hold of what was acked",
        "no loss",
        "it was lost",
    )
}
