//! A source whose broker delays a retry takes no sink for copies.

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
    let _ = queue.out_retry(sink);
}

fn main() {}
