//! What comes, and what does not.

use std::time::{Duration, SystemTime};

use dispatch_api::{ErrorClass, Settlement};
use tokio::time::{Instant, sleep};

use super::steps::{ack_what_is_left, again, long_hold, put_spread};
use crate::conformance::source::case::source_case;
use crate::conformance::source::ids::{check_same, id_of, ids_of};
use crate::conformance::source::{RawMessage, SourceCapability, SourceCase, SourceContext};
use crate::conformance::{Checked, Destination, Failure, Scanner, check, check_eq};

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
        receive_forbidden_source_is_config,
        "a place that may not be read is a configuration error, told in bounded time"
    )
    .needs(&[SourceCapability::Forbidden]),
    source_case!(
        receive_consumers_compete,
        "two subscriptions of one group share the messages, and none comes to both"
    )
    .needs(&[SourceCapability::Compete]),
    source_case!(
        receive_groups_each_get_all,
        "each group gets every message, or a name of a group changes nothing"
    )
    .needs(&[SourceCapability::Groups])
    .otherwise(|context| Box::pin(without_groups_all_share(context))),
    source_case!(
        receive_backlog_is_seen,
        "what was there before the first subscription comes too"
    ),
    source_case!(
        receive_undecodable_is_delivered_as_it_is,
        "a body that is no message of the wire format is delivered byte for byte"
    ),
    source_case!(
        receive_poison_is_not_settled_by_itself,
        "a body that nobody understands is settled by who receives it, and by nobody else"
    ),
    source_case!(
        receive_foreign_message,
        "a plain text without any attribute is delivered"
    ),
    source_case!(
        receive_attempt_count_starts_at_one,
        "a first delivery is the first"
    )
    .needs(&[SourceCapability::Count]),
    source_case!(
        receive_key_is_reported,
        "a delivery names the key that it is ordered by"
    )
    .needs(&[SourceCapability::Order]),
    source_case!(
        receive_places_do_not_mix,
        "a source brings nothing of a place with a similar name"
    ),
    source_case!(
        receive_sent_at_is_the_brokers,
        "the time of sending is the broker's, the same at each delivery"
    )
    .needs(&[SourceCapability::SentAt]),
    source_case!(
        receive_id_is_the_same_when_it_comes_back,
        "the broker's id of a message stays, and no other message has it"
    )
    .needs(&[SourceCapability::SingleRetry]),
    source_case!(
        debug_shows_no_payload_and_no_secret,
        "no Debug text of a source, a subscription or a delivery shows a payload or a secret"
    ),
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

async fn receive_forbidden_source_is_config(context: &SourceContext<'_>) -> Checked {
    let (place, _) = context.place_with(1).await?;
    let source = context.fixture().forbidden(&place);
    let source = source.ok_or_else(|| {
        Failure::of_kit(
            "forbidden",
            "the profile declares a forbidden place and the fixture has none",
        )
    })?;
    let limit = context.profile().timeout * 4 + context.profile().margin();
    let plan = context.plan_for(&place);
    let opened = context.within(limit, "open", source.open(&plan)).await?;
    // Some brokers say so when a message is asked for, and not before.
    let error = match opened {
        Err(error) => error,
        Ok(subscription) => match context.try_receive(&*subscription, 1).await? {
            Err(error) => error,
            Ok(received) => {
                let observed = format!("Ok of {} deliveries", received.len());
                return Err(Failure::new("a forbidden place", "an error", observed));
            }
        },
    };
    check_eq("the class", &ErrorClass::Config, &error.class())
}

async fn receive_consumers_compete(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 20).await?;
    let options = long_hold(context);
    let plan = context.plan_for(&place);
    let first = context.open_with(&place, &options, &plan).await?;
    let second = context.open_with(&place, &options, &plan).await?;
    let (mut to_first, mut to_second) = (Vec::new(), Vec::new());
    let mut begun = Instant::now();
    while to_first.len() + to_second.len() < ids.len() {
        let before = to_first.len() + to_second.len();
        to_first.extend(context.receive(&*first, 2).await?);
        to_second.extend(context.receive(&*second, 2).await?);
        if to_first.len() + to_second.len() > before {
            begun = Instant::now();
        } else if begun.elapsed() > context.profile().patience() {
            break;
        } else {
            sleep(Duration::from_millis(10)).await;
        }
    }
    let came = [ids_of(&to_first), ids_of(&to_second)].concat();
    check_same("what both got", &ids, &came)?;
    for (name, got) in [
        ("the first", to_first.len()),
        ("the second", to_second.len()),
    ] {
        check(got > 0, name, "a share of the messages", "nothing")?;
    }
    context.settle_all(to_first, Settlement::Ack).await?;
    context.settle_all(to_second, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn receive_groups_each_get_all(context: &SourceContext<'_>) -> Checked {
    const GROUPS: [&str; 2] = ["workers", "clerks"];
    let place = context.place().await?;
    let plan = context.plan_for(&place);
    let mut subscriptions = Vec::new();
    for group in GROUPS {
        let options = context.options().in_group(group);
        let subscription = context.open_with(&place, &options, &plan).await?;
        // A first receive may have to join the group.
        let _ = context.receive(&*subscription, 1).await?;
        subscriptions.push(subscription);
    }
    let ids = context.put_hooks(&place, 5).await?;
    for (group, subscription) in GROUPS.into_iter().zip(&subscriptions) {
        let received = context.take(&**subscription, ids.len()).await?;
        check_same(&format!("the group {group}"), &ids, &ids_of(&received))?;
        context.settle_all(received, Settlement::Ack).await?;
    }
    for (group, subscription) in GROUPS.into_iter().zip(&subscriptions) {
        context.close(&**subscription).await?;
        let left = context.unsettled_of(&place, group).await?;
        check_eq(&format!("messages left to {group}"), &0, &left)?;
    }
    Ok(())
}

async fn without_groups_all_share(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 5).await?;
    let subscription = context.open(&place).await?;
    let received = context.take(&*subscription, ids.len()).await?;
    check_same("the first group", &ids, &ids_of(&received))?;
    context.settle_all(received, Settlement::Ack).await?;
    context.close(&*subscription).await?;
    let options = context.options().in_group("clerks");
    let plan = context.plan_for(&place);
    let other = context.open_with(&place, &options, &plan).await?;
    context
        .nothing_comes(&*other, context.profile().margin())
        .await?;
    context.left(&place, 0).await
}

