//! A queue delays a retry itself: it takes no sink for copies.

use std::sync::Arc;

use dispatch_api::{Sink, SourceExt as _};
use sink_sqs::SqsQueue;

fn register(queue: SqsQueue, sink: Arc<dyn Sink>) {
    let _ = queue.out_retry(sink);
}

fn main() {}
