//! How much comes, and how often.

use std::time::Duration;

use bytes::Bytes;
use dispatch_api::Settlement;
use tokio::time::{Instant, sleep};

use super::steps::{ack_what_is_left, long_hold, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{RawMessage, SourceCapability, SourceCase, SourceContext};
use crate::conformance::{Checked, Failure, FixtureError, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        receive_of_the_largest_message,
        "the largest body arrives byte for byte"
    ),
    source_case!(
        receive_never_brings_more_than_asked,
        "a receive brings at most what was asked for"
    ),
    source_case!(
        receive_small_rest_is_delivered,
        "fewer messages than were asked for come all the same"
    ),
    source_case!(
        receive_hands_out_nothing_twice_within_a_hold,
        "what is held comes to nobody a second time"
    ),
    source_case!(
        receive_prefetch_is_bounded,
        "no more is taken than was asked for and is declared"
    )
    .needs(&[SourceCapability::InHand]),
    source_case!(
        receive_after_close_takes_nothing,
        "a closed subscription takes no message"
    ),
];

async fn receive_never_brings_more_than_asked(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(12).await?;
    let subscription = context.open(&place).await?;
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < ids.len() && begun.elapsed() < context.profile().patience() {
        let received = context.receive(&*subscription, 3).await?;
        check(
            received.len() <= 3,
            "a receive of 3",
            "3 deliveries at most",
            format!("{}", received.len()),
        )?;
        seen.extend(ids_of(&received));
        context.settle_all(received, Settlement::Ack).await?;
        sleep(Duration::from_millis(1)).await;
    }
    check_same("what came", &ids, &seen)
}

/// The length of a large body where no limit is declared: more than a client reads at once.
const LARGE: usize = 256 * 1024;

async fn receive_of_the_largest_message(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let length = context.profile().max_message_bytes.unwrap_or(LARGE);
    // Not all alike, so that a part that is missing or in another place is seen.
    let body: Vec<u8> = (0..length).map(|at| b'a' + (at / 977 % 26) as u8).collect();
    let body = Bytes::from(body);
    let message = RawMessage::new(body.clone()).with_key("quay-7/harbor");
    context.put(&place, &[message]).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    check(
        *delivery.received().body() == body,
        "the largest body",
        format!("the {length} bytes that were put"),
        format!("{} bytes", delivery.received().body().len()),
    )?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn receive_small_rest_is_delivered(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 7).await?;
    let subscription = context.open(&place).await?;
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < ids.len() && begun.elapsed() < context.profile().patience() {
        let received = context.receive(&*subscription, 5).await?;
        seen.extend(ids_of(&received));
        context.settle_all(received, Settlement::Ack).await?;
        sleep(Duration::from_millis(10)).await;
    }
    check_same("7 messages, 5 at a time", &ids, &seen)
}

async fn receive_hands_out_nothing_twice_within_a_hold(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 5).await?;
    let options = long_hold(context);
    let hold = options.hold;
    let subscription = context
        .open_with(&place, &options, &context.plan_for(&place))
        .await?;
    let held = context.take(&*subscription, ids.len()).await?;
    check_same("what came", &ids, &ids_of(&held))?;
    // Receives end by themselves, so the last may end a wait after the time is over.
    let time = hold.saturating_sub(context.profile().wait * 2) / 2;
    context.nothing_comes(&*subscription, time).await?;
    context.settle_all(held, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn receive_prefetch_is_bounded(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 30).await?;
    let subscription = context.open(&place).await?;
    let held = context.take(&*subscription, 2).await?;
    let most = held.len() + context.profile().prefetch;
    for _ in 0..3 {
        let in_hand = context.fixture().in_hand(&place, "workers").await;
        let in_hand = in_hand.map_err(|error: FixtureError| {
            Failure::of_kit("count what is held", error.to_string())
        })?;
        check(
            in_hand >= held.len() && in_hand <= most,
            "messages in hand after a receive of 2",
            format!("from 2 to {most}"),
            format!("{in_hand}"),
        )?;
        context.sleep(context.profile().margin() / 3).await;
    }
    context.settle_all(held, Settlement::Ack).await?;
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    check_eq("messages afterwards", &(ids.len() - 2), &came.len())
}

async fn receive_after_close_takes_nothing(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let closed = context.open(&place).await?;
    context.sentinel(&place, &*closed).await?;
    context.close(&*closed).await?;
    let ids = context.put_hooks(&place, 1).await?;
    // An error says it as well as nothing does.
    if let Ok(received) = context.try_receive(&*closed, 1).await? {
        check_eq("deliveries of a closed subscription", &0, &received.len())?;
    }
    let options = long_hold(context);
    let open = context
        .open_with(&place, &options, &context.plan_for(&place))
        .await?;
    let delivery = context.next(&*open).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}
