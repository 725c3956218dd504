//! The source on the mock cluster.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{
    ClaimCheck, ClaimError, ClaimId, ClaimRef, Consumer, ConsumerSettings,
    DEFAULT_INLINE_MAX_BYTES, Delivery, DeliveryContext, Envelope, ErrorClass, HostServices,
    Message, Received, SettleError, Settlement, Sink, SinkError, SourceExt as _, Stop,
    Subscription,
};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;
use sink_kafka::{KafkaSource, KafkaSourceBuilder};
use tokio::time::{Instant, timeout};

use crate::support::{Cluster, TOPIC, ctx, envelope, envelope_of};

/// A member of a group has to join it first, which takes the mock cluster seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn source(cluster: &Cluster, group: &str) -> KafkaSourceBuilder {
    let brokers = cluster.mock.bootstrap_servers();
    KafkaSource::builder(brokers.split(','), TOPIC, group)
        .wait(Duration::from_millis(300))
        .property("session.timeout.ms", "4000")
        .property("heartbeat.interval.ms", "100")
        .property("fetch.wait.max.ms", "50")
        .property("reconnect.backoff.ms", "10")
        .property("reconnect.backoff.max.ms", "100")
}

pub(crate) fn built(cluster: &Cluster, group: &str) -> KafkaSource {
    source(cluster, group).build(&HostServices::new()).unwrap()
}

fn retry_sink(cluster: &Cluster) -> Arc<dyn Sink> {
    Arc::new(cluster.sink(&json!({"properties": {"linger.ms": 0}})))
}

async fn send(cluster: &Cluster, envelope: &Envelope, ctx: &DeliveryContext) {
    retry_sink(cluster).deliver(envelope, ctx).await.unwrap();
}

/// Stores a record as a producer of its own.
pub(crate) fn put(
    cluster: &Cluster,
    topic: &str,
    key: &str,
    payload: &[u8],
    headers: &[(&str, &str)],
) {
    put_all(cluster, topic, &[(key.as_bytes(), payload)], headers);
}