async fn receive_backlog_is_seen(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let mut ids = context.put_hooks(&place, 3).await?;
    context.sleep(context.profile().margin()).await;
    let subscription = context.open(&place).await?;
    ids.extend(context.put_hooks(&place, 1).await?);
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    check_same("what was there and what came", &ids, &came)
}

/// A body that is no message, a hook before it and one after it.
async fn place_with_poison(
    context: &SourceContext<'_>,
    poison: &RawMessage,
) -> Checked<(Destination, Vec<RawMessage>)> {
    let place = context.place().await?;
    let messages = vec![context.hook(), poison.clone(), context.hook()];
    context.put(&place, &messages).await?;
    Ok((place, messages))
}

async fn receive_undecodable_is_delivered_as_it_is(context: &SourceContext<'_>) -> Checked {
    for body in [
        r#"{"v":1,"id":"#,
        r#"{"v":99,"parcel":"none"}"#,
        "%%% no parcel %%%",
    ] {
        let poison = RawMessage::new(body).with_key("quay-7/harbor");
        let (place, messages) = place_with_poison(context, &poison).await?;
        let subscription = context.open(&place).await?;
        let received = context.take(&*subscription, messages.len()).await?;
        for message in &messages {
            let came = received
                .iter()
                .filter(|delivery| message.body == *delivery.received().body());
            check_eq("deliveries of each body", &1, &came.count())?;
        }
        context.settle_all(received, Settlement::Ack).await?;
        context.left(&place, 0).await?;
        context.close(&*subscription).await?;
    }
    Ok(())
}

