//! How a consumer ends, and what it leaves behind.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{ConsumerReport, Received, Settlement, Stop};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::handlers::{Seen, handler};
use super::steps::{long_hold, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{
    Operation, SourceCapability, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, Hold, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        stop_waits_for_running_handlers,
        "a handler that runs when a consumer is stopped is waited for, and its answer counts"
    ),
    source_case!(
        stop_at_the_deadline_acknowledges_nothing,
        "a handler that runs on at the deadline is dropped, and its message comes back"
    ),
    source_case!(
        stop_gives_back_what_waits_at_once,
        "what was received and not begun comes back to others long before its hold is over"
    )
    .needs(&[
        SourceCapability::Order,
        SourceCapability::SingleRetry,
        SourceCapability::HoldReturns,
    ]),
    source_case!(
        stop_loses_no_receive_under_way,
        "what a receive brings after the stop comes back long before its hold is over"
    )
    .needs(&[SourceCapability::SingleRetry, SourceCapability::HoldReturns])
    .plays(&[(Operation::Receive, SourceFaultKind::HoldReply)]),
    source_case!(
        stop_flushes_settlements,
        "when a consumer has ended, what it acknowledged is consumed for good"
    ),
    source_case!(
        stop_asked_twice_is_one_stop,
        "a second stop changes nothing, and a second consumer goes on"
    ),
    source_case!(
        stop_with_a_silent_broker_is_bounded,
        "a broker that is silent does not keep a consumer from ending"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::Silence)]),
    source_case!(
        close_twice_is_harmless,
        "a subscription can be closed twice"
    ),
    source_case!(
        open_and_close_change_nothing,
        "who subscribes and leaves consumes nothing"
    ),
    source_case!(
        close_of_one_leaves_the_other,
        "a subscription that ends does not end another of the same place"
    )
    .needs(&[SourceCapability::Compete]),
    source_case!(
        settle_after_close_is_honest,
        "an acknowledgement after the end counts, or says that it does not"
    ),
    source_case!(
        resume_after_close_loses_nothing,
        "what was left, and what came meanwhile, comes to the next subscription"
    ),
    source_case!(
        resume_after_a_restart_of_the_broker,
        "a subscription lives through a restart of its broker"
    )
    .needs(&[SourceCapability::Restart]),
    source_case!(
        consumer_goes_on_after_failed_receives,
        "receives that fail do not end a consumer"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::Internal)]),
    source_case!(
        consumer_until_empty_ends_by_itself,
        "a consumer that is to end when nothing is left does so"
    ),
    source_case!(
        consumer_report_adds_up,
        "every delivery is in the report, as what became of it"
    ),
    source_case!(
        consumer_stuck_handler_leaves_the_others_room,
        "a handler that never ends takes one place and no more"
    ),
];

/// Waits until so many were seen.
async fn until_seen(context: &SourceContext<'_>, seen: &Seen, count: usize) {
    let begun = Instant::now();
    while seen.count() < count && begun.elapsed() < context.profile().patience() {
        sleep(Duration::from_millis(5)).await;
    }
}

async fn stop_waits_for_running_handlers(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let (seen, gate, stop) = (Seen::default(), Arc::new(Notify::new()), Stop::new());
    let handle = {
        let (seen, gate) = (seen.clone(), Arc::clone(&gate));
        handler(move |received: Received| {
            seen.note(&received);
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Settlement::Ack
            }
        })
    };
    let consumer = context.consume(&subscription, context.settings(2), handle, stop.clone());
    let watch = async {
        until_seen(context, &seen, 1).await;
        stop.by(Instant::now() + context.profile().patience());
        sleep(context.profile().margin()).await;
        gate.notify_one();
    };
    context.step("stop");
    let (report, ()) = tokio::join!(consumer, watch);
    check_eq("acknowledged", &1, &report.acked)?;
    context.left(&place, 0).await
}

async fn stop_at_the_deadline_acknowledges_nothing(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            seen.note(&received);
            std::future::pending()
        })
    };
    let consumer = context.consume(&subscription, context.settings(2), handle, stop.clone());
    let watch = async {
        until_seen(context, &seen, 1).await;
        stop.by(Instant::now() + context.profile().margin());
    };
    let profile = context.profile();
    let limit = profile.patience() + profile.timeout * 4;
    let ended = async { tokio::join!(consumer, watch) };
    let (report, ()) = context.within(limit, "stop", ended).await?;
    check_eq("acknowledged", &0, &report.acked)?;
    check_eq("what is left", &1, &context.unsettled(&place).await?)?;
    let next = context.open(&place).await?;
    let delivery = context.next(&*next).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))
}

