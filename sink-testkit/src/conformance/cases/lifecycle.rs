//! Building and leaving: without a network, without leaks.

use std::time::Duration;

use tokio::time::Instant;

use crate::conformance::case::case;
use crate::conformance::{
    Case, Checked, Context, Duplicates, Failure, Fault, FaultKind, Hold, check, check_eq,
};

pub(super) const CASES: &[Case] = &[
    case!(
        building_sends_nothing,
        "building a sink and leaving it alone creates nothing and sends nothing"
    ),
    case!(
        a_drain_before_the_first_delivery_is_fine,
        "a sink that never delivered is drained at once, with nothing to report"
    ),
    case!(
        a_second_instance_works_beside_the_first,
        "two sinks of the same options are there at once, and one outlives the other"
    ),
    case!(
        dropping_a_sink_with_work_under_way_is_quiet,
        "a sink that is dropped while a dropped delivery's request is open neither panics nor hangs"
    )
    .needs_faults(&[FaultKind::HoldReply]),
    case!(
        tasks_do_not_pile_up,
        "building, using, draining and dropping a sink twenty times leaves no task behind"
    ),
];

async fn building_sends_nothing(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let missing = context.fixture().missing();
    let before = destinations(context).await?;
    let sink = context.build(&destination)?;
    let to_nowhere = context.build(&missing)?;
    let observed = context.quiet(&destination).await?;
    check_eq("messages of a sink that is only built", &0, &observed.len())?;
    drop((sink, to_nowhere));
    check_eq(
        "destinations after building",
        &before,
        &destinations(context).await?,
    )
}

async fn destinations(context: &Context<'_>) -> Checked<Vec<String>> {
    let listed = context.fixture().destinations().await;
    listed.map_err(|error| Failure::of_kit("list the destinations", error.to_string()))
}

async fn a_drain_before_the_first_delivery_is_fine(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let drained = sink.drain(Instant::now() + Duration::from_secs(5));
    let report = context
        .within(Duration::from_secs(1), "the drain of an idle sink", drained)
        .await?;
    check_eq(
        "the report of an idle sink",
        &(0, 0),
        &(report.answered, report.unanswered),
    )
}

async fn a_second_instance_works_beside_the_first(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let first = context.build(&destination)?;
    let second = context.build(&destination)?;
    for sink in [&first, &second, &first] {
        let envelope = context.envelope();
        context.deliver_ok(&**sink, &envelope).await?;
    }
    drop(first);
    let envelope = context.envelope();
    context.deliver_ok(&*second, &envelope).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn dropping_a_sink_with_work_under_way_is_quiet(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let sink = context.build(&destination)?;
    let hold = Hold::new();
    context.play(&destination, Fault::HoldReply(hold.gate()))?;
    let envelope = context.envelope();
    {
        let mut delivery = std::pin::pin!(context.deliver(&*sink, &envelope));
        context.arrivals(&hold, 1, &mut delivery).await?;
    }
    context.step("drop the sink");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(sink)));
    check(dropped.is_ok(), "dropping the sink", "silence", "a panic")?;
    hold.release();
    let control = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*control, &envelope).await?;
    context.judge(&destination, Duplicates::Forbidden).await
}

async fn tasks_do_not_pile_up(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let warm = context.build(&destination)?;
    let envelope = context.envelope();
    context.deliver_ok(&*warm, &envelope).await?;
    let before = tasks();
    for _ in 0..20 {
        let sink = context.build(&destination)?;
        let envelope = context.envelope();
        context.deliver_ok(&*sink, &envelope).await?;
        context.drain(&*sink).await?;
    }
    let began = Instant::now();
    let slack = 6;
    while tasks() > before + slack && began.elapsed() < context.profile().patience() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check(
        tasks() <= before + slack,
        "tasks after twenty sinks",
        format!("at most {slack} more than before"),
        format!("{} before, {} after", before, tasks()),
    )
}
