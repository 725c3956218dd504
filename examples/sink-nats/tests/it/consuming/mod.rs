//! The source against servers of its own.

mod dead_letter;
mod faults;
mod opening;
mod settling;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use dispatch_api::{Delivery, HostServices, Source as _, Subscription, SubscriptionPlan};
use sink_nats::{NatsSource, NatsSourceBuilder};

use crate::support::server::NatsServer;
use crate::support::soon;

const ACK_WAIT: Duration = Duration::from_secs(1);

/// A source of the stream `HOOKS` through the consumer `worker`.
fn source(
    server: &NatsServer,
    change: impl FnOnce(NatsSourceBuilder) -> NatsSourceBuilder,
) -> NatsSource {
    let builder = NatsSource::builder([server.address()], "HOOKS", "worker")
        .ack_wait(ACK_WAIT)
        .wait(Duration::from_secs(5));
    change(builder).build(&HostServices::new()).unwrap()
}

/// [`source`], opened without a plan.
async fn open(server: &NatsServer) -> Arc<dyn Subscription> {
    let source = source(server, |builder| builder);
    source.open(&SubscriptionPlan::new()).await.unwrap()
}

async fn publish(server: &NatsServer, body: &'static str) {
    let jetstream = server.jetstream().await;
    let stored = jetstream.publish("hooks.acme", body.into()).await.unwrap();
    stored.await.unwrap();
}

fn at_most(max: usize) -> NonZeroUsize {
    NonZeroUsize::new(max).unwrap()
}

/// The next delivery; there has to be one.
async fn next(subscription: &Arc<dyn Subscription>) -> Box<dyn Delivery> {
    soon(async {
        loop {
            if let Some(delivery) = subscription.receive(at_most(1)).await.unwrap().pop() {
                return delivery;
            }
        }
    })
    .await
}

/// How many messages of the consumer are neither delivered nor settled, and how many are out.
async fn left(server: &NatsServer) -> (u64, usize) {
    let stream = server.jetstream().await.get_stream("HOOKS").await.unwrap();
    let mut consumer: PullConsumer = stream.get_consumer("worker").await.unwrap();
    let info = consumer.info().await.unwrap();
    (info.num_pending, info.num_ack_pending)
}

fn count(delivery: &dyn Delivery) -> Option<u32> {
    delivery.received().redelivery_count()
}