/// What another subscription sees of so many messages before half of a hold is over.
async fn soon(
    context: &SourceContext<'_>,
    place: &crate::conformance::Destination,
    count: usize,
) -> Checked<Vec<String>> {
    let options = long_hold(context);
    let before = Instant::now() + options.hold / 2;
    let next = context
        .open_with(place, &options, &context.plan_for(place))
        .await?;
    let mut seen = Vec::new();
    while Instant::now() < before && seen.len() < count {
        let received = context.receive(&*next, 1).await?;
        seen.extend(ids_of(&received));
        context.settle_all(received, Settlement::Ack).await?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(seen)
}

async fn stop_gives_back_what_waits_at_once(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(4).await?;
    let subscription = context
        .open_with(&place, &long_hold(context), &context.plan_for(&place))
        .await?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            seen.note(&received);
            std::future::pending()
        })
    };
    let consumer = context.consume(&subscription, context.settings(8), handle, stop.clone());
    let watch = async {
        until_seen(context, &seen, 1).await;
        stop.by(Instant::now());
    };
    context.step("stop");
    let (report, ()) = tokio::join!(consumer, watch);
    check(
        report.given_back > 0,
        "stop",
        "what waits is given back",
        "nothing was",
    )?;
    check_same(
        "what comes back at once",
        &ids,
        &soon(context, &place, ids.len()).await?,
    )
}

async fn stop_loses_no_receive_under_way(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context
        .open_with(&place, &long_hold(context), &context.plan_for(&place))
        .await?;
    let gate = Hold::new();
    context.play(
        &place,
        Operation::Receive,
        SourceFault::HoldReply(gate.gate()),
    )?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            seen.note(&received);
            async { Settlement::Retry }
        })
    };
    let consumer = context.consume(&subscription, context.settings(2), handle, stop.clone());
    let watch = async {
        gate.arrived().await;
        stop.by(Instant::now() + context.profile().timeout);
        sleep(Duration::from_millis(20)).await;
        gate.release();
    };
    context.step("stop while a receive is under way");
    let (_, ()) = tokio::join!(consumer, watch);
    check_same(
        "what comes back at once",
        &ids,
        &soon(context, &place, ids.len()).await?,
    )
}

async fn consume_all(
    context: &SourceContext<'_>,
    place: &crate::conformance::Destination,
    count: usize,
) -> Checked<ConsumerReport> {
    let subscription = context.open(place).await?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            seen.note(&received);
            async { Settlement::Ack }
        })
    };
    let consumer = context.consume(&subscription, context.settings(8), handle, stop.clone());
    let watch = async {
        until_seen(context, &seen, count).await;
        stop.by(Instant::now() + context.profile().timeout);
    };
    context.step("consume and stop");
    let limit = context.profile().patience() * 2;
    let ended = async { tokio::join!(consumer, watch) };
    let (report, ()) = context.within(limit, "consume and stop", ended).await?;
    Ok(report)
}

async fn stop_flushes_settlements(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_spread(context, &place, 5).await?;
    let report = consume_all(context, &place, 5).await?;
    let left = context.unsettled(&place).await?;
    check_eq("acknowledged", &5, &report.acked)?;
    check_eq("what is left right after the end", &0, &left)
}

async fn stop_asked_twice_is_one_stop(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let stop = Stop::new();
    stop.by(Instant::now() + context.profile().timeout);
    stop.by(Instant::now());
    let handle = handler(|_| async { Settlement::Ack });
    let consumer = context.consume(&subscription, context.settings(1), handle, stop);
    let limit = context.profile().timeout * 4 + context.profile().wait;
    let report = context.within(limit, "stop", consumer).await?;
    check_eq("acknowledged", &0, &report.acked)?;
    let report = consume_all(context, &place, 1).await?;
    check_eq("acknowledged by the second", &1, &report.acked)?;
    context.left(&place, 0).await
}

async fn stop_with_a_silent_broker_is_bounded(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let subscription = context.open(&place).await?;
    context.play_always(&place, Operation::Receive, SourceFault::Silence)?;
    let stop = Stop::new();
    let handle = handler(|_| async { Settlement::Ack });
    let consumer = context.consume(&subscription, context.settings(1), handle, stop.clone());
    let watch = async {
        sleep(context.profile().margin()).await;
        stop.by(Instant::now() + context.profile().margin());
    };
    let limit = context.profile().margin() * 2 + context.profile().timeout * 4;
    let ended = async { tokio::join!(consumer, watch) };
    context.within(limit, "stop", ended).await?;
    context.was_played()
}

async fn close_twice_is_harmless(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.close(&*subscription).await?;
    context.close(&*subscription).await?;
    check_eq("what is left", &1, &context.unsettled(&place).await?)
}

async fn open_and_close_change_nothing(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 3).await?;
    for _ in 0..2 {
        let subscription = context.open(&place).await?;
        context.close(&*subscription).await?;
    }
    let subscription = context.open(&place).await?;
    check_eq("what is left", &3, &context.unsettled(&place).await?)?;
    let received = context.take(&*subscription, 3).await?;
    check_same("what comes", &ids, &ids_of(&received))?;
    context.settle_all(received, Settlement::Ack).await
}

