//! What comes, and what does not.

use std::time::Duration;

use dispatch_api::{ErrorClass, Settlement};
use tokio::time::{Instant, sleep};

use crate::conformance::source::case::source_case;
use crate::conformance::source::context::{check_same, id_of, ids_of};
use crate::conformance::source::{
    Operation, SourceCase, SourceContext, SourceFault, SourceFaultKind,
};
use crate::conformance::{Checked, check, check_eq};

pub(super) const CASES: &[SourceCase] = &[
    source_case!(
        receive_matches_what_was_sent,
        "a body arrives byte for byte, and its attributes as they were put"
    ),
    source_case!(
        receive_empty_source_is_quiet,
        "a place without messages is no error"
    ),
    source_case!(
        receive_waits_for_a_first_message,
        "a receive of an empty place waits its time, and a message ends the wait"
    ),
    source_case!(
        receive_missing_source_is_config,
        "a place that is not there is a configuration error, told in bounded time"
    ),
    source_case!(
        receive_missing_source_is_not_created,
        "a source never creates its place"
    ),
    source_case!(
        receive_never_brings_more_than_asked,
        "a receive brings at most what was asked for"
    ),
    source_case!(
        receive_fetch_error_is_reported_and_recovers,
        "a receive that fails says so, and the next one goes on"
    )
    .plays(&[(Operation::Receive, SourceFaultKind::LoseRequest)]),
];

async fn receive_matches_what_was_sent(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let mut sent = context.hooks(3);
    sent.push(context.hook_of("größer \\u{1F4E6} \\t"));
    context.put(&place, &sent).await?;
    let subscription = context.open(&place).await?;
    let received = context.take(&*subscription, sent.len()).await?;
    for delivery in received {
        let received = delivery.received().clone();
        let id = id_of(received.body());
        let original = sent.iter().find(|sent| id_of(&sent.body) == id);
        let is_same = original.is_some_and(|original| original.body == *received.body());
        check(is_same, "the body", "the bytes that were put", "others")?;
        let attributes = original.map_or(&[][..], |original| &original.attributes[..]);
        for (name, value) in attributes {
            check_eq("an attribute", &Some(&**value), &received.attribute(name))?;
        }
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    Ok(())
}

async fn receive_empty_source_is_quiet(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let subscription = context.open(&place).await?;
    for _ in 0..2 {
        let received = context.receive(&*subscription, 10).await?;
        check_eq("deliveries", &0, &received.len())?;
    }
    context.sentinel(&place, &*subscription).await
}

async fn receive_waits_for_a_first_message(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let subscription = context.open(&place).await?;
    // A first receive may have to join a group.
    let _ = context.receive(&*subscription, 1).await?;
    let wait = context.profile().wait;
    let begun = Instant::now();
    let received = context.receive(&*subscription, 1).await?;
    check_eq("deliveries", &0, &received.len())?;
    let waited = begun.elapsed();
    check(
        waited >= wait / 2,
        "an empty receive",
        format!("a wait of about {wait:?}"),
        format!("{waited:?}"),
    )?;
    let put = async {
        sleep(wait / 10).await;
        context.put_hooks(&place, 1).await
    };
    let (received, put) = tokio::join!(context.next(&*subscription), put);
    check_eq("the message", &put?[0], &id_of(received?.received().body()))?;
    let waited = begun.elapsed() - waited;
    check(
        waited <= wait / 10 + wait * 2 / 3,
        "a first message",
        "it ends the wait",
        format!("it came after {waited:?}"),
    )
}

async fn receive_missing_source_is_config(context: &SourceContext<'_>) -> Checked {
    let missing = context.fixture().missing();
    let error = context
        .open_err(&missing, &context.plan_for(&missing))
        .await?;
    check_eq("the class", &ErrorClass::Config, &error.class())
}

async fn receive_missing_source_is_not_created(context: &SourceContext<'_>) -> Checked {
    let before = context.destinations().await?;
    let missing = context.fixture().missing();
    let _ = context
        .try_open(&missing, &context.options(), &context.plan_for(&missing))
        .await?;
    check_eq("the places", &before, &context.destinations().await?)
}

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

async fn receive_fetch_error_is_reported_and_recovers(context: &SourceContext<'_>) -> Checked {
    let (place, ids) = context.place_with(1).await?;
    let subscription = context.open(&place).await?;
    context.play(&place, Operation::Receive, SourceFault::LoseRequest)?;
    let failed = context.try_receive(&*subscription, 1).await?;
    context.was_played()?;
    match failed {
        Ok(_) => check(false, "a broken receive", "an error", "Ok")?,
        Err(error) => check_eq("the class", &ErrorClass::Transient, &error.class())?,
    }
    let delivery = context.next(&*subscription).await?;
    check_eq("the message", &ids[0], &id_of(delivery.received().body()))?;
    context.settle_ok(delivery, Settlement::Ack).await
}