async fn receive_poison_is_not_settled_by_itself(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let poison = RawMessage::new("no message at all").with_key("quay-7/harbor");
    context.put(&place, std::slice::from_ref(&poison)).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    context.sleep(context.profile().margin()).await;
    let left = context.unsettled(&place).await?;
    check_eq("messages while nobody settled it", &1, &left)?;
    drop(delivery);
    let subscription = again(context, &place, subscription).await?;
    let delivery = context.next(&*subscription).await?;
    check(
        poison.body == *delivery.received().body(),
        "the body that comes again",
        "the bytes that were put",
        "others",
    )?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn receive_foreign_message(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let text = "ship 14 has docked at quay 7";
    let message = RawMessage::new(text).with_key("quay-7/harbor");
    context.put(&place, &[message]).await?;
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let received = delivery.received();
    let is_same = text.as_bytes() == &received.body()[..];
    check(is_same, "the body", "the text that was put", "another")?;
    check(
        received.message().is_err(),
        "the text as a message",
        "that it is none",
        "a message",
    )?;
    check_eq("an attribute", &None, &received.attribute("ankusa_source"))?;
    context.settle_ok(delivery, Settlement::Ack).await?;
    context.left(&place, 0).await
}

async fn receive_attempt_count_starts_at_one(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    put_spread(context, &place, 3).await?;
    let subscription = context.open(&place).await?;
    for delivery in context.take(&*subscription, 3).await? {
        let count = delivery.received().redelivery_count();
        check_eq("the count of a first delivery", &Some(1), &count)?;
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    Ok(())
}

async fn receive_key_is_reported(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let keys = ["quay-7/harbor", "quay-8/harbor", "quay-7/harbor"];
    let hooks: Vec<RawMessage> = keys.map(|key| context.hook().with_key(key)).into();
    context.put(&place, &hooks).await?;
    let subscription = context.open(&place).await?;
    for _ in &hooks {
        let delivery = context.next(&*subscription).await?;
        let id = id_of(delivery.received().body());
        let hook = hooks.iter().find(|hook| id_of(&hook.body) == id);
        let key = hook.and_then(|hook| hook.key.as_deref());
        check_eq("the key", &key, &delivery.received().group())?;
        context.settle_ok(delivery, Settlement::Ack).await?;
    }
    context.left(&place, 0).await
}

async fn receive_places_do_not_mix(context: &SourceContext<'_>) -> Checked {
    let first = context.named_place("hooks").await?;
    let second = context.named_place("hooks-late").await?;
    let ids = [
        context.put_hooks(&first, 3).await?,
        context.put_hooks(&second, 2).await?,
    ];
    let subscriptions = [context.open(&first).await?, context.open(&second).await?];
    for ((place, ids), subscription) in [&first, &second].into_iter().zip(&ids).zip(&subscriptions)
    {
        let came = ack_what_is_left(context, place, &**subscription).await?;
        check_same("what came from its own place", ids, &came)?;
        context
            .nothing_comes(&**subscription, context.profile().margin())
            .await?;
    }
    Ok(())
}

async fn receive_sent_at_is_the_brokers(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let hooks = ["quay-1/harbor", "quay-2/harbor"].map(|key| context.hook().with_key(key));
    let ids = hooks.each_ref().map(|hook| id_of(&hook.body));
    for hook in hooks {
        context.put(&place, &[hook]).await?;
        context.sleep(context.profile().margin()).await;
    }
    let mut subscription = context.open(&place).await?;
    let mut seen: Vec<Vec<SystemTime>> = Vec::new();
    for _ in 0..2 {
        let received = context.take(&*subscription, ids.len()).await?;
        let mut times = Vec::new();
        for id in &ids {
            let mut deliveries = received.iter().map(|delivery| delivery.received());
            let delivery = deliveries.find(|received| id_of(received.body()) == *id);
            let sent_at = delivery.and_then(dispatch_api::Received::sent_at);
            times.push(sent_at.ok_or_else(|| {
                Failure::new("the time of sending", "a time of each message", "none")
            })?);
        }
        seen.push(times);
        drop(received);
        subscription = again(context, &place, subscription).await?;
    }
    check(
        seen[0] == seen[1],
        "the time of sending, told twice",
        "the same time",
        "another",
    )?;
    check(
        seen[0][0] <= seen[0][1],
        "the times of two messages",
        "the order in which they were put",
        "the other",
    )?;
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    check_same("what comes again", &ids, &came)
}

async fn receive_id_is_the_same_when_it_comes_back(context: &SourceContext<'_>) -> Checked {
    let place = context.place().await?;
    let ids = put_spread(context, &place, 2).await?;
    let subscription = context.open(&place).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let received = context.take(&*subscription, ids.len()).await?;
        let of = |id: &String| {
            let mut deliveries = received.iter().map(|delivery| delivery.received());
            let found = deliveries.find(|received| id_of(received.body()) == *id);
            found.map(|received| received.id().to_owned())
        };
        let brokers: Vec<Option<String>> = ids.iter().map(of).collect();
        check(
            brokers.iter().flatten().all(|id| !id.is_empty()),
            "the broker's id",
            "one of each message",
            "an empty one",
        )?;
        seen.push(brokers);
        context.settle_all(received, Settlement::Retry).await?;
    }
    check_eq("the ids when they come back", &seen[0], &seen[1])?;
    check(
        seen[0][0] != seen[0][1],
        "the ids of two messages",
        "two ids",
        "one",
    )?;
    let came = ack_what_is_left(context, &place, &*subscription).await?;
    check_same("what comes back", &ids, &came)
}

async fn debug_shows_no_payload_and_no_secret(context: &SourceContext<'_>) -> Checked {
    const PAYLOAD: &str = "canary-of-the-payload-4711";
    const VALUE: &str = "canary-of-the-attribute-0815";
    let place = context.place().await?;
    let mut hook = context.hook_of(PAYLOAD);
    if context.profile().has(SourceCapability::Attributes) {
        hook = hook.with_attribute("mooring", VALUE);
    }
    context.put(&place, &[hook]).await?;
    let source = context.fixture().source(&place, &context.options());
    let source = source.map_err(|text| Failure::new("build", "a source", text))?;
    let mut shown = vec![("a source", format!("{source:?}{source:#?}"))];
    let subscription = context.open(&place).await?;
    let delivery = context.next(&*subscription).await?;
    let received = delivery.received().clone();
    shown.push(("a received message", format!("{received:?}{received:#?}")));
    shown.push(("a delivery", format!("{delivery:?}{delivery:#?}")));
    context.settle_ok(delivery, Settlement::Ack).await?;
    shown.push((
        "a subscription",
        format!("{subscription:?}{subscription:#?}"),
    ));
    shown.push(("the name of a subscription", subscription.name().to_owned()));
    let mut hidden = vec![PAYLOAD.to_owned(), VALUE.to_owned()];
    hidden.extend(context.fixture().secrets());
    for value in &hidden {
        let scanner = Scanner::new(value).map_err(|text| Failure::of_kit("canary", text))?;
        for (what, text) in &shown {
            if let Some(form) = scanner.find(text) {
                let step = format!("Debug of {what}");
                let observed = format!("one, {form}");
                return Err(Failure::new(step, "no payload and no secret", observed));
            }
        }
    }
    Ok(())
}