async fn close_of_one_leaves_the_other(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let first = context.open(&place).await?;
    let second = context.open(&place).await?;
    context.close(&*first).await?;
    let ids = context.put_hooks(&place, 1).await?;
    let delivery = context.next(&*second).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}

async fn settle_after_close_is_honest(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.close(&*subscription).await?;
    if context.settle(delivery, Settlement::Ack).await?.is_ok() {
        return context.left(&place, 0).await;
    }
    let next = context.open(&place).await?;
    let delivery = context.next(&*next).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))
}

async fn resume_after_close_loses_nothing(context: &SourceContext<'_>) -> Checked {
    let (place, mut ids) = context.place_with(4).await?;
    let mut seen = Vec::new();
    let first = context.open(&place).await?;
    for _ in 0..2 {
        let delivery = context.next(&*first).await?;
        seen.push(id_of(delivery.received().body()));
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    context.close(&*first).await?;
    ids.extend(context.put_hooks(&place, 2).await?);
    let second = context.open(&place).await?;
    while seen.len() < ids.len() {
        let delivery = context.next(&*second).await?;
        seen.push(id_of(delivery.received().body()));
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    check_same("what came", &ids, &seen)
}

async fn resume_after_a_restart_of_the_broker(context: &SourceContext<'_>) -> Checked {
    let (place, mut ids) = context.place_with(2).await?;
    let subscription = context.open(&place).await?;
    let mut seen = Vec::new();
    let delivery = context.next(&*subscription).await?;
    seen.push(id_of(delivery.received().body()));
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.step("restart the broker");
    let restarted = context.fixture().restart().await;
    restarted.map_err(|error| crate::conformance::Failure::of_kit("restart", error.to_string()))?;
    ids.extend(context.put_hooks(&place, 1).await?);
    let begun = Instant::now();
    while seen.len() < ids.len() && begun.elapsed() < context.profile().patience() {
        // Whoever receives is told of the restart, and goes on.
        if let Ok(received) = context.try_receive(&*subscription, 1).await? {
            for delivery in received {
                let id = id_of(delivery.received().body());
                if context.settle(delivery, Settlement::Ack).await?.is_ok() {
                    seen.push(id);
                }
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    check_same("what came", &ids, &seen)
}

async fn consumer_goes_on_after_failed_receives(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    for _ in 0..3 {
        context.play(&place, Operation::Receive, SourceFault::Internal)?;
    }
    let report = consume_all(context, &place, 1).await?;
    context.was_played()?;
    check_eq("failed receives", &3, &report.failed_receives)?;
    check_eq("acknowledged", &1, &report.acked)
}

async fn consumer_until_empty_ends_by_itself(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_spread(context, &place, 3).await?;
    let subscription = context.open(&place).await?;
    let mut settings = context.settings(2);
    settings.until_empty = true;
    let handle = handler(|_| async { Settlement::Ack });
    let consumer = context.consume(&subscription, settings, handle, Stop::new());
    let limit = context.profile().patience();
    let report = context.within(limit, "until empty", consumer).await?;
    check_eq("acknowledged", &3, &report.acked)?;
    context.left(&place, 0).await
}

async fn consumer_report_adds_up(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_spread(context, &place, 6).await?;
    let subscription = context.open(&place).await?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            let settlement = match seen.note(&received) % 2 {
                0 => Settlement::Ack,
                _ => Settlement::Drop,
            };
            async move { settlement }
        })
    };
    let consumer = context.consume(&subscription, context.settings(2), handle, stop.clone());
    let watch = async {
        until_seen(context, &seen, 6).await;
        stop.by(Instant::now() + context.profile().timeout);
    };
    context.step("consume and stop");
    let (report, ()) = tokio::join!(consumer, watch);
    check_eq("acknowledged", &3, &report.acked)?;
    check_eq("dropped", &3, &report.dropped)?;
    check_eq("the report is complete", &true, &report.is_complete())?;
    context.left(&place, 0).await
}

async fn consumer_stuck_handler_leaves_the_others_room(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 6).await?;
    let subscription = context.open(&place).await?;
    let (seen, stop) = (Seen::default(), Stop::new());
    let stuck = ids[0].clone();
    let handle = {
        let seen = seen.clone();
        handler(move |received: Received| {
            let is_stuck = id_of(received.body()) == stuck;
            if !is_stuck {
                seen.note(&received);
            }
            async move {
                if is_stuck {
                    std::future::pending::<()>().await;
                }
                Settlement::Ack
            }
        })
    };
    let consumer = context.consume(&subscription, context.settings(2), handle, stop.clone());
    let watch = async {
        let begun = Instant::now();
        while seen.count() < 5 && begun.elapsed() < context.profile().patience() / 4 {
            sleep(Duration::from_millis(5)).await;
        }
        stop.by(Instant::now() + context.profile().margin());
    };
    context.step("consume beside a handler that is stuck");
    let (_, ()) = tokio::join!(consumer, watch);
    check_same("the others", &ids[1..], &seen.all())
}
