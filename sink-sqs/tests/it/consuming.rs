//! A server, a queue on it, and a subscription that consumes it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Delivery, HostServices, SourceError, SourceExt as _, Subscription, SubscriptionPlan,
};
use serde_json::{Value, json};
use sink_sqs::{SqsError, SqsQueue, SqsQueueBuilder};
use sink_testkit::sqs::{Operation, PeekedMessage, SqsServer, Visibility};
use tokio::time::{sleep, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A queue to consume, standard or FIFO.
pub(crate) struct Consuming {
    pub(crate) server: SqsServer,
    pub(crate) url: String,
    name: &'static str,
}

impl Consuming {
    pub(crate) async fn standard() -> Self {
        Self::named("hooks").await
    }

    pub(crate) async fn fifo() -> Self {
        Self::named("hooks.fifo").await
    }

    async fn named(name: &'static str) -> Self {
        let server = SqsServer::start().await.unwrap();
        let url = make(&server, name).await;
        Self { server, url, name }
    }

    /// Short polls and a hold of 30 seconds, unless that is changed.
    pub(crate) fn queue(&self) -> SqsQueueBuilder {
        SqsQueue::builder(&self.url, "us-east-1")
            .credentials("test", "test")
            .wait(Duration::ZERO)
            .visibility(30 * SECOND)
    }

    pub(crate) async fn open(&self) -> Arc<dyn Subscription> {
        self.open_as(|queue| queue).await
    }

    pub(crate) async fn open_as(
        &self,
        change: impl FnOnce(SqsQueueBuilder) -> SqsQueueBuilder,
    ) -> Arc<dyn Subscription> {
        open(change(self.queue()), &SubscriptionPlan::new())
            .await
            .unwrap()
    }

    /// Opened with a redrive policy to a queue that is made for it.
    pub(crate) async fn open_with_redrive(&self, max_attempts: u32) -> Arc<dyn Subscription> {
        let dead = self.dead_letter_name();
        make(&self.server, dead).await;
        let queue = self.queue().build(&HostServices::new()).unwrap();
        let registration = queue.max_attempts(max_attempts).dead_letter(dead);
        registration.open().await.unwrap()
    }

    pub(crate) fn dead_letter_name(&self) -> &'static str {
        match self.name.ends_with(".fifo") {
            true => "dead.fifo",
            false => "dead",
        }
    }

    pub(crate) async fn send(&self, body: &str) {
        self.send_as(json!({"MessageBody": body})).await;
    }

    pub(crate) async fn send_to_group(&self, group: &str, body: &str) {
        self.send_as(json!({
            "MessageBody": body,
            "MessageGroupId": group,
            "MessageDeduplicationId": body,
        }))
        .await;
    }

    /// Of one group where the queue has groups.
    pub(crate) async fn send_anyhow(&self, body: &str) {
        match self.name.ends_with(".fifo") {
            true => self.send_to_group("g", body).await,
            false => self.send(body).await,
        }
    }

    pub(crate) async fn send_as(&self, mut request: Value) {
        request["QueueUrl"] = self.url.clone().into();
        self.server
            .call(Operation::SendMessage, request)
            .await
            .unwrap();
    }

    pub(crate) fn stored(&self) -> Vec<PeekedMessage> {
        self.server.messages(self.name).unwrap()
    }

    pub(crate) fn only(&self) -> PeekedMessage {
        let mut stored = self.stored();
        assert_eq!(stored.len(), 1);
        stored.remove(0)
    }

    /// For how long from now on the only message is hidden, in seconds, rounded up.
    pub(crate) fn hidden_for(&self) -> u64 {
        let now = self.server.clock().now();
        let left = self
            .only()
            .visible_at
            .duration_since(now)
            .unwrap_or_default();
        left.as_millis().div_ceil(1_000).try_into().unwrap()
    }

    pub(crate) fn is_visible(&self) -> bool {
        self.only().visibility == Visibility::Visible
    }

    pub(crate) fn count(&self, operation: Operation) -> usize {
        self.server.requests_of(operation).len()
    }

    /// The visibility timeouts that single calls asked for, in order.
    pub(crate) fn changes(&self) -> Vec<u64> {
        let requests = self.server.requests_of(Operation::ChangeMessageVisibility);
        let asked = requests.iter();
        asked
            .map(|request| request.json()["VisibilityTimeout"].as_u64().unwrap())
            .collect()
    }
}

pub(crate) async fn make(server: &SqsServer, name: &str) -> String {
    let fifo = name.ends_with(".fifo").then_some(("FifoQueue", "true"));
    server.create_queue(name, fifo).await.unwrap()
}

pub(crate) async fn open(
    queue: SqsQueueBuilder,
    plan: &SubscriptionPlan,
) -> Result<Arc<dyn Subscription>, SourceError> {
    use dispatch_api::Source as _;
    queue.build(&HostServices::new()).unwrap().open(plan).await
}

/// Why a queue cannot be consumed as it is registered.
pub(crate) fn reason(error: &SourceError) -> &SqsError {
    let source = std::error::Error::source(error).unwrap();
    source.downcast_ref().unwrap()
}

pub(crate) async fn receive(
    subscription: &Arc<dyn Subscription>,
    max: usize,
) -> Vec<Box<dyn Delivery>> {
    let max = NonZeroUsize::new(max).unwrap();
    let receiving = timeout(30 * SECOND, subscription.receive(max));
    receiving.await.unwrap().unwrap()
}

pub(crate) async fn receive_one(subscription: &Arc<dyn Subscription>) -> Box<dyn Delivery> {
    let mut deliveries = receive(subscription, 1).await;
    assert_eq!(deliveries.len(), 1);
    deliveries.remove(0)
}

/// Waits until it is so, and not for ever.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
