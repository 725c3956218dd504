//! Mutants of receiving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use dispatch_api::{Delivery, Settlement, Source, SourceError};

use super::tools::{
    PatchedDelivery, PatchedSubscription, calling, changing_received, opening, rebuilt, receiving,
    reconfigured, replying,
};
use super::{SourceMutant, SourceSeam};
use crate::conformance::source::SourceOptions;
use crate::reference::source::{QueueCall, QueueReply, ReferenceSource};

/// A number that no other call gets.
fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::SeqCst)
}

pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant::new(
        "EndsBodiesWithALine",
        "ends each body with a line break",
        "receive_matches_what_was_sent",
        "the body: expected the bytes that were put",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let body = [&received.body()[..], b"\n"].concat();
                rebuilt(received, received.id(), body)
            })
        }),
    ),
    SourceMutant::new(
        "LosesAttributes",
        "hands out the body alone",
        "receive_matches_what_was_sent",
        "an attribute: expected",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                received.clone().with_attributes(Vec::new())
            })
        }),
    ),
    SourceMutant::new(
        "EmptyIsAnError",
        "fails when there is nothing",
        "receive_empty_source_is_quiet",
        "receive: expected Ok",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let deliveries = inner.receive(max).await?;
                    match deliveries.is_empty() {
                        true => Err(SourceError::transient("Empty", "there is nothing")),
                        false => Ok(deliveries),
                    }
                })
            })
        }),
    ),
    SourceMutant::new(
        "DoesNotWait",
        "asks whether something is there, and does not wait for it",
        "receive_waits_for_a_first_message",
        "an empty receive: expected a wait",
        SourceSeam::Source(|_, parts| {
            reconfigured(&parts, |settings| settings.wait = Duration::ZERO)
        }),
    ),
    SourceMutant::new(
        "MissingIsTransient",
        "takes a place that is not there for one that is late",
        "receive_missing_source_is_config",
        "the class: expected Config",
        SourceSeam::Source(|inner, _| {
            opening(inner, |inner, plan| {
                Box::pin(async move {
                    let opened = inner.open(&plan).await;
                    opened.map_err(|_| SourceError::transient("NotYet", "it is not there yet"))
                })
            })
        }),
    ),
    SourceMutant::new(
        "CreatesItsPlace",
        "makes a place that is not there",
        "receive_missing_source_is_not_created",
        "the places: expected",
        SourceSeam::Source(|inner, parts| {
            opening(inner, move |inner, plan| {
                if !parts.broker.places().contains(&parts.place) {
                    parts.broker.create(&parts.place, parts.settings.kind);
                }
                Box::pin(async move { inner.open(&plan).await })
            })
        }),
    ),
    SourceMutant::new(
        "ForbiddenIsTransient",
        "takes a refusal for a fault of the broker",
        "receive_forbidden_source_is_config",
        "the class: expected Config",
        SourceSeam::Wire(|inner, _| {
            replying(inner, |_, mut reply| {
                if let Ok(QueueReply::Failed(failure)) = &mut reply
                    && failure.code == "AccessDenied"
                {
                    failure.code = "Internal".to_owned();
                }
                reply
            })
        }),
    ),
    SourceMutant::new(
        "GroupOfItsOwn",
        "gives each source a group of its own",
        "receive_consumers_compete",
        "what both got: expected 20 messages, each once",
        SourceSeam::Source(|_, parts| {
            reconfigured(&parts, |settings| {
                settings.group = format!("{}-{}", settings.group, number());
            })
        }),
    )
    .in_mode("plain-single"),
    SourceMutant::new(
        "OneGroupForAll",
        "takes every group for the same",
        "receive_groups_each_get_all",
        "receive: expected 5 deliveries; observed 0 deliveries",
        SourceSeam::Options(|options: &SourceOptions| options.clone().in_group("workers")),
    )
    .in_mode("plain-single"),
    SourceMutant::new(
        "GroupsInSilence",
        "gives each group every message without having promised it",
        "receive_groups_each_get_all",
        "watch for what must not come: expected nothing; observed 5 deliveries",
        SourceSeam::Source(|inner, parts| match &*parts.options.group {
            "clerks" => reconfigured(&parts, |settings| settings.group = "clerks".to_owned()),
            _ => inner,
        }),
    ),
    SourceMutant::new(
        "BeginsAtTheEnd",
        "throws away what was there before it",
        "receive_backlog_is_seen",
        "what was there and what came: expected 4 messages",
        SourceSeam::Source(|inner, _| {
            opening(inner, |inner, plan| {
                Box::pin(async move {
                    let subscription = inner.open(&plan).await?;
                    let many = std::num::NonZeroUsize::new(10).expect("10 is not zero");
                    for delivery in subscription.receive(many).await? {
                        let _ = delivery.settle(Settlement::Ack).await;
                    }
                    Ok(subscription)
                })
            })
        }),
    ),
    SourceMutant::new(
        "HidesPoison",
        "does not hand out what it does not understand",
        "receive_undecodable_is_delivered_as_it_is",
        "receive: expected 3 deliveries; observed 2 deliveries",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let mut deliveries = inner.receive(max).await?;
                    deliveries.retain(|delivery| delivery.received().message().is_ok());
                    Ok(deliveries)
                })
            })
        }),
    ),
    SourceMutant::new(
        "AcksPoison",
        "acks what it does not understand when it comes",
        "receive_poison_is_not_settled_by_itself",
        "messages while nobody settled it: expected 1; observed 0",
        SourceSeam::Wire(|inner, _| {
            calling(inner, |inner, request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await;
                    if let Ok(QueueReply::Messages { messages, .. }) = &reply {
                        let poison = messages.iter().filter(|message| {
                            dispatch_api::Message::decode(&message.body).is_err()
                        });
                        let handles: Vec<String> =
                            poison.map(|message| message.handle.clone()).collect();
                        if !handles.is_empty() {
                            let mut ack = request;
                            ack.call = QueueCall::Ack(handles);
                            let _ = inner.call(ack).await;
                        }
                    }
                    reply
                })
            })
        }),
    ),
    SourceMutant::new(
        "NeedsAnAttribute",
        "passes over messages without attributes",
        "receive_foreign_message",
        "receive: expected 1 deliveries; observed 0 deliveries",
        SourceSeam::Subscription(|inner, _| {
            receiving(inner, |inner, max| {
                Box::pin(async move {
                    let mut deliveries = inner.receive(max).await?;
                    deliveries.retain(|delivery| !delivery.received().attributes().is_empty());
                    Ok(deliveries)
                })
            })
        }),
    ),
    SourceMutant::new(
        "CountsFromTwo",
        "counts a delivery before it happens",
        "receive_attempt_count_starts_at_one",
        "the count of a first delivery: expected Some(1); observed Some(2)",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let count = received.redelivery_count().map(|count| count + 1);
                received.clone().with_redelivery_count(count)
            })
        }),
    ),
    SourceMutant::new(
        "ForgetsTheKey",
        "does not say what a message is ordered by",
        "receive_key_is_reported",
        "the key: expected Some(",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| received.clone().with_group(None))
        }),
    ),
    SourceMutant::new(
        "MatchesByPrefix",
        "reads the last place whose name begins like its own",
        "receive_places_do_not_mix",
        "ack what is left: expected that all of it comes",
        SourceSeam::Source(|_, parts| -> Arc<dyn Source> {
            let broker = Arc::clone(&parts.broker);
            let mut settings = parts.settings;
            let places = broker.places().into_iter();
            let like = places.filter(|place| place.starts_with(&settings.place));
            if let Some(last) = like.max() {
                settings.place = last;
            }
            Arc::new(ReferenceSource::new(settings, broker))
        }),
    ),
    SourceMutant::new(
        "ReceivedAtIsSentAt",
        "gives the time of the receive for that of the sending",
        "receive_sent_at_is_the_brokers",
        "the time of sending, told twice: expected the same time",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let now = SystemTime::UNIX_EPOCH + Duration::from_secs(number());
                received.clone().with_sent_at(Some(now))
            })
        }),
    ),
    SourceMutant::new(
        "IdOfTheDelivery",
        "gives each delivery an id of its own",
        "receive_id_is_the_same_when_it_comes_back",
        "the ids when they come back: expected",
        SourceSeam::Subscription(|inner, _| {
            changing_received(inner, |received| {
                let id = format!("{}-{}", received.id(), number());
                rebuilt(received, id, received.body().clone())
            })
        }),
    ),
    SourceMutant::new(
        "ShowsTheBody",
        "shows the body in the Debug of a delivery",
        "debug_shows_no_payload_and_no_secret",
        "Debug of a delivery: expected no payload and no secret",
        SourceSeam::Subscription(|inner, _| {
            let each = |delivery: Box<dyn Delivery>| -> Box<dyn Delivery> {
                let shown = format!("{:?}", delivery.received().body());
                Box::new(PatchedDelivery::new(delivery).shown(shown))
            };
            PatchedSubscription::new(inner).each(each).subscription()
        }),
    ),
    SourceMutant::new(
        "ShowsTheSecret",
        "shows the secret in the Debug of a subscription",
        "debug_shows_no_payload_and_no_secret",
        "Debug of a subscription: expected no payload and no secret",
        SourceSeam::Subscription(|inner, parts| {
            let shown = format!("Subscription {{ secret: {} }}", parts.settings.secret);
            PatchedSubscription::new(inner).shown(shown).subscription()
        }),
    ),
];