pub(crate) fn put_all(
    cluster: &Cluster,
    topic: &str,
    records: &[(&[u8], &[u8])],
    headers: &[(&str, &str)],
) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.mock.bootstrap_servers())
        .create()
        .unwrap();
    let mut all = OwnedHeaders::new();
    for (key, value) in headers {
        all = all.insert(Header {
            key,
            value: Some(*value),
        });
    }
    for (key, payload) in records {
        let record = BaseRecord::to(topic).key(*key).payload(*payload);
        let record = record.headers(all.clone());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

pub(crate) fn max(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// Receives until so many came.
pub(crate) async fn take(subscription: &dyn Subscription, count: usize) -> Vec<Box<dyn Delivery>> {
    let mut taken = Vec::new();
    let taking = async {
        while taken.len() < count {
            let wanted = max(count - taken.len());
            taken.extend(subscription.receive(wanted).await.unwrap());
        }
    };
    timeout(PATIENCE, taking).await.unwrap();
    taken
}

pub(crate) async fn next(subscription: &dyn Subscription) -> Box<dyn Delivery> {
    take(subscription, 1).await.remove(0)
}

pub(crate) async fn nothing_comes(subscription: &dyn Subscription) {
    for _ in 0..3 {
        let received = subscription.receive(max(10)).await.unwrap();
        assert!(received.is_empty(), "{received:?}");
    }
}

fn id(delivery: &dyn Delivery) -> String {
    delivery.received().message().unwrap().id.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_copy_waits_its_time_in_the_topic_and_survives_its_consumer() {
    let cluster = Cluster::start();
    let envelope = envelope();
    send(&cluster, &envelope, &ctx()).await;
    let source = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = source.open().await.unwrap();
    let first = next(&*subscription).await;
    let begun = Instant::now();
    let delay = Duration::from_millis(1_500);
    first.retry_after(delay).await.unwrap();
    subscription.close().await;
    let subscription = source.open().await.unwrap();
    let second = next(&*subscription).await;
    assert!(begun.elapsed() >= delay, "after {:?}", begun.elapsed());
    assert_eq!(id(&*second), envelope.id().to_string());
    assert_eq!(second.received().redelivery_count(), Some(2));
    assert_eq!(second.received().group(), Some("acme/github"));
    second.ack().await.unwrap();
    nothing_comes(&*subscription).await;
    let copy = &cluster.stored(0, 2)[1];
    let headers = copy.headers().unwrap().iter();
    let mark = headers.filter(|header| header.key == "dispatch_redelivery");
    let mark: Vec<_> = mark.map(|header| header.value.unwrap()).collect();
    let mark = std::str::from_utf8(mark[0]).unwrap();
    assert!(mark.starts_with("count=2;not_before="), "{mark}");
    assert!(mark.ends_with(";group=workers"), "{mark}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_for_the_group_that_asked_for_it_and_no_other() {
    let cluster = Cluster::start();
    let envelope = envelope();
    send(&cluster, &envelope, &ctx()).await;
    let workers = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let workers = workers.open().await.unwrap();
    next(&*workers).await.retry().await.unwrap();
    let clerks = built(&cluster, "clerks").out_retry(retry_sink(&cluster));
    let clerks = clerks.open().await.unwrap();
    let original = next(&*clerks).await;
    assert_eq!(original.received().redelivery_count(), Some(1));
    original.ack().await.unwrap();
    nothing_comes(&*clerks).await;
    let copy = next(&*workers).await;
    assert_eq!(copy.received().redelivery_count(), Some(2));
    copy.ack().await.unwrap();
    // What was passed over is consumed as well: the next member begins behind it.
    clerks.close().await;
    let clerks = built(&cluster, "clerks").open_alone().await;
    nothing_comes(&*clerks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_sink_can_copy_stays_and_comes_back_to_the_same_subscription() {
    let cluster = Cluster::start();
    put(&cluster, TOPIC, "quay-7", b"no message at all", &[]);
    let source = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = source.open().await.unwrap();
    let error = next(&*subscription).await.retry().await.unwrap_err();
    assert!(matches!(&error, SettleError::Refused(_)), "{error:?}");
    assert_eq!(error.code(), "NotRepeatable");
    let again = next(&*subscription).await;
    assert_eq!(&**again.received().body(), b"no message at all");
    assert_eq!(again.received().redelivery_count(), Some(1));
    again.drop_message().await.unwrap();
    nothing_comes(&*subscription).await;
    cluster.stored(0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_without_a_sink_is_refused_and_the_message_comes_back_before_those_behind_it() {
    let cluster = Cluster::start();
    let envelopes = [envelope(), envelope(), envelope()];
    for envelope in &envelopes {
        send(&cluster, envelope, &ctx()).await;
    }
    let subscription = built(&cluster, "workers").open_alone().await;
    let first = next(&*subscription).await;
    let error = first.retry().await.unwrap_err();
    assert_eq!(error.code(), "NoRetrySink");
    for envelope in &envelopes {
        let delivery = next(&*subscription).await;
        assert_eq!(id(&*delivery), envelope.id().to_string());
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_leaves_what_it_did_not_begin_without_a_copy() {
    let cluster = Cluster::start();
    for _ in 0..5 {
        send(&cluster, &envelope(), &ctx()).await;
    }
    let source = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = source.open().await.unwrap();
    let stop = Stop::new();
    let mut settings = ConsumerSettings::default();
    settings.concurrency = max(5);
    let handler = {
        let stop = stop.clone();
        move |_: Received| {
            stop.by(Instant::now() + PATIENCE);
            async { Settlement::Ack }
        }
    };
    let consumer = Consumer::new(settings);
    let consuming = consumer.run(subscription, handler, stop);
    let report = timeout(PATIENCE, consuming).await.unwrap();
    assert_eq!(report.acked, 1, "{report:?}");
    assert_eq!(
        report.acked + report.given_back,
        report.received,
        "{report:?}"
    );
    // No copy was made, and the four come to the next.
    cluster.stored(0, 5);
    let subscription = source.open().await.unwrap();
    for delivery in take(&*subscription, 4).await {
        assert_eq!(delivery.received().redelivery_count(), Some(1));
        delivery.ack().await.unwrap();
    }
}

/// Keeps one body.
#[derive(Debug)]
struct OneClaim(Bytes);

#[async_trait]
impl ClaimCheck for OneClaim {
    async fn check_in(&self, _: &Envelope) -> Result<ClaimRef, SinkError> {
        unreachable!("a copy has the claim of its original")
    }

    async fn fetch(&self, _: &ClaimRef) -> Result<Bytes, ClaimError> {
        Ok(self.0.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_claim_is_the_same_claim() {
    let cluster = Cluster::start();
    let body = "x".repeat(70_000);
    let claim = ClaimRef::new("acme", ClaimId::new(1_767_225_600_123, 7, 0)).unwrap();
    let ctx = ctx().with_claim(claim);
    send(&cluster, &envelope_of(body.clone()), &ctx).await;
    let without = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = without.open().await.unwrap();
    let error = next(&*subscription).await.retry().await.unwrap_err();
    assert_eq!(error.code(), "ClaimCheckMissing");
    subscription.close().await;
    let services = HostServices::new().with_claim_check(Arc::new(OneClaim(body.into())));
    let source = source(&cluster, "workers").build(&services).unwrap();
    let subscription = source.out_retry(retry_sink(&cluster)).open().await.unwrap();
    let original = next(&*subscription).await;
    let sent = original.received().body().clone();
    original.retry().await.unwrap();
    let copy = next(&*subscription).await;
    assert_eq!(*copy.received().body(), sent);
    copy.ack().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_the_record_byte_for_byte() {
    let cluster = Cluster::start();
    cluster.mock.create_topic("spent", 1, 1).unwrap();
    let payload = [0xff, 0x00, b'x'];
    put(&cluster, TOPIC, "quay-7", &payload, &[("tag", "größer")]);
    let source = built(&cluster, "workers");
    let source = source.max_attempts(1).dead_letter("spent");
    let subscription = source.open().await.unwrap();
    next(&*subscription).await.retry().await.unwrap();
    nothing_comes(&*subscription).await;
    subscription.close().await;
    let brokers = cluster.mock.bootstrap_servers();
    let spent = KafkaSource::builder(brokers.split(','), "spent", "reader")
        .build(&HostServices::new())
        .unwrap();
    let spent = spent.open_alone().await;
    let dead = next(&*spent).await;
    assert_eq!(&**dead.received().body(), &payload);
    assert_eq!(dead.received().attribute("tag"), Some("größer"));
    assert_eq!(dead.received().group(), Some("quay-7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_goes_to_another_member_is_a_loss_that_is_told() {
    let cluster = Cluster::without_topic();
    cluster.create_topic(2);
    for number in 0..20 {
        put(&cluster, TOPIC, &format!("quay-{number}"), b"{}", &[]);
    }
    let first = built(&cluster, "workers").open_alone().await;
    let held = take(&*first, 20).await;
    let second = built(&cluster, "workers").open_alone().await;
    // Both have to ask, or the group waits for who does not.
    let moved = async {
        let mut moved = Vec::new();
        while moved.is_empty() {
            let (mine, theirs) = tokio::join!(first.receive(max(1)), second.receive(max(20)));
            assert!(mine.unwrap().is_empty());
            moved = theirs.unwrap();
        }
        moved
    };
    let moved = timeout(PATIENCE, moved).await.unwrap();
    let partition = |delivery: &dyn Delivery| {
        let id = delivery.received().id().to_owned();
        id.split('/').nth(1).unwrap().to_owned()
    };
    let gone = partition(&*moved[0]);
    let (mut lost, mut kept) = (0, 0);
    for delivery in held {
        let is_gone = partition(&*delivery) == gone;
        assert_eq!(delivery.received().lease().is_lost(), is_gone);
        match delivery.ack().await {
            Err(SettleError::Lost(_)) if is_gone => lost += 1,
            Ok(()) if !is_gone => kept += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 0 && kept > 0, "{lost} lost, {kept} kept");
    for delivery in moved {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_refused_leaves_open_what_becomes_of_a_retry_whose_copy_is_stored() {
    let cluster = Cluster::start();
    send(&cluster, &envelope(), &ctx()).await;
    let source = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = source.open().await.unwrap();
    let original = next(&*subscription).await;
    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED;
    let commits = RDKafkaApiKey::OffsetCommit;
    cluster.mock.request_errors(commits, &[refusal]);
    let error = original.retry().await.unwrap_err();
    assert!(matches!(&error, SettleError::Unknown(_)), "{error:?}");
    assert_eq!(error.code(), "GroupAuthorizationFailed");
    // The copy's commit is the original's too.
    let copy = next(&*subscription).await;
    assert_eq!(copy.received().redelivery_count(), Some(2));
    copy.ack().await.unwrap();
    subscription.close().await;
    let subscription = source.open().await.unwrap();
    nothing_comes(&*subscription).await;
    cluster.stored(0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_key_of_its_original_byte_for_byte_and_so_its_partition() {
    const KEY: &[u8] = &[0xff, 0x00, 0x9c];
    let cluster = Cluster::start();
    let (envelope, ctx) = (envelope(), ctx());
    let message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES).unwrap();
    put_all(&cluster, TOPIC, &[(KEY, message.encode().as_bytes())], &[]);
    let source = built(&cluster, "workers").out_retry(retry_sink(&cluster));
    let subscription = source.open().await.unwrap();
    next(&*subscription).await.retry().await.unwrap();
    next(&*subscription).await.ack().await.unwrap();
    for record in cluster.stored(0, 2) {
        assert_eq!(record.key(), Some(KEY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_missing_is_told_in_time_and_not_created() {
    let cluster = Cluster::without_topic();
    let error = built(&cluster, "workers").try_open().await.unwrap_err();
    assert_eq!(error.code(), "UnknownTopic");
    assert!(matches!(error.class(), ErrorClass::Config), "{error}");
    assert!(cluster.topics().is_empty());
    cluster.create_topic(1);
    let source = built(&cluster, "workers")
        .max_attempts(3)
        .dead_letter("spent");
    // Nothing would count to three.
    let error = source.open().await.unwrap_err();
    assert_eq!(error.code(), "NoRetrySink");
    let source = source.out_retry(retry_sink(&cluster));
    let error = source.open().await.unwrap_err();
    assert_eq!(error.code(), "DeadLetterMissing");
    assert!(error.text().contains("`spent`"), "{error}");
    assert_eq!(cluster.topics(), [TOPIC]);
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_not_there_are_told_in_time() {
    let begun = Instant::now();
    let source = KafkaSource::builder(["127.0.0.1:1"], TOPIC, "workers")
        .timeout_ms(300)
        .build(&HostServices::new())
        .unwrap();
    let error = source.try_open().await.unwrap_err();
    assert_eq!(error.code(), "ConnectFailed");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Opens a source without a plan.
pub(crate) trait OpenAlone {
    async fn try_open(&self) -> Result<Arc<dyn Subscription>, dispatch_api::SourceError>;

    async fn open_alone(&self) -> Arc<dyn Subscription> {
        self.try_open().await.unwrap()
    }
}

impl OpenAlone for KafkaSource {
    async fn try_open(&self) -> Result<Arc<dyn Subscription>, dispatch_api::SourceError> {
        dispatch_api::Source::open(self, &dispatch_api::SubscriptionPlan::new()).await
    }
}
