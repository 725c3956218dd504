//! Neither does its registration.

use std::sync::Arc;

use dispatch_api::{Sink, Source, SourceError, SourceExt as _, Subscription, SubscriptionPlan};

#[derive(Debug)]
struct DelayingQueue;

#[async_trait::async_trait]
impl Source for DelayingQueue {
    async fn open(&self, _: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        unimplemented!()
    }
}

fn register(queue: DelayingQueue, sink: Arc<dyn Sink>) {
    let _ = queue.max_attempts(5).dead_letter("dead").out_retry(sink);
}

fn main() {}
