//! Servers that stop, freeze and forget, and what is told of it.

use std::time::Duration;

use dispatch_api::{HostServices, SettleError, Source as _, SubscriptionPlan};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sink_nats::NatsSource;

use super::{at_most, next, open, publish, source};
use crate::support::server::server_or_skip;
use crate::support::soon;

#[tokio::test]
async fn a_settlement_whose_confirmation_is_lost_is_unknown_and_no_success() {
    let server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    // A hold that outlasts the time of the settlement.
    let patient = source(&server, |builder| {
        builder.ack_wait(Duration::from_secs(30)).timeout_ms(500)
    });
    let subscription = patient.open(&SubscriptionPlan::new()).await.unwrap();
    let delivery = next(&subscription).await;
    server.freeze();
    let error = soon(delivery.ack()).await.unwrap_err();
    server.thaw();
    let SettleError::Unknown(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.code(), "Timeout");
}

#[tokio::test]
async fn a_settlement_at_a_server_that_is_gone_is_no_success_and_the_message_comes_back() {
    let mut server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let subscription = open(&server).await;
    let delivery = next(&subscription).await;
    server.kill();
    soon(delivery.ack()).await.unwrap_err();
    let error = soon(subscription.receive(at_most(1))).await.unwrap_err();
    assert_eq!(error.class().as_str(), "transient", "{error}");
    server.restart();
    let back = soon(async {
        loop {
            // The stream is there a little after the server.
            if let Ok(mut received) = subscription.receive(at_most(1)).await
                && let Some(delivery) = received.pop()
            {
                return delivery;
            }
        }
    })
    .await;
    assert_eq!(back.received().id(), "HOOKS/1");
    back.ack().await.unwrap();
}

#[tokio::test]
async fn a_delivery_is_settled_by_a_new_connection_after_the_old_one_ended() {
    let mut server = server_or_skip!();
    server.create_stream().await;
    publish(&server, "a").await;
    let patient = source(&server, |builder| builder.ack_wait(Duration::from_secs(30)));
    let subscription = patient.open(&SubscriptionPlan::new()).await.unwrap();
    let delivery = next(&subscription).await;
    server.stop();
    server.restart();
    super::left(&server).await;
    delivery.ack().await.unwrap();
    assert_eq!(super::left(&server).await, (0, 0));
}

#[tokio::test]
async fn a_consumer_that_was_deleted_is_told_and_nothing_is_created_behind_its_back() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let brief = source(&server, |builder| {
        builder.wait(Duration::from_millis(100)).timeout_ms(500)
    });
    let subscription = brief.open(&SubscriptionPlan::new()).await.unwrap();
    stream.delete_consumer("worker").await.unwrap();
    let error = soon(subscription.receive(at_most(1))).await.unwrap_err();
    assert_eq!(
        (error.class().as_str(), error.code()),
        ("config", "ConsumerNotFound")
    );
    open(&server).await;
}

#[tokio::test]
async fn a_forbidden_pull_names_the_subject_to_allow() {
    let server = server_or_skip!(
        "authorization { users = [\n\
           { user: all, password: p }\n\
           { user: few, password: p, permissions: { publish: { deny: \"$JS.API.CONSUMER.MSG.NEXT.>\" } } }\n\
         ] }\nno_auth_user: all"
    );
    server.create_stream().await;
    let builder = NatsSource::builder([server.address()], "HOOKS", "worker").user("few", "p");
    let source = builder.build(&HostServices::new()).unwrap();
    let subscription = source.open(&SubscriptionPlan::new()).await.unwrap();
    let error = soon(subscription.receive(at_most(1))).await.unwrap_err();
    assert_eq!(
        (error.class().as_str(), error.code()),
        ("config", "PermissionDenied")
    );
    assert!(
        error
            .text()
            .contains("$JS.API.CONSUMER.MSG.NEXT.HOOKS.worker"),
        "{error}"
    );
}

#[test]
fn receives_and_settlements_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = server_or_skip!();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            server.create_stream().await;
            publish(&server, "a").await;
            let subscription = open(&server).await;
            next(&subscription).await.retry().await.unwrap();
            next(&subscription).await.ack().await.unwrap();
        });
    });
    let mut counted = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let DebugValue::Counter(count) = value else {
            continue;
        };
        let key = key.key();
        let mut labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
        labels.insert(0, key.name().to_owned());
        counted.push((labels.join(" "), count));
    }
    counted.sort();
    let counted: Vec<_> = counted
        .iter()
        .map(|(key, count)| (&**key, *count))
        .collect();
    assert_eq!(
        counted,
        [
            ("ankusa_nats_settlements_total ack  HOOKS worker", 1),
            ("ankusa_nats_settlements_total retry  HOOKS worker", 1),
            (
                "messaging_client_consumed_messages_total nats receive  HOOKS worker",
                2
            ),
        ]
    );
}
