//! An instance's metadata that takes its tokens back.

use std::time::Duration;

use dispatch_api::{Outcome, Sink as _};
use sink_sqs::{SqsSink, SqsSinkConfig};

use crate::bench::{ctx, envelope, parts, sink_of};
use crate::raw::RawServer;
use crate::sources::{World, metadata_refusing};

/// A sink on an instance whose metadata service refuses this many of its tokens.
async fn on_instance(refused: usize) -> (World, RawServer, SqsSink) {
    let world = World::new([]).await;
    let end = world.now() + Duration::from_secs(3_600);
    let instance = metadata_refusing(refused, "1", end).await;
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.origin());
    let config = SqsSinkConfig::builder(&world.queue_url, "us-east-1");
    let sink = sink_of(config, &world.services);
    (world, instance, sink)
}

/// The requests that a metadata service had: for tokens, and for anything else.
fn asked(instance: &RawServer) -> (usize, usize) {
    let requests = instance.requests();
    let of_token = |request: &&String| request.starts_with("PUT /latest/api/token ");
    let tokens = requests.iter().filter(of_token).count();
    (tokens, requests.len() - tokens)
}

#[tokio::test]
async fn a_refused_token_of_the_metadata_is_replaced_once_and_the_send_succeeds() {
    let (world, instance, sink) = on_instance(1).await;
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(world.signers(), ["ASIA1"]);
    // The refused request, the same with a new token, and the one for the keys.
    assert_eq!(asked(&instance), (2, 3));
}

#[tokio::test]
async fn metadata_that_refuses_every_token_is_asked_twice_and_said_to_do_so() {
    let (_world, instance, sink) = on_instance(usize::MAX - 1).await;
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "NoCredentials")
    );
    let said = "it refuses its own tokens";
    assert!(error.text().contains(said), "{error}");
    assert_eq!(asked(&instance), (2, 2));
}
